//! What holds whatever happens: thousands of lives of random jobs in a random world, from printed seeds.
//!
//! The world is fair in two things only: a stopped process ends within its grace, and a worker that is gone comes
//! back. Everything else may happen: ranks that fail, vanish or hang, a blind worker, wishes at any moment, looks
//! that come late.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;

use super::{
    Decision, Owner, Sight, Step,
    world::{Records, document, incarnation, start},
};
use crate::{
    model::{
        AttemptPhase, Exit, Observed, ObservedReplica, Outcome, Phase, ReplicaKey, ReplicaPhase, ReplicaState, Wanted,
    },
    plan::chance::Chance,
};

const LIVES: u64 = 2_000;

#[test]
fn every_life_ends_and_breaks_no_rule_on_its_way() {
    let mut ends = std::collections::BTreeMap::<String, u32>::new();
    for seed in 1..=LIVES {
        let mut life = World::born(seed);
        let end = life.live();
        *ends.entry(end).or_default() += 1;
    }
    // The generator is worth something only if it reaches every end.
    for phase in ["succeeded", "failed", "cancelled"] {
        assert!(ends.get(phase).is_some_and(|&count| count > 50), "{ends:?}");
    }
}

/// One process of the simulated runtime.
struct Process {
    key: ReplicaKey,
    rank: u32,
    state: ReplicaState,
    started_at: Option<DateTime<Utc>>,
    /// What it will do by itself, and when.
    starts_at: DateTime<Utc>,
    ends_at: DateTime<Utc>,
    ending: ReplicaState,
    stop_by: Option<DateTime<Utc>>,
}

struct World {
    seed: u64,
    chance: Chance,
    now: DateTime<Utc>,
    records: Records,
    processes: Vec<Process>,
    blind_until: DateTime<Utc>,
}

impl World {
    fn born(seed: u64) -> Self {
        let mut chance = Chance::of(seed);
        let mut text = json!({
            "roles": [
                { "name": "master", "command": ["x"] },
                { "name": "worker", "replicas": chance.between(1, 4), "command": ["x"] },
            ],
            "deadlines": { "queue": "10m", "start": "3m", "run": "20m", "silence": "5m" },
            "restart": { "max": chance.between(0, 3), "backoff": "7s" },
        });
        if chance.one_in(3) {
            text["checkpoints"] = json!({ "signal": "USR1", "wait": "40s" });
        }
        if chance.one_in(6) {
            text["framework"] = json!("mpi");
            text["roles"][0]["name"] = json!("launcher");
        }
        if chance.one_in(8) {
            text["restart"]["owner"] = json!("torchelastic");
        }
        Self {
            seed,
            now: start(),
            records: Records::submitted(document(text)),
            processes: Vec::new(),
            blind_until: start(),
            chance,
        }
    }

    fn live(&mut self) -> String {
        let mut give_up = 0;
        for round in 0..4_000 {
            if round == 300 && matches!(self.records.wanted, Wanted::Run | Wanted::Suspend) {
                // A person may keep a job suspended for ever; this one makes up their mind.
                self.records.wanted = if self.chance.one_in(2) {
                    Wanted::Run
                } else {
                    Wanted::Cancel
                };
                give_up = round;
            }
            if give_up == 0 {
                self.maybe_wish();
            }
            self.world_moves();
            let decision = self.look();
            if decision.owner == Owner::Nobody {
                return self.records.phase.to_string();
            }
            self.time_passes(&decision);
            if self.records.phase == Phase::Queued && self.chance.one_in(4) {
                let due = self.records.not_before.unwrap_or(self.now);
                if due <= self.now && self.records.wanted == Wanted::Run {
                    self.records.admit(self.now);
                    self.processes.clear();
                }
            }
        }
        panic!("seed {}: not ended: {:?}", self.seed, self.records);
    }

    /// Decides, holds the decision against the rules, and carries it out.
    fn look(&mut self) -> Decision {
        let observed = self.observe();
        let alive = self
            .records
            .attempts
            .last()
            .is_some_and(|attempt| attempt.phase != AttemptPhase::Ended);
        let sight = alive.then(|| match self.now < self.blind_until {
            true => Sight::NotObservable { since: self.now },
            false => Sight::Seen {
                observed: &observed,
                since: self.blind_until,
            },
        });
        let decision = self.records.decide(sight, None, self.now);
        let seed = self.seed;
        assert_eq!(
            decision,
            self.records.decide(sight, None, self.now),
            "seed {seed}: not deterministic"
        );
        self.check_steps(&decision, &observed);

        let before = self.records.clone();
        self.records.apply(&decision.steps, self.now);
        let once = self.records.clone();
        self.records.apply(&decision.steps, self.now);
        assert_eq!(
            once, self.records,
            "seed {seed}: applied twice differs: {:?}",
            decision.steps
        );

        let again = self.records.decide(sight, None, self.now);
        let more: Vec<&Step> = again.steps.iter().filter(|step| !step.is_act()).collect();
        assert!(
            more.is_empty(),
            "seed {seed}: {before:?}\nthen {:?}\nthen still {more:?}",
            decision.steps
        );
        self.check_owner(&again);

        for step in &decision.steps {
            self.act(step);
        }
        again
    }

    fn check_steps(&self, decision: &Decision, observed: &Observed) {
        let seed = self.seed;
        let mut phase = self.records.phase;
        for step in &decision.steps {
            match step {
                Step::MoveJob { phase: next, at, .. } => {
                    assert!(phase.may_become(*next), "seed {seed}: {phase} to {next}");
                    assert!(*at <= self.now, "seed {seed}: a job moved in the future");
                    phase = *next;
                }
                Step::AttemptRuns { at } => {
                    let attempt = self.records.attempts.last().unwrap();
                    assert_eq!(attempt.phase, AttemptPhase::Starting, "seed {seed}");
                    assert!(
                        (attempt.admitted_at..=self.now).contains(at),
                        "seed {seed}: runs at {at}"
                    );
                }
                Step::MoveReplica { key, .. } => {
                    let attempt = self.records.attempts.last().unwrap();
                    let known = attempt.replicas.iter().find(|replica| &replica.key == key).unwrap();
                    assert!(!known.phase.is_final(), "seed {seed}: {key} left {}", known.phase);
                }
                Step::EndAttempt(end) => {
                    let alive = observed
                        .replicas
                        .iter()
                        .any(|one| matches!(one.state, ReplicaState::Running | ReplicaState::Starting));
                    assert!(!alive, "seed {seed}: ended over living processes");
                    let attempt = self.records.attempts.last().unwrap();
                    assert!(
                        (attempt.admitted_at..=self.now).contains(&end.at),
                        "seed {seed}: ended at {}",
                        end.at
                    );
                    let bad = matches!(end.outcome, Outcome::Failed | Outcome::Lost);
                    assert!(!end.message.is_empty() && (bad || end.outcome != Outcome::Failed));
                }
                Step::StartProcesses => {
                    let attempt = self.records.attempts.last().unwrap();
                    assert_ne!(
                        attempt.phase,
                        AttemptPhase::Stopping,
                        "seed {seed}: started while stopping"
                    );
                }
                _ => {}
            }
        }
        let stops = decision
            .steps
            .iter()
            .any(|step| matches!(step, Step::StopAttempt { .. }));
        let starts = decision.steps.contains(&Step::StartProcesses);
        assert!(!(stops && starts), "seed {seed}: starts what it stops");
    }

    /// Every state that is not final has somebody who moves it on.
    fn check_owner(&self, decision: &Decision) {
        let seed = self.seed;
        let owner = match self.records.phase {
            phase if phase.is_active() => Owner::Timer,
            Phase::Queued => Owner::Queue,
            Phase::Suspended => Owner::Person,
            _ => Owner::Nobody,
        };
        assert_eq!(decision.owner, owner, "seed {seed}: {}", self.records.phase);
        match decision.owner {
            Owner::Timer => assert!(decision.look_again_at.is_some_and(|at| at >= self.now), "seed {seed}"),
            // The queue's deadline needs a timer of its own.
            Owner::Queue => assert!(decision.look_again_at.is_some(), "seed {seed}"),
            Owner::Person | Owner::Nobody => {}
        }
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::StartProcesses if self.processes.is_empty() => {
                let replicas = self.records.attempts.last().unwrap().replicas.clone();
                self.processes = replicas
                    .into_iter()
                    .map(|one| self.process(one.key, one.rank))
                    .collect();
            }
            Step::StopProcesses => {
                for place in 0..self.processes.len() {
                    let by = self.now + self.chance.span(0, 30);
                    self.processes[place].stop_by.get_or_insert(by);
                }
            }
            Step::SignalCheckpoint { .. } if self.chance.one_in(2) => {
                let at = self.now + self.chance.span(0, 60);
                self.records.attempt().checkpoint_at = Some(at);
            }
            _ => {}
        }
    }

    fn process(&mut self, key: ReplicaKey, rank: u32) -> Process {
        let slowest_start = if self.chance.one_in(9) { 600 } else { 5 };
        let starts_at = self.now + self.chance.span(0, slowest_start);
        let longest_run = if self.chance.one_in(9) { 9_000 } else { 600 };
        let ends_at = starts_at + self.chance.span(0, longest_run);
        let code = if self.chance.one_in(4) {
            self.chance.between(1, 255) as i32
        } else {
            0
        };
        let exit = Exit {
            at: ends_at,
            code: Some(code),
            signal: None,
            oom: false,
            unknown: false,
            stop_requested: false,
        };
        let ending = match self.chance.between(0, 11) {
            0 => ReplicaState::Lost { message: "gone".into() },
            1 => ReplicaState::Ended(Exit {
                code: None,
                signal: Some(9),
                oom: true,
                ..exit
            }),
            2 => ReplicaState::Ended(Exit {
                code: None,
                unknown: true,
                ..exit
            }),
            3 => ReplicaState::StartFailed {
                reason: "r".into(),
                message: "m".into(),
                at: starts_at,
            },
            _ => ReplicaState::Ended(exit),
        };
        Process {
            key,
            rank,
            state: ReplicaState::Starting,
            started_at: None,
            starts_at,
            ends_at,
            ending,
            stop_by: None,
        }
    }

    fn world_moves(&mut self) {
        for process in &mut self.processes {
            if !matches!(process.state, ReplicaState::Starting | ReplicaState::Running) {
                continue;
            }
            let stop_first = process
                .stop_by
                .is_some_and(|at| at <= self.now && at <= process.ends_at);
            if stop_first {
                let at = process.stop_by.unwrap_or(self.now);
                process.started_at.get_or_insert(at.min(process.starts_at));
                process.state = ReplicaState::Ended(Exit {
                    at,
                    code: None,
                    signal: Some(15),
                    oom: false,
                    unknown: false,
                    stop_requested: true,
                });
            } else if matches!(process.ending, ReplicaState::StartFailed { .. }) && process.starts_at <= self.now {
                process.state = process.ending.clone();
            } else if process.ends_at <= self.now {
                process.started_at.get_or_insert(process.starts_at);
                process.state = process.ending.clone();
            } else if process.starts_at <= self.now {
                process.started_at.get_or_insert(process.starts_at);
                process.state = ReplicaState::Running;
            }
        }
        if self.chance.one_in(40) {
            self.blind_until = self.now + self.chance.span(0, 400);
        }
        if self.chance.one_in(3)
            && let Some(attempt) = self.records.attempts.last_mut()
            && let Some(replica) = attempt
                .replicas
                .iter_mut()
                .find(|one| one.phase == ReplicaPhase::Running)
        {
            replica.last_output_at = Some(self.now);
        }
    }

    fn observe(&self) -> Observed {
        let replicas = self.processes.iter().map(|process| ObservedReplica {
            key: process.key.clone(),
            incarnation: incarnation(process.rank),
            identity: None,
            state: process.state.clone(),
            started_at: process.started_at,
        });
        Observed {
            at: self.now,
            replicas: replicas.collect(),
        }
    }

    /// Wishes come at any moment; a cancel or delete is never taken back.
    fn maybe_wish(&mut self) {
        if !self.chance.one_in(25) || matches!(self.records.wanted, Wanted::Cancel | Wanted::Delete) {
            return;
        }
        self.records.wanted = match self.chance.between(0, 9) {
            0 => Wanted::Cancel,
            1 => Wanted::Delete,
            2..=4 => Wanted::Suspend,
            _ => Wanted::Run,
        };
    }

    /// To the next look, a little late as timers are, or not so far, as wake-ups are.
    fn time_passes(&mut self, decision: &Decision) {
        let due = decision.look_again_at.unwrap_or(self.now + Duration::seconds(60));
        let span = (due - self.now).clamp(Duration::seconds(1), Duration::seconds(60));
        let late = self.chance.span(0, 3);
        self.now += if self.chance.one_in(3) { span / 2 } else { span } + late;
    }
}
