//! Cancel, suspend, resume, delete, priority: the wish is written and a worker is poked. Asking twice is asking once.

use serde_json::{Value, json};
use trainyard_core::model::{JobId, TeamRole, Wanted};

use super::{Actions, Ask, FieldFault, Refusal, despite_collisions, found};
use crate::db::{
    DbError, Tx, audit,
    events::{self, NewEvent, Subject},
    jobs_read::{self, JobDetail},
    jobs_wish::{self, Wish},
    tasks::{self, TaskKind},
};

/// What a person may wish of a job that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Cancel,
    Suspend,
    Resume,
    /// Archive, then hide. A running job is ended first.
    Delete,
}

impl Verb {
    fn wanted(self) -> Wanted {
        match self {
            Verb::Cancel => Wanted::Cancel,
            Verb::Suspend => Wanted::Suspend,
            Verb::Resume => Wanted::Run,
            Verb::Delete => Wanted::Delete,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Suspend => "suspend",
            Verb::Resume => "resume",
            Verb::Delete => "delete",
        }
    }

    fn audit(self) -> &'static str {
        match self {
            Verb::Cancel => "job.cancel",
            Verb::Suspend => "job.suspend",
            Verb::Resume => "job.resume",
            Verb::Delete => "job.delete",
        }
    }
}

/// Whether the wish has to be written. `false`: it stands already, or what it asks for is so.
fn decide(verb: Verb, wish: &Wish) -> Result<bool, Refusal> {
    if wish.wanted == verb.wanted() && !(verb == Verb::Resume && wish.phase.is_final()) {
        return Ok(false);
    }
    match verb {
        Verb::Delete => Ok(true),
        _ if wish.phase.is_final() => Err(Refusal::Ended { phase: wish.phase }),
        // Nothing takes back the wish for an end.
        _ if wish.wanted == Wanted::Delete => Err(Refusal::Superseded { wanted: wish.wanted }),
        Verb::Suspend | Verb::Resume if wish.wanted == Wanted::Cancel => {
            Err(Refusal::Superseded { wanted: wish.wanted })
        }
        Verb::Cancel | Verb::Suspend | Verb::Resume => Ok(true),
    }
}

impl Actions {
    /// Writes the wish; workers make the phase follow. `if_match`: only if the job still is what the caller read.
    pub async fn wish(
        &self,
        ask: Ask<'_>,
        job: JobId,
        verb: Verb,
        if_match: Option<&str>,
    ) -> Result<JobDetail, Refusal> {
        despite_collisions(|| self.try_wish(ask, job, verb, if_match)).await?;
        self.wake.subject(job.0);
        found(
            "job",
            job,
            jobs_read::get(&self.db, &ask.caller.actor.scope(), job).await,
        )
    }

    async fn try_wish(&self, ask: Ask<'_>, job: JobId, verb: Verb, if_match: Option<&str>) -> Result<(), Refusal> {
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let wish = self.lock(&mut tx, ask, job, if_match).await?;
        if decide(verb, &wish)? {
            jobs_wish::write(&mut tx, &wish, verb.wanted(), now).await?;
            // A resumed job waits again, and a waiting one that leaves may let others in.
            if let Some(cluster) = wish.cluster {
                tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now).await?;
            }
            let message = format!("{} asked to {} it", ask.caller.actor.name, verb.word());
            let data = json!({ "from": wish.wanted, "to": verb.wanted(), "verb": verb.word() });
            self.tell(&mut tx, ask, &wish, ("job.wanted", verb.audit()), &message, data)
                .await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        Ok(())
    }

    /// Moves a job within its queue. `if_match` is demanded, since two people may pull in two directions.
    pub async fn set_priority(
        &self,
        ask: Ask<'_>,
        job: JobId,
        priority: i32,
        if_match: &str,
    ) -> Result<JobDetail, Refusal> {
        if !(-1000..=1000).contains(&priority) {
            return Err(Refusal::fault(
                FieldFault::new("priority", "out_of_range", "a priority lies between -1000 and 1000")
                    .value(priority.to_string())
                    .hint("higher starts first; 0 is usual"),
            ));
        }
        despite_collisions(|| self.try_set_priority(ask, job, priority, if_match)).await?;
        self.wake.subject(job.0);
        found(
            "job",
            job,
            jobs_read::get(&self.db, &ask.caller.actor.scope(), job).await,
        )
    }

    async fn try_set_priority(&self, ask: Ask<'_>, job: JobId, priority: i32, if_match: &str) -> Result<(), Refusal> {
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let wish = self.lock(&mut tx, ask, job, Some(if_match)).await?;
        if wish.phase.is_final() {
            return Err(Refusal::Ended { phase: wish.phase });
        }
        if wish.priority != priority {
            jobs_wish::set_priority(&mut tx, job, priority).await?;
            match wish.cluster {
                Some(cluster) => tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now).await?,
                None => tasks::poke(&mut tx, TaskKind::Place, self.installation().await?, None, now).await?,
            }
            let message = format!(
                "{} changed the priority from {} to {priority}",
                ask.caller.actor.name, wish.priority
            );
            let data = json!({ "from": wish.priority, "to": priority });
            self.tell(&mut tx, ask, &wish, ("job.priority", "job.priority"), &message, data)
                .await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        Ok(())
    }

    /// The job's row, locked, if the caller is a member of its team.
    async fn lock(&self, tx: &mut Tx<'_>, ask: Ask<'_>, job: JobId, if_match: Option<&str>) -> Result<Wish, Refusal> {
        let wish = found("job", job, jobs_wish::lock(tx, &ask.caller.actor.scope(), job).await)?;
        if !ask.caller.actor.may(wish.team, TeamRole::Member) {
            return Err(Refusal::role(TeamRole::Member, &wish.team_name));
        }
        match if_match {
            Some(etag) if etag != "*" && etag != wish.etag() => Err(Refusal::Stale),
            _ => Ok(wish),
        }
    }

    /// The event and the audit line of a change, told in the same words.
    async fn tell(
        &self,
        tx: &mut Tx<'_>,
        ask: Ask<'_>,
        wish: &Wish,
        (kind, action): (&str, &str),
        message: &str,
        data: Value,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let event = NewEvent {
            kind,
            actor: Some(ask.caller.actor.user),
            message,
            data: data.clone(),
        };
        events::append(tx, Subject::Job(wish.id), event, now).await?;
        audit::write(tx, ask.entry(action, "job", wish.id.0, Some(wish.team), data), now).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::model::{Phase, TeamId};
    use uuid::Uuid;

    use super::*;

    fn wish(wanted: Wanted, phase: Phase) -> Wish {
        Wish {
            id: JobId(Uuid::nil()),
            team: TeamId(Uuid::nil()),
            team_name: "research".into(),
            wanted,
            phase,
            generation: 1,
            event_seq: 1,
            priority: 0,
            attempt: 0,
            class: "standard".into(),
            cluster: None,
            machine: None,
        }
    }

    #[test]
    fn a_wish_for_an_end_is_never_taken_back_and_an_ended_job_stays() {
        for verb in [Verb::Suspend, Verb::Resume] {
            assert!(decide(verb, &wish(Wanted::Cancel, Phase::Running)).is_err(), "{verb:?}");
        }
        for verb in [Verb::Cancel, Verb::Suspend, Verb::Resume] {
            assert!(decide(verb, &wish(Wanted::Delete, Phase::Running)).is_err(), "{verb:?}");
            assert!(decide(verb, &wish(Wanted::Run, Phase::Succeeded)).is_err(), "{verb:?}");
        }
        assert!(matches!(
            decide(Verb::Delete, &wish(Wanted::Run, Phase::Failed)),
            Ok(true)
        ));
        assert!(matches!(
            decide(Verb::Delete, &wish(Wanted::Cancel, Phase::Stopping)),
            Ok(true)
        ));
    }

    #[test]
    fn asking_twice_is_asking_once() {
        assert!(matches!(
            decide(Verb::Cancel, &wish(Wanted::Cancel, Phase::Cancelled)),
            Ok(false)
        ));
        assert!(matches!(
            decide(Verb::Suspend, &wish(Wanted::Suspend, Phase::Suspended)),
            Ok(false)
        ));
        assert!(matches!(
            decide(Verb::Resume, &wish(Wanted::Run, Phase::Running)),
            Ok(false)
        ));
        assert!(matches!(
            decide(Verb::Resume, &wish(Wanted::Suspend, Phase::Suspended)),
            Ok(true)
        ));
    }
}
