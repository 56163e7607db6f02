//! The environment of a replica's program. It starts empty: nothing of the server's own (its database, its keys)
//! reaches a replica.
//!
//! Later ones win: what every program needs, the rendezvous, the job's `env`, the role's `env`. Only the marker
//! variables and the choice of GPUs can't be overridden, since ends and limits hang on them.

use std::{collections::BTreeMap, path::Path};

use trainyard_core::{
    document::job::{EnvValue, JobDocument, Role},
    kinds::rendezvous::{self, Environment, Facts, Peer},
    model::{Launch, SecretValue},
};

use crate::{runtimes::RuntimeError, shim::folder::Account};

pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Set by us alone.
const OURS: &str = "TRAINYARD_";

pub struct Place<'a> {
    pub account: Option<&'a Account>,
    /// PATH of the server, where replicas run as the same person.
    pub path: Option<&'a str>,
    pub home: &'a Path,
    pub tmp: &'a Path,
    pub gpus: &'a [u32],
    pub cpu_milli: u64,
    /// Volume name and folder.
    pub volumes: &'a [(String, std::path::PathBuf)],
}

pub fn of_replica(
    launch: &Launch,
    role: &Role,
    facts: &Facts,
    peer: &Peer,
    place: &Place,
) -> Result<Environment, RuntimeError> {
    let mut env = base(place);
    let rendezvous = rendezvous::environment(facts, peer);
    let ours: Environment = rendezvous
        .iter()
        .filter(|(name, _)| name.starts_with(OURS))
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(
            place
                .volumes
                .iter()
                .map(|(name, path)| (volume_variable(name), path.display().to_string())),
        )
        .chain([("CUDA_VISIBLE_DEVICES".to_owned(), gpu_list(place.gpus))])
        .collect();
    env.extend(rendezvous);
    env.extend(own_values(&launch.document, role, &launch.secrets)?);
    env.extend(ours);
    Ok(env)
}

fn base(place: &Place) -> Environment {
    let (user, path) = match place.account {
        Some(account) => (account.name.clone(), DEFAULT_PATH),
        None => {
            let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
            (
                user.map_or_else(|| "trainyard".into(), |user| user.name),
                place.path.unwrap_or(DEFAULT_PATH),
            )
        }
    };
    let home = place.home.display().to_string();
    let tmp = place.tmp.display().to_string();
    [
        ("PATH", path.to_owned()),
        ("HOME", home),
        ("TMPDIR", tmp),
        ("USER", user.clone()),
        ("LOGNAME", user),
        ("LANG", "C.UTF-8".into()),
        // Python holds back output to a file until 8 KiB are together, and its loss curve with it.
        ("PYTHONUNBUFFERED", "1".into()),
        // Otherwise a program takes a thread per core of the machine, however few it may use.
        ("OMP_NUM_THREADS", (place.cpu_milli / 1000).max(1).to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn gpu_list(gpus: &[u32]) -> String {
    gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// `TRAINYARD_VOLUME_<NAME>`, with every character that a shell can't name as `_`.
pub fn volume_variable(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!("{OURS}VOLUME_{name}")
}

fn own_values(
    document: &JobDocument,
    role: &Role,
    secrets: &BTreeMap<(String, String), SecretValue>,
) -> Result<Environment, RuntimeError> {
    let mut env = Environment::new();
    for (name, value) in document.env.iter().chain(&role.env) {
        let value = match value {
            EnvValue::Value(value) => value.clone(),
            EnvValue::Secret { secret_ref } => secrets
                .get(&(secret_ref.name.clone(), secret_ref.key.clone()))
                .map(|secret| secret.0.clone())
                .ok_or_else(|| RuntimeError::Refused {
                    reason: "secret_missing",
                    message: format!(
                        "env {name}: the secret '{}' has no key '{}'; set it and run the job again",
                        secret_ref.name, secret_ref.key
                    ),
                })?,
        };
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(RuntimeError::Refused {
                reason: "environment",
                message: format!("env {name:?}: a name holds no '=' and neither name nor value a NUL byte"),
            });
        }
        env.insert(name.clone(), value);
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_name_becomes_a_name_that_a_shell_knows() {
        assert_eq!(volume_variable("check-points.1"), "TRAINYARD_VOLUME_CHECK_POINTS_1");
    }
}
