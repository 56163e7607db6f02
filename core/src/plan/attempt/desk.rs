//! Where one decision is put together: the steps so far, the job's phase as they leave it, and the next look.

use chrono::{DateTime, Duration, Utc};

use super::{
    AttemptFacts, Condition, ConditionKind, Decision, JobFacts, Owner, Reason, Step, StopCause, decide::LOOK_BLIND, end,
};
use crate::{
    model::{AttemptPhase, ConditionStatus, Phase, Severity, Wanted},
    plan::{retry, words},
};

/// The steps so far, and the job's phase as they leave it.
pub(super) struct Desk<'a> {
    pub job: &'a JobFacts<'a>,
    pub now: DateTime<Utc>,
    pub phase: Phase,
    pub steps: Vec<Step>,
    look: Option<DateTime<Utc>>,
}

impl<'a> Desk<'a> {
    pub fn new(job: &'a JobFacts<'a>, now: DateTime<Utc>) -> Self {
        Self {
            job,
            now,
            phase: job.phase,
            steps: Vec::new(),
            look: None,
        }
    }

    /// Moves the job where that is legal. Where it is not (records that contradict each other), the job stays: the
    /// attempt's own end is recorded all the same, and the next look starts from there.
    pub fn move_job(&mut self, phase: Phase, reason: Reason, message: String, at: DateTime<Utc>) {
        if self.phase.may_become(phase) {
            self.phase = phase;
            self.steps.push(Step::MoveJob {
                phase,
                reason,
                message,
                at: at.min(self.now),
            });
        }
    }

    /// The job waits in the queue since `at`; the queue's deadline applies at once.
    pub fn requeue(&mut self, reason: Reason, message: String, at: DateTime<Utc>, not_before: Option<DateTime<Utc>>) {
        self.move_job(Phase::Queued, reason, message, at);
        if self.phase == Phase::Queued {
            self.steps.push(Step::Requeue { at, not_before });
            self.wait_in_queue(at, not_before);
        }
    }

    pub fn wait_in_queue(&mut self, queued_at: DateTime<Utc>, not_before: Option<DateTime<Utc>>) {
        let Some(deadline) = self.job.policy.deadlines.queue else {
            return;
        };
        let left = deadline.as_chrono() - self.job.waited_before;
        if left <= retry::waited(queued_at, not_before, self.now) && not_before.is_none_or(|due| due <= self.now) {
            let message = format!(
                "It did not start within {} in the queue (deadlines.queue).",
                words::duration(deadline.as_chrono())
            );
            self.move_job(Phase::Failed, Reason::QueueDeadline, message, self.now);
        } else {
            let from = not_before.map_or(queued_at, |due| due.max(queued_at));
            self.look_by((from + left).max(from));
        }
    }

    pub fn look_by(&mut self, at: DateTime<Utc>) {
        self.look = Some(self.look.map_or(at, |look| look.min(at)));
    }

    fn look_in(&mut self, span: Duration) {
        self.look_by(self.now + span);
    }

    pub fn mark_seen(&mut self, stale_since: Option<DateTime<Utc>>) {
        if self.job.stale_since.is_some() != stale_since.is_some() {
            self.steps.push(Step::MarkSeen { stale_since });
        }
    }

    pub fn set_condition(&mut self, kind: ConditionKind, severity: Severity, reason: String, message: String) {
        let told =
            |known: &Condition| known.kind == kind && known.status == ConditionStatus::True && known.reason == reason;
        if !self.job.conditions.iter().any(told) {
            self.steps.push(Step::SetCondition(Condition {
                kind,
                status: ConditionStatus::True,
                severity,
                reason,
                message,
            }));
        }
    }

    pub fn clear_condition(&mut self, kind: ConditionKind) {
        if self.job.conditions.iter().any(|known| known.kind == kind) {
            self.steps.push(Step::ClearCondition(kind));
        }
    }

    pub fn stop_attempt(&mut self, attempt: &mut AttemptFacts, cause: StopCause, message: String) {
        attempt.phase = AttemptPhase::Stopping;
        attempt.stop_cause = Some(cause);
        attempt.stopping_at = attempt.stopping_at.or(Some(self.now));
        self.steps.push(Step::StopAttempt {
            cause,
            message: message.clone(),
            at: self.now,
        });
        self.move_job(Phase::Stopping, end::reason_of_cause(cause), message, self.now);
    }

    /// Closes the decision of a job whose attempt lives.
    pub fn timed(mut self, look: Duration) -> Decision {
        self.look_in(look);
        Decision {
            steps: self.steps,
            // A deadline that has just passed must not make the timer spin.
            look_again_at: self.look.map(|at| at.max(self.now)),
            owner: Owner::Timer,
        }
    }

    /// Closes the decision of a job without a live attempt.
    pub fn settled(mut self) -> Decision {
        if self.phase.is_final() && self.job.wanted == Wanted::Delete && !self.job.hidden {
            self.steps.push(Step::HideJob);
            return self.timed(LOOK_BLIND);
        }
        let owner = match self.phase {
            Phase::Queued => Owner::Queue,
            Phase::Suspended => Owner::Person,
            phase if phase.is_final() => Owner::Nobody,
            // Records contradict each other; the timer keeps looking.
            _ => return self.timed(LOOK_BLIND),
        };
        let look_again_at = self.look.filter(|_| owner == Owner::Queue).map(|at| at.max(self.now));
        Decision {
            steps: self.steps,
            look_again_at,
            owner,
        }
    }
}
