//! The job document, `apiVersion: trainyard.dev/v1`, `kind: Job`: the types that a clean document becomes.
//!
//! The JSON Schema that is served and committed is generated from these types; doc comments become its descriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    forms,
    units::{CpuQuantity, Duration, MemoryQuantity},
};
use crate::model::{RestartOwner, Retention};

/// A training job: what to run, how many of it, and what to do when it fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobDocument {
    /// Always `trainyard.dev/v1`.
    pub api_version: ApiVersion,
    /// Always `Job`.
    pub kind: JobKind,
    /// A name for people: lower-case letters, digits and dashes, at most 63. Not a key; two jobs may share it.
    #[schemars(schema_with = "forms::name")]
    pub name: String,
    /// The team that the job belongs to. Left out: the only team that you may submit to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::name")]
    pub team: Option<String>,
    /// Labels; they reach the processes or pods, and lists can be filtered by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "forms::labels")]
    pub labels: BTreeMap<String, String>,
    /// The cluster to run on, by name. Left out: any that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::name")]
    pub cluster: Option<String>,
    /// Decides the rendezvous environment that every replica gets.
    #[serde(default)]
    pub framework: Framework,
    /// The roles, in rank order: the first replica of the first role is rank 0.
    #[schemars(length(min = 1, max = 16))]
    pub roles: Vec<Role>,
    /// Files that are put into the working folder before the first process starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Environment of every role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "forms::environment")]
    pub env: BTreeMap<String, EnvValue>,
    #[serde(default)]
    pub restart: Restart,
    #[serde(default)]
    pub deadlines: Deadlines,
    /// Higher starts first. Equal ones start by age.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// The queue to wait in, where the cluster has several. Ignored where replicas are processes of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::name")]
    pub queue: Option<String>,
    #[serde(default)]
    pub metrics: Metrics,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    #[serde(default)]
    pub stop: Stop,
    /// How long records and logs are kept after the end.
    #[serde(default = "standard")]
    pub retention: Retention,
}

fn standard() -> Retention {
    Retention::Standard
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
pub enum ApiVersion {
    #[serde(rename = "trainyard.dev/v1")]
    V1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
pub enum JobKind {
    Job,
}

/// What the replicas speak, and so what they are told about each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK.
    Pytorch,
    /// TF_CONFIG.
    Tensorflow,
    /// One launcher replica runs mpirun over the slots of the job.
    Mpi,
    /// Coordinator address, process id and process count for `jax.distributed.initialize()`.
    Jax,
    /// Only Trainyard's own variables.
    #[default]
    Plain,
}

/// A set of identical replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    /// Lower-case letters, digits and dashes, at most 32, for example `worker`.
    #[schemars(schema_with = "forms::role_name")]
    pub name: String,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: u32,
    /// The program and its first arguments. Never passed through a shell.
    #[schemars(schema_with = "forms::command")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "forms::arguments")]
    pub args: Vec<String>,
    /// The container image. Ignored where replicas are processes of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::image")]
    pub image: Option<String>,
    /// Where the process starts. Relative: inside the job's own folder. Left out: that folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::any_path")]
    pub working_dir: Option<String>,
    /// Added to the job's environment; wins over it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "forms::environment")]
    pub env: BTreeMap<String, EnvValue>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub volumes: Vec<Volume>,
}

fn one() -> u32 {
    1
}

/// A value, or a place in a secret where the value lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(untagged)]
pub enum EnvValue {
    Value(String),
    #[serde(rename_all = "camelCase")]
    Secret {
        secret_ref: SecretRef,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// The secret's name within the team.
    #[schemars(schema_with = "forms::foreign_name")]
    pub name: String,
    /// Which of its values.
    #[schemars(regex(pattern = r"^[A-Za-z0-9._-]{1,253}$"))]
    pub key: String,
}

/// What one replica needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Cores: `2`, `0.5` or `500m`. Left out: 1.
    #[serde(default)]
    pub cpu: CpuQuantity,
    /// `512Mi`, `2Gi`, `1G` or bytes. Left out: no request and no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryQuantity>,
    /// Whole GPUs.
    #[serde(default)]
    #[schemars(range(max = 1024))]
    pub gpus: u32,
    /// Named others, as the cluster calls them: `vpc.amazonaws.com/efa: 32`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "forms::other_resources")]
    pub other: BTreeMap<String, u64>,
}

/// A folder that outlives the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// A name within the job. Replicas whose volume comes from the job and has the same name share it.
    #[schemars(schema_with = "forms::role_name")]
    pub name: String,
    /// Where the replica sees it. Processes of a machine are told where it lies by `TRAINYARD_VOLUME_<NAME>` instead.
    #[schemars(schema_with = "forms::absolute_path")]
    pub mount_path: String,
    pub source: VolumeSource,
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum VolumeSource {
    /// A folder of the job that every attempt shares and that is removed with the job.
    Job {},
    /// An existing folder of the machine or node.
    HostPath {
        #[schemars(schema_with = "forms::absolute_path")]
        path: String,
    },
    /// A value of one of the team's secrets: a folder with one file, named as the key, that the replica alone may
    /// read and that goes with the attempt.
    SecretRef(SecretRef),
    /// A PersistentVolumeClaim of the namespace.
    Claim {
        #[schemars(schema_with = "forms::foreign_name")]
        name: String,
    },
}

/// Where the code comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Code {
    /// File contents by relative path, at most 900 KiB together.
    Inline(#[schemars(schema_with = "forms::inline_files")] BTreeMap<String, String>),
    /// The digest of an archive that was uploaded before: `sha256:` and 64 hexadecimal digits.
    Upload(#[schemars(schema_with = "forms::archive_digest")] String),
    /// A commit of a repository that the node can reach.
    Git {
        #[schemars(schema_with = "forms::git_url")]
        url: String,
        #[schemars(schema_with = "forms::git_commit")]
        commit: String,
    },
}

/// What happens when a replica fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restart {
    /// Who restarts. Left out: Trainyard, as a whole. Where replicas are processes of a machine, `jobset` and `operator`
    /// are nobody.
    #[serde(default = "trainyard")]
    pub owner: RestartOwner,
    /// How many more attempts after the first. 0: a failure is final.
    #[serde(default)]
    #[schemars(range(max = 1000))]
    pub max: u32,
    /// The pause before the second attempt; it doubles with each further one, up to an hour.
    #[serde(default = "ten_seconds")]
    pub backoff: Duration,
    /// Exit codes after which trying again is pointless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "forms::exit_codes")]
    pub never_retry_exit_codes: Vec<i32>,
}

fn trainyard() -> RestartOwner {
    RestartOwner::Trainyard
}

fn ten_seconds() -> Duration {
    Duration::seconds(10)
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            owner: trainyard(),
            max: 0,
            backoff: ten_seconds(),
            never_retry_exit_codes: Vec::new(),
        }
    }
}

/// Limits in time. Each one left out does not apply.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deadlines {
    /// At most this long in the queue, over all waits; then the job fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::deadline")]
    pub queue: Option<Duration>,
    /// From admission until every replica runs; then the attempt fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::deadline")]
    pub start: Option<Duration>,
    /// At most this long running, per attempt; then the attempt fails and is not retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::deadline")]
    pub run: Option<Duration>,
    /// No output and no step from any replica for this long; then the attempt fails.
    /// Left out: silence is flagged and nothing is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::deadline")]
    pub silence: Option<Duration>,
}

/// How numbers are caught from what replicas print.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {
    /// `false` turns catching off; posting by REST still works.
    #[serde(default = "yes")]
    pub catch: bool,
    /// An own regular expression with named groups: a group `step`, and one per series.
    /// Left out: `key=value` pairs with a `step`, and JSON lines with a `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "forms::metric_pattern")]
    pub pattern: Option<String>,
    /// The last step, so that progress and time left can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_i64))]
    pub total_steps: Option<u64>,
}

fn yes() -> bool {
    true
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            catch: true,
            pattern: None,
            total_steps: None,
        }
    }
}

/// Checkpoints: how they are asked for. They are reported by REST or by a printed line
/// `checkpoint step=120 path=/where/it/lies`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoints {
    /// The signal that asks for one before a stop: `USR1`, `USR2`, `HUP` or `INT`. Left out: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<CheckpointSignal>,
    /// How long a stop waits for the checkpoint that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum CheckpointSignal {
    Usr1,
    Usr2,
    Hup,
    Int,
}

/// How an attempt is ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stop {
    /// Between SIGTERM and SIGKILL.
    #[serde(default = "grace")]
    pub grace: Duration,
}

fn grace() -> Duration {
    Duration::seconds(30)
}

impl Default for Stop {
    fn default() -> Self {
        Self { grace: grace() }
    }
}

impl JobDocument {
    /// Every `secretRef` with its path, such as `roles[0].env.KEY.secretRef`.
    pub fn secret_refs(&self) -> Vec<(String, &SecretRef)> {
        fn of_env<'d>(prefix: &str, env: &'d BTreeMap<String, EnvValue>) -> Vec<(String, &'d SecretRef)> {
            let of_value = |(name, value): (&String, &'d EnvValue)| match value {
                EnvValue::Secret { secret_ref } => Some((format!("{prefix}env.{name}.secretRef"), secret_ref)),
                EnvValue::Value(_) => None,
            };
            env.iter().filter_map(of_value).collect()
        }
        let mut found = of_env("", &self.env);
        for (index, role) in self.roles.iter().enumerate() {
            found.extend(of_env(&format!("roles[{index}]."), &role.env));
            for (place, volume) in role.volumes.iter().enumerate() {
                if let VolumeSource::SecretRef(secret_ref) = &volume.source {
                    found.push((format!("roles[{index}].volumes[{place}].source.secretRef"), secret_ref));
                }
            }
        }
        found
    }

    pub fn total_replicas(&self) -> u32 {
        self.roles.iter().map(|role| role.replicas).sum()
    }
}
