//! What a runtime needs to start an attempt, gathered from the records. Secrets are opened here and nowhere before.

use std::collections::BTreeMap;

use secrecy::ExposeSecret;
use trainyard_core::{
    document::job::{Code, JobDocument, SecretRef},
    model::{AttemptId, Launch, LaunchReplica, ReportTo, SecretValue, TeamId},
};

use super::{WorkError, Worker};
use crate::{
    db::{attempts::AttemptRecord, code, jobs::JobRecord, secret_values},
    job_token,
};

/// The launch, or words for the person where it can't be made.
pub async fn assemble(
    worker: &Worker,
    job: &JobRecord,
    attempt: &AttemptRecord,
) -> Result<Result<Launch, String>, WorkError> {
    let secrets = match values(worker, job.team, &secret_refs(&job.document)).await? {
        Ok(secrets) => secrets,
        Err(missing) => {
            return Ok(Err(format!(
                "The team has no secret '{}' with a key '{}'. Put it there and rerun the job.",
                missing.name, missing.key
            )));
        }
    };
    let code = match &job.document.code {
        Some(Code::Upload(digest)) => match code::load(&worker.db, job.team, digest).await? {
            Some(archive) => Some(archive),
            None => {
                return Ok(Err(format!(
                    "The code archive {digest} is gone. Upload it again and rerun the job."
                )));
            }
        },
        _ => None,
    };
    Ok(Ok(Launch {
        job: job.id,
        job_name: job.name.clone(),
        team_name: job.team_name.clone(),
        attempt: attempt.id,
        number: attempt.number as u32,
        document: job.document.clone(),
        replicas: attempt
            .replicas
            .iter()
            .map(|replica| LaunchReplica {
                key: replica.key.clone(),
                rank: replica.rank,
                incarnation: replica.incarnation,
                gpus: replica.gpus.clone(),
            })
            .collect(),
        resume_from: attempt.resume_from.clone(),
        resume_step: attempt.resume_step,
        secrets,
        code,
        report: report(worker, attempt.id)?,
    }))
}

fn report(worker: &Worker, attempt: AttemptId) -> Result<Option<ReportTo>, WorkError> {
    let Some(url) = &worker.jobs_url else {
        return Ok(None);
    };
    let token = job_token::issue(&(worker.keys)(), attempt)?;
    Ok(Some(ReportTo {
        url: url.clone(),
        token: SecretValue(token.expose_secret().to_owned()),
    }))
}

/// Every secret that a document names, once.
pub fn secret_refs(document: &JobDocument) -> Vec<SecretRef> {
    let mut refs: Vec<SecretRef> = (document.secret_refs().into_iter())
        .map(|(_, secret)| secret.clone())
        .collect();
    refs.sort();
    refs.dedup();
    refs
}

pub type Values = BTreeMap<(String, String), SecretValue>;

/// Opens the named secrets of a team; the first one that is not there, otherwise.
pub async fn values(worker: &Worker, team: TeamId, refs: &[SecretRef]) -> Result<Result<Values, SecretRef>, WorkError> {
    let mut opened: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut values = Values::new();
    for secret in refs {
        if !opened.contains_key(secret.name.as_str()) {
            let Some(stored) = secret_values::newest(&worker.db, team, &secret.name).await? else {
                return Ok(Err(secret.clone()));
            };
            let plain = (worker.keys)().decrypt(stored.id, &stored.sealed)?;
            let text = crate::keys::as_text(&plain).unwrap_or("{}");
            opened.insert(&secret.name, serde_json::from_str(text).unwrap_or_default());
        }
        match opened.get(secret.name.as_str()).and_then(|keys| keys.get(&secret.key)) {
            Some(value) => values.insert((secret.name.clone(), secret.key.clone()), SecretValue(value.clone())),
            None => return Ok(Err(secret.clone())),
        };
    }
    Ok(Ok(values))
}

/// The values of these secrets in every version that is still stored, for masking.
pub async fn every_version(worker: &Worker, team: TeamId, refs: &[SecretRef]) -> Result<Vec<SecretValue>, WorkError> {
    let mut values = Vec::new();
    for name in refs
        .iter()
        .map(|secret| secret.name.as_str())
        .collect::<std::collections::BTreeSet<_>>()
    {
        for stored in secret_values::all(&worker.db, team, name).await? {
            let plain = (worker.keys)().decrypt(stored.id, &stored.sealed)?;
            let text = crate::keys::as_text(&plain).unwrap_or("{}");
            let keys: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
            values.extend(keys.into_values().map(SecretValue));
        }
    }
    Ok(values)
}
