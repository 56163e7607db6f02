//! For tests: records that steps are applied to, as the worker does it in one transaction.

use chrono::{DateTime, Duration, Utc};

use super::{AttemptFacts, Condition, Decision, JobFacts, Policy, Reason, ReplicaFacts, Sight, Step, decide};
use crate::{
    document::job::JobDocument,
    model::{
        AttemptPhase, Exit, IncarnationId, Observed, ObservedReplica, Outcome, Phase, ReplicaKey, ReplicaPhase,
        ReplicaState, Wanted,
    },
    plan::{hang::Judgement, retry},
};

pub fn start() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000)
}

pub fn after(seconds: i64) -> DateTime<Utc> {
    start() + Duration::seconds(seconds)
}

pub fn document(text: serde_json::Value) -> JobDocument {
    let mut whole = serde_json::json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "train",
        "roles": [{ "name": "worker", "replicas": 2, "command": ["python3", "train.py"] }],
    });
    for (key, value) in text.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    serde_json::from_value(whole).expect("a test's document is clean")
}

/// One job's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    pub document: JobDocument,
    pub wanted: Wanted,
    pub phase: Phase,
    pub queued_at: DateTime<Utc>,
    pub not_before: Option<DateTime<Utc>>,
    pub waited_before: Duration,
    pub failures_before: u32,
    pub stale_since: Option<DateTime<Utc>>,
    pub hidden: bool,
    pub conditions: Vec<Condition>,
    pub attempts: Vec<AttemptFacts>,
    pub ended_at: Option<DateTime<Utc>>,
}

impl Records {
    pub fn submitted(document: JobDocument) -> Self {
        Self {
            document,
            wanted: Wanted::Run,
            phase: Phase::Queued,
            queued_at: start(),
            not_before: None,
            waited_before: Duration::zero(),
            failures_before: 0,
            stale_since: None,
            hidden: false,
            conditions: Vec::new(),
            attempts: Vec::new(),
            ended_at: None,
        }
    }

    /// What admission's transaction does.
    pub fn admit(&mut self, now: DateTime<Utc>) {
        assert_eq!(self.phase, Phase::Queued);
        self.phase = Phase::Starting;
        self.waited_before += retry::waited(self.queued_at, self.not_before, now);
        self.not_before = None;
        let mut replicas = Vec::new();
        for role in &self.document.roles {
            for index in 0..role.replicas {
                let rank = replicas.len() as u32;
                replicas.push(waiting(&role.name, index, rank));
            }
        }
        self.attempts.push(AttemptFacts {
            number: self.attempts.len() as u32 + 1,
            phase: AttemptPhase::Starting,
            admitted_at: now,
            running_at: None,
            stopping_at: None,
            stop_cause: None,
            checkpoint_asked_at: None,
            checkpoint_at: None,
            stop_asked_at: None,
            end: None,
            replicas,
        });
    }

    pub fn decide(&self, sight: Option<Sight<'_>>, hang: Option<&Judgement>, now: DateTime<Utc>) -> Decision {
        let job = JobFacts {
            wanted: self.wanted,
            phase: self.phase,
            queued_at: self.queued_at,
            not_before: self.not_before,
            waited_before: self.waited_before,
            failures_before: self.failures_before,
            stale_since: self.stale_since,
            hidden: self.hidden,
            conditions: &self.conditions,
            policy: Policy::of(&self.document),
        };
        decide(&job, self.attempts.last(), sight, hang, now)
    }

    pub fn apply(&mut self, steps: &[Step], now: DateTime<Utc>) {
        for step in steps {
            self.apply_one(step, now);
        }
    }

    pub fn attempt(&mut self) -> &mut AttemptFacts {
        self.attempts.last_mut().expect("there is an attempt")
    }

    fn apply_one(&mut self, step: &Step, now: DateTime<Utc>) {
        match step.clone() {
            Step::MoveJob { phase, at, .. } => {
                if phase.is_final() {
                    self.ended_at = self.ended_at.or(Some(at));
                }
                self.phase = phase;
            }
            Step::AttemptRuns { at } => {
                self.attempt().phase = AttemptPhase::Running;
                self.attempt().running_at = Some(at);
            }
            Step::MoveReplica {
                key,
                phase,
                incarnation,
                started_at,
                ended_at,
                exit,
                message,
            } => {
                let replica = self
                    .attempt()
                    .replicas
                    .iter_mut()
                    .find(|one| one.key == key)
                    .expect("a known replica");
                *replica = ReplicaFacts {
                    phase,
                    incarnation,
                    started_at,
                    ended_at,
                    exit,
                    message,
                    ..replica.clone()
                };
            }
            Step::StartProcesses => {}
            Step::StopAttempt { cause, at, .. } => {
                let attempt = self.attempt();
                attempt.phase = AttemptPhase::Stopping;
                attempt.stop_cause = Some(cause);
                attempt.stopping_at = attempt.stopping_at.or(Some(at));
            }
            Step::SignalCheckpoint { .. } => {
                let attempt = self.attempt();
                attempt.checkpoint_asked_at = attempt.checkpoint_asked_at.or(Some(now));
            }
            Step::StopProcesses => {
                let attempt = self.attempt();
                attempt.stop_asked_at = attempt.stop_asked_at.or(Some(now));
            }
            Step::EndAttempt(end) => {
                let attempt = self.attempt();
                attempt.phase = AttemptPhase::Ended;
                // Counted from the rows in the database, so that applying it twice counts once.
                attempt.end = Some(end);
            }
            Step::Requeue { at, not_before } => {
                self.queued_at = at;
                self.not_before = not_before;
            }
            Step::SetCondition(condition) => {
                self.conditions.retain(|known| known.kind != condition.kind);
                self.conditions.push(condition);
            }
            Step::ClearCondition(kind) => self.conditions.retain(|known| known.kind != kind),
            Step::MarkSeen { stale_since } => self.stale_since = stale_since,
            Step::HideJob => self.hidden = true,
        }
        let ended_before = self.attempts.len().saturating_sub(usize::from(self.phase.is_active()));
        self.failures_before = self.attempts[..ended_before]
            .iter()
            .filter_map(|attempt| attempt.end.as_ref())
            .filter(|end| matches!(end.outcome, Outcome::Failed | Outcome::Lost))
            .count() as u32;
    }
}

fn waiting(role: &str, index: u32, rank: u32) -> ReplicaFacts {
    ReplicaFacts {
        key: ReplicaKey {
            role: role.to_owned(),
            index,
        },
        rank,
        phase: ReplicaPhase::Waiting,
        incarnation: Some(incarnation(rank)),
        started_at: None,
        ended_at: None,
        exit: None,
        message: None,
        last_output_at: None,
        step: None,
        step_at: None,
        evidence: None,
    }
}

pub fn incarnation(rank: u32) -> IncarnationId {
    IncarnationId(uuid::Uuid::from_u128(u128::from(rank) + 1))
}

/// An observation of `worker-0`, `worker-1` ... in these states.
pub fn observed(at: DateTime<Utc>, states: &[ReplicaState]) -> Observed {
    let replicas = states.iter().enumerate().map(|(rank, state)| ObservedReplica {
        key: ReplicaKey {
            role: "worker".into(),
            index: rank as u32,
        },
        incarnation: incarnation(rank as u32),
        identity: None,
        state: state.clone(),
        started_at: (!matches!(state, ReplicaState::Starting | ReplicaState::StartFailed { .. })).then_some(at),
    });
    Observed {
        at,
        replicas: replicas.collect(),
    }
}

pub fn exited(at: DateTime<Utc>, code: i32) -> ReplicaState {
    ReplicaState::Ended(Exit {
        at,
        code: Some(code),
        signal: None,
        oom: false,
        unknown: false,
        stop_requested: false,
    })
}

pub fn killed(at: DateTime<Utc>, signal: i32) -> ReplicaState {
    ReplicaState::Ended(Exit {
        at,
        code: None,
        signal: Some(signal),
        oom: false,
        unknown: false,
        stop_requested: false,
    })
}

/// Ended by our SIGTERM.
pub fn stopped(at: DateTime<Utc>) -> ReplicaState {
    ReplicaState::Ended(Exit {
        at,
        code: None,
        signal: Some(15),
        oom: false,
        unknown: false,
        stop_requested: true,
    })
}

/// A job of two workers, admitted at once.
pub fn admitted(text: serde_json::Value) -> Records {
    let mut records = Records::submitted(document(text));
    records.admit(start());
    records
}

/// The same, with both ranks up at second 1.
pub fn running(text: serde_json::Value) -> Records {
    let mut records = admitted(text);
    look(&mut records, 1, &[ReplicaState::Running, ReplicaState::Running]);
    assert_eq!(records.phase, Phase::Running);
    records
}

/// One look at `seconds`, its steps applied.
pub fn look(records: &mut Records, seconds: i64, states: &[ReplicaState]) -> Vec<Step> {
    let seen = observed(after(seconds), states);
    let sight = Sight::Seen {
        observed: &seen,
        since: start(),
    };
    let decision = records.decide(Some(sight), None, after(seconds));
    records.apply(&decision.steps, after(seconds));
    decision.steps
}

pub fn end(records: &Records) -> (Outcome, Reason) {
    let end = records.attempts.last().unwrap().end.as_ref().unwrap();
    (end.outcome, end.reason)
}

pub fn phases(records: &Records) -> Vec<ReplicaPhase> {
    records
        .attempts
        .last()
        .unwrap()
        .replicas
        .iter()
        .map(|replica| replica.phase)
        .collect()
}
