//! A runtime in memory. Replicas run when they are started and end when a test, or a stop, says so.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use trainyard::{
    clock::{Clock, FakeClock},
    runtimes::{OutputRef, OutputState, ReplicaUsage, Runtime, RuntimeError},
};
use trainyard_core::model::{AttemptId, Exit, Launch, LogStream, Observed, ObservedReplica, ReplicaKey, ReplicaState};

/// How acts behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Each act once.
    Plain,
    /// Each act is done twice, as when a worker was killed after it and another one repeats it.
    Twice,
    /// Each act is done and then reported as failed, the first time: nobody saw that it was done.
    Unseen,
}

pub struct Simulated {
    clock: Arc<FakeClock>,
    manner: Manner,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    attempts: BTreeMap<AttemptId, Attempt>,
    /// New replicas stay in `Starting`.
    hold_starts: bool,
    /// Replicas pay no attention to SIGTERM and end with their document's grace.
    stubborn: bool,
    failed_acts: Vec<String>,
    /// Starts of jobs with such a name never end.
    stuck: Option<String>,
}

pub struct Attempt {
    pub launch: Launch,
    pub replicas: Vec<Replica>,
    pub signals: Vec<i32>,
    pub stop_asked: Option<DateTime<Utc>>,
}

pub struct Replica {
    pub key: ReplicaKey,
    pub state: ReplicaState,
    pub started_at: Option<DateTime<Utc>>,
    pub output: [Vec<u8>; 2],
    /// The kernel's letter.
    pub letter: Option<char>,
}

impl Replica {
    fn is_over(&self) -> bool {
        !matches!(self.state, ReplicaState::Starting | ReplicaState::Running)
    }
}

impl Simulated {
    pub fn new(clock: Arc<FakeClock>, manner: Manner) -> Self {
        Self {
            clock,
            manner,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hold_starts(&self, hold: bool) {
        let mut state = self.state();
        state.hold_starts = hold;
        let now = self.clock.now();
        if !hold {
            for replica in state.attempts.values_mut().flat_map(|attempt| &mut attempt.replicas) {
                if replica.state == ReplicaState::Starting {
                    replica.state = ReplicaState::Running;
                    replica.started_at = Some(now);
                }
            }
        }
    }

    pub fn never_starts(&self, name: &str) {
        self.state().stuck = Some(name.to_owned());
    }

    pub fn make_stubborn(&self) {
        self.state().stubborn = true;
    }

    /// Looks into an attempt of a job, by number.
    pub fn with<T>(&self, job: &str, number: u32, look: impl FnOnce(&mut Attempt) -> T) -> T {
        let mut state = self.state();
        let found = state
            .attempts
            .values_mut()
            .find(|attempt| attempt.launch.job.to_string() == job && attempt.launch.number == number);
        look(found.unwrap_or_else(|| panic!("{job} has no attempt {number} in the runtime")))
    }

    pub fn print(&self, job: &str, number: u32, rank: usize, text: &str) {
        self.with(job, number, |attempt| {
            attempt.replicas[rank].output[0].extend_from_slice(text.as_bytes())
        });
    }

    pub fn exit(&self, job: &str, number: u32, rank: usize, code: i32) {
        let now = self.clock.now();
        self.with(job, number, |attempt| {
            attempt.replicas[rank].state = ReplicaState::Ended(exit(now, Some(code), None, false));
        });
    }

    pub fn exit_all(&self, job: &str, number: u32, code: i32) {
        let ranks = self.with(job, number, |attempt| attempt.replicas.len());
        (0..ranks).for_each(|rank| self.exit(job, number, rank, code));
    }

    pub fn set_letter(&self, job: &str, number: u32, rank: usize, letter: char) {
        self.with(job, number, |attempt| attempt.replicas[rank].letter = Some(letter));
    }

    /// How many processes run now.
    pub fn running(&self) -> usize {
        let state = self.state();
        state
            .attempts
            .values()
            .flat_map(|attempt| &attempt.replicas)
            .filter(|replica| !replica.is_over())
            .count()
    }

    /// Does an act in the world's manner.
    fn act(&self, name: String, act: impl Fn(&mut State, DateTime<Utc>)) -> Result<(), RuntimeError> {
        let now = self.clock.now();
        let mut state = self.state();
        act(&mut state, now);
        match self.manner {
            Manner::Plain => {}
            Manner::Twice => act(&mut state, now),
            Manner::Unseen if !state.failed_acts.contains(&name) => {
                state.failed_acts.push(name);
                return Err(RuntimeError::Retry("nobody saw whether it was done".to_owned()));
            }
            Manner::Unseen => {}
        }
        Ok(())
    }
}

fn exit(at: DateTime<Utc>, code: Option<i32>, signal: Option<i32>, stop_requested: bool) -> Exit {
    Exit {
        at,
        code,
        signal,
        oom: false,
        unknown: false,
        stop_requested,
    }
}

#[async_trait]
impl Runtime for Simulated {
    async fn start(&self, launch: &Launch) -> Result<(), RuntimeError> {
        if self.state().stuck.as_deref() == Some(&launch.job_name) {
            std::future::pending::<()>().await;
        }
        self.act(format!("start {}", launch.attempt), |state, now| {
            let held = state.hold_starts;
            state.attempts.entry(launch.attempt).or_insert_with(|| Attempt {
                launch: launch.clone(),
                replicas: (launch.replicas.iter())
                    .map(|replica| Replica {
                        key: replica.key.clone(),
                        state: if held {
                            ReplicaState::Starting
                        } else {
                            ReplicaState::Running
                        },
                        started_at: (!held).then_some(now),
                        output: Default::default(),
                        letter: None,
                    })
                    .collect(),
                signals: Vec::new(),
                stop_asked: None,
            });
        })
    }

    async fn observe(&self, attempt: AttemptId) -> Result<Observed, RuntimeError> {
        let now = self.clock.now();
        let mut state = self.state();
        let replicas = state.attempts.get_mut(&attempt).map(|attempt| {
            let grace = std::time::Duration::from_secs(attempt.launch.document.stop.grace.as_seconds());
            let killed = attempt
                .stop_asked
                .is_some_and(|at| (now - at).to_std().unwrap_or_default() >= grace);
            let observed = attempt
                .replicas
                .iter_mut()
                .zip(&attempt.launch.replicas)
                .map(|(replica, launched)| {
                    if killed && !replica.is_over() {
                        replica.state = ReplicaState::Ended(exit(now, None, Some(9), true));
                    }
                    ObservedReplica {
                        key: replica.key.clone(),
                        incarnation: launched.incarnation,
                        identity: None,
                        state: replica.state.clone(),
                        started_at: replica.started_at,
                    }
                });
            observed.collect()
        });
        Ok(Observed {
            at: now,
            replicas: replicas.unwrap_or_default(),
        })
    }

    async fn signal(&self, attempt: AttemptId, signal: i32) -> Result<(), RuntimeError> {
        self.act(format!("signal {attempt}"), |state, _| {
            if let Some(attempt) = state.attempts.get_mut(&attempt) {
                attempt.signals.push(signal);
            }
        })
    }

    async fn stop(&self, attempt: AttemptId) -> Result<(), RuntimeError> {
        self.act(format!("stop {attempt}"), |state, now| {
            let stubborn = state.stubborn;
            if let Some(attempt) = state.attempts.get_mut(&attempt) {
                attempt.stop_asked.get_or_insert(now);
                for replica in attempt.replicas.iter_mut().filter(|replica| !replica.is_over()) {
                    match replica.state {
                        ReplicaState::Starting => {
                            replica.state = ReplicaState::StartFailed {
                                reason: "stopped".to_owned(),
                                message: "the attempt was asked to end before this replica had started".to_owned(),
                                at: now,
                            };
                        }
                        _ if !stubborn => replica.state = ReplicaState::Ended(exit(now, None, Some(15), true)),
                        _ => {}
                    }
                }
            }
        })
    }

    async fn outputs(&self, attempt: AttemptId) -> Result<Vec<OutputState>, RuntimeError> {
        let state = self.state();
        let Some(found) = state.attempts.get(&attempt) else {
            return Ok(Vec::new());
        };
        let replicas = found.replicas.iter().zip(&found.launch.replicas);
        Ok(replicas
            .flat_map(|(replica, launched)| {
                [LogStream::Stdout, LogStream::Stderr]
                    .into_iter()
                    .zip(&replica.output)
                    .map(|(stream, bytes)| OutputState {
                        output: OutputRef {
                            attempt,
                            key: replica.key.clone(),
                            incarnation: launched.incarnation,
                            stream,
                        },
                        length: bytes.len() as u64,
                        ended: replica.is_over(),
                        dropped: Vec::new(),
                    })
            })
            .collect())
    }

    async fn read(&self, output: &OutputRef, offset: u64, limit: usize) -> Result<Bytes, RuntimeError> {
        let state = self.state();
        let attempt = state.attempts.get(&output.attempt);
        let replica = attempt.and_then(|attempt| attempt.replicas.iter().find(|replica| replica.key == output.key));
        let Some(replica) = replica else {
            return Ok(Bytes::new());
        };
        let bytes = &replica.output[usize::from(output.stream == LogStream::Stderr)];
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        Ok(Bytes::copy_from_slice(&rest[..rest.len().min(limit)]))
    }

    async fn give_back(&self, _: &OutputRef, _: u64) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn release(&self, _: AttemptId) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, RuntimeError> {
        Ok(self.state().attempts.keys().copied().collect())
    }

    async fn look(&self) -> Result<Value, RuntimeError> {
        Ok(json!({ "processes": self.running() }))
    }

    async fn usage(&self, attempt: AttemptId) -> Result<Vec<(ReplicaKey, ReplicaUsage)>, RuntimeError> {
        let state = self.state();
        let replicas = state.attempts.get(&attempt).map(|attempt| &attempt.replicas);
        Ok(replicas
            .into_iter()
            .flatten()
            .map(|replica| {
                let usage = ReplicaUsage {
                    state: replica.letter,
                    ..ReplicaUsage::default()
                };
                (replica.key.clone(), usage)
            })
            .collect())
    }
}
