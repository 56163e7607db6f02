//! Submitting a job: the document is checked whole, then whether the caller may, then whether what it names exists.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use trainyard_core::{
    document::{
        Format, check_job,
        job::{Code, JobDocument},
        place_of,
    },
    model::{AuditId, ClusterId, JobId, Phase, Provider, TeamId, TeamRole, Wanted},
    plan::warnings::warnings,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Actions, Ask, FieldFault, Refusal, found};
use crate::db::{
    access::Caller,
    jobs_create::{self, Key, NewJob, Origin, References},
    jobs_read::{self, ClusterRef, Job, JobDetail, JobOrigin, OriginKind, TeamRef, UserRef},
    teams,
};

/// What was sent.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    pub text: &'a str,
    pub format: Option<Format>,
    /// The idempotency key, if one was sent.
    pub key: Option<&'a str>,
    /// The job that the document was copied from and edited.
    pub clone_of: Option<JobId>,
}

/// A document that would be taken: defaults filled in, and what means nothing where it would run.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CheckedJob {
    pub document: JobDocument,
    /// What to know about it, in sentences: fields that mean nothing on a cluster where it may run.
    pub warnings: Vec<String>,
}

/// A job that is stored, whether by this request or by an earlier one with the same key.
#[derive(Debug, Clone)]
pub struct Submitted {
    pub job: JobDetail,
    pub warnings: Vec<String>,
    pub again: bool,
}

const CREATE: &str = "jobs.create";
const RERUN: &str = "jobs.rerun";
const REASON: &str = "submitted";
const MESSAGE: &str = "Submitted; no worker has looked at it yet";

impl Actions {
    /// Stores a new job, and pokes whoever places or admits it.
    pub async fn create_job(&self, ask: Ask<'_>, submission: Submission<'_>) -> Result<Submitted, Refusal> {
        let plan = self
            .check_submission(ask.caller, submission.text, submission.format)
            .await?;
        let origin = match submission.clone_of {
            Some(job) => {
                found(
                    "job",
                    job,
                    jobs_read::home(&self.db, &ask.caller.actor.scope(), job).await,
                )?;
                Some(Origin { how: "clone", job })
            }
            None => None,
        };
        let key = submission.key.map(|key| Key {
            route: CREATE,
            key: key.to_owned(),
            digest: digest(&[
                submission.text.as_bytes(),
                format!("{:?} {:?}", submission.format, submission.clone_of).as_bytes(),
            ]),
        });
        self.store(ask, plan, origin, key).await
    }

    /// Everything that creating checks, and nothing written. Answers the clean document, defaults filled in.
    pub async fn dry_run_job(&self, ask: Ask<'_>, submission: Submission<'_>) -> Result<CheckedJob, Refusal> {
        let plan = self
            .check_submission(ask.caller, submission.text, submission.format)
            .await?;
        Ok(CheckedJob {
            document: plan.document,
            warnings: plan.warnings,
        })
    }

    /// The same document again, as a new job of the caller in the same team.
    pub async fn rerun_job(&self, ask: Ask<'_>, job: JobId, key: Option<&str>) -> Result<Submitted, Refusal> {
        let before = found(
            "job",
            job,
            jobs_read::get(&self.db, &ask.caller.actor.scope(), job).await,
        )?;
        let plan = self
            .check_submission(ask.caller, before.document.get(), Some(Format::Json))
            .await?;
        let key = key.map(|key| Key {
            route: RERUN,
            key: key.to_owned(),
            digest: digest(&[job.0.as_bytes()]),
        });
        self.store(ask, plan, Some(Origin { how: "rerun", job }), key).await
    }

    async fn check_submission(&self, caller: &Caller, text: &str, format: Option<Format>) -> Result<Plan, Refusal> {
        let faults = |faults: Vec<_>| Refusal::Faults(faults.into_iter().map(FieldFault::from).collect());
        let mut document = check_job(text, format).map_err(faults)?;
        let placed = |refusal: Refusal| refusal.placed(|path| place_of(text, format, path));
        let (team, team_name) = (self.team_for(caller, document.team.as_deref()).await).map_err(placed)?;
        if !caller.actor.may(team, TeamRole::Member) {
            return Err(Refusal::role(TeamRole::Member, &team_name));
        }
        document.team = Some(team_name.clone());
        let references = (self.look_up(team, &team_name, &document).await).map_err(placed)?;
        Ok(Plan {
            team: TeamRef {
                id: team,
                name: team_name,
            },
            cluster: references.cluster,
            warnings: (references.providers.into_iter())
                .flat_map(|provider| warnings(&document, provider))
                .collect(),
            document,
        })
    }

    /// The team that the document names, or the only one that the caller may submit to.
    async fn team_for(&self, caller: &Caller, name: Option<&str>) -> Result<(TeamId, String), Refusal> {
        let Some(name) = name else {
            let mut open = (caller.team_names.iter()).filter(|(team, _)| caller.actor.may(**team, TeamRole::Member));
            return match (open.next(), open.next()) {
                (Some((team, name)), None) => Ok((*team, name.clone())),
                (None, _) => Err(Refusal::Forbidden {
                    needs: "the role member in some team".into(),
                }),
                (Some(_), Some(_)) => Err(Refusal::fault(
                    FieldFault::new(
                        "team",
                        "missing_field",
                        "you may submit to several teams, so the document has to name one",
                    )
                    .hint(format!("one of: {}", names(caller))),
                )),
            };
        };
        if let Some((team, _)) = caller.team_names.iter().find(|(_, known)| *known == name) {
            return Ok((*team, name.to_owned()));
        }
        match teams::by_name(&self.db, &caller.actor.scope(), name).await? {
            Some(team) => Ok((team, name.to_owned())),
            None => Err(Refusal::fault(
                FieldFault::new("team", "unknown_team", "there is no such team, or you are not in it")
                    .value(name)
                    .hint(format!("your teams: {}", names(caller))),
            )),
        }
    }

    /// Whether the cluster, the secrets and the code that the document names are there for this team. Not asked for a
    /// document that names none of them, and of which no kind of cluster would warn.
    async fn look_up(&self, team: TeamId, team_name: &str, document: &JobDocument) -> Result<References, Refusal> {
        let secrets = document.secret_refs();
        let code = match &document.code {
            Some(Code::Upload(digest)) => Some(digest.as_str()),
            _ => None,
        };
        let told = (Provider::ALL.iter()).any(|&provider| !warnings(document, provider).is_empty());
        if document.cluster.is_none() && secrets.is_empty() && code.is_none() && !told {
            return Ok(References::default());
        }
        let wanted: BTreeSet<String> = secrets.iter().map(|(_, secret)| secret.name.clone()).collect();
        let wanted: Vec<String> = wanted.into_iter().collect();
        let references = jobs_create::references(&self.db, team, document.cluster.as_deref(), &wanted, code).await?;
        let mut faults = Vec::new();
        if let Some(name) = &document.cluster
            && !(references.cluster.is_some() && references.granted)
        {
            let hint = match references.usable.is_empty() {
                true => format!("team {team_name} may use no cluster yet; an admin can grant one"),
                false => format!("team {team_name} may use: {}", references.usable.join(", ")),
            };
            faults.push(
                FieldFault::new(
                    "cluster",
                    "unknown_cluster",
                    format!("team {team_name} has no cluster of that name"),
                )
                .value(name)
                .hint(hint),
            );
        }
        for (path, secret) in secrets {
            let fault = match references.secrets.get(&secret.name) {
                None => FieldFault::new(
                    format!("{path}.name"),
                    "unknown_secret",
                    format!("team {team_name} has no secret of that name"),
                )
                .value(&secret.name)
                .hint(format!("put it first: PUT /api/v1/secrets/{}", secret.name)),
                Some(keys) if !keys.contains(&secret.key) => FieldFault::new(
                    format!("{path}.key"),
                    "unknown_key",
                    format!("the secret {} has no such key", secret.name),
                )
                .value(&secret.key)
                .hint(format!("it has: {}", keys.join(", "))),
                Some(_) => continue,
            };
            faults.push(fault);
        }
        if let Some(digest) = code
            && !references.code
        {
            faults.push(
                FieldFault::new(
                    "code.upload",
                    "unknown_code",
                    format!("team {team_name} has uploaded no such archive"),
                )
                .value(digest)
                .hint("upload it first: POST /api/v1/code"),
            );
        }
        if faults.is_empty() {
            Ok(references)
        } else {
            Err(Refusal::Faults(faults))
        }
    }

    async fn store(
        &self,
        ask: Ask<'_>,
        plan: Plan,
        origin: Option<Origin>,
        key: Option<Key>,
    ) -> Result<Submitted, Refusal> {
        let installation = self.installation().await?;
        let caller = ask.caller;
        // Types that were read from JSON can be written as JSON.
        let raw =
            RawValue::from_string(serde_json::to_string(&plan.document).unwrap_or_default()).map_err(|error| {
                crate::db::DbError::Inconsistent {
                    table: "jobs",
                    key: plan.document.name.clone(),
                    what: error.to_string(),
                }
            })?;
        let sums = Sums::of(&plan.document);
        let event_message = match origin {
            Some(Origin { how, job }) => format!("Submitted by {} as a {how} of {job}", caller.actor.name),
            None => format!("Submitted by {}", caller.actor.name),
        };
        let document = &plan.document;
        let new = NewJob {
            id: JobId(Uuid::now_v7()),
            audit: AuditId(Uuid::now_v7()),
            team: plan.team.id,
            owner: caller.actor.user,
            token: caller.actor.token,
            request: ask.request.to_owned(),
            name: document.name.clone(),
            labels: document.labels.clone(),
            document: raw.get().to_owned(),
            retention: document.retention.as_str(),
            priority: document.priority,
            queue: document.queue.clone(),
            cluster_wanted: document.cluster.clone(),
            cluster: plan.cluster,
            replicas: sums.replicas,
            cpu_milli: sums.cpu_milli,
            memory_bytes: sums.memory_bytes,
            gpus: sums.gpus,
            total_steps: document
                .metrics
                .total_steps
                .map(|steps| i64::try_from(steps).unwrap_or(i64::MAX)),
            origin,
            reason: REASON,
            message: MESSAGE.to_owned(),
            event_message,
            key,
        };
        let created = self.creator.create(installation, new).await?;
        Ok(Submitted {
            job: JobDetail {
                job: fresh(created.job, created.at, &plan, sums, caller, origin),
                document: raw,
            },
            warnings: plan.warnings,
            again: created.again,
        })
    }
}

/// A submission that was found good.
struct Plan {
    document: JobDocument,
    team: TeamRef,
    cluster: Option<ClusterId>,
    warnings: Vec<String>,
}

/// A job as it is right after it was stored. A repeated request gets this again, whatever became of the job since.
fn fresh(id: JobId, at: DateTime<Utc>, plan: &Plan, sums: Sums, caller: &Caller, origin: Option<Origin>) -> Job {
    let document = &plan.document;
    Job {
        id,
        name: document.name.clone(),
        team: plan.team.clone(),
        owner: UserRef {
            id: caller.actor.user,
            name: caller.actor.name.clone(),
        },
        labels: document.labels.clone(),
        wanted: Wanted::Run,
        phase: Phase::Queued,
        reason: REASON.to_owned(),
        message: MESSAGE.to_owned(),
        stale_since: None,
        priority: document.priority,
        queue: document.queue.clone(),
        cluster_wanted: document.cluster.clone(),
        cluster: plan
            .cluster
            .zip(document.cluster.clone())
            .map(|(id, name)| ClusterRef { id, name }),
        replicas: sums.replicas,
        cpu_milli: sums.cpu_milli,
        memory_bytes: sums.memory_bytes,
        gpus: sums.gpus,
        generation: 1,
        event_seq: 1,
        attempt: 0,
        step: None,
        step_at: None,
        total_steps: document
            .metrics
            .total_steps
            .map(|steps| i64::try_from(steps).unwrap_or(i64::MAX)),
        origin: origin.map(|origin| JobOrigin {
            how: if origin.how == "rerun" {
                OriginKind::Rerun
            } else {
                OriginKind::Clone
            },
            job: origin.job,
        }),
        created_at: at,
        queued_at: at,
        queued_seconds: 0,
        not_before: None,
        started_at: None,
        ended_at: None,
        sentence: None,
    }
}

/// What all replicas need together.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sums {
    replicas: i32,
    cpu_milli: i64,
    memory_bytes: i64,
    gpus: i32,
}

impl Sums {
    fn of(document: &JobDocument) -> Self {
        let mut sums = Self {
            replicas: 0,
            cpu_milli: 0,
            memory_bytes: 0,
            gpus: 0,
        };
        for role in &document.roles {
            let (count, needs) = (u64::from(role.replicas), &role.resources);
            let times = |each: u64| i64::try_from(each.saturating_mul(count)).unwrap_or(i64::MAX);
            let small = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
            sums.replicas = sums.replicas.saturating_add(small(times(1)));
            sums.cpu_milli = sums.cpu_milli.saturating_add(times(needs.cpu.as_milli()));
            let memory = needs.memory.map_or(0, |memory| memory.as_bytes());
            sums.memory_bytes = sums.memory_bytes.saturating_add(times(memory));
            sums.gpus = sums.gpus.saturating_add(small(times(u64::from(needs.gpus))));
        }
        sums
    }
}

fn names(caller: &Caller) -> String {
    let names: Vec<&str> = caller.team_names.values().map(String::as_str).collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

/// One digest over several parts; lengths keep them apart.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
