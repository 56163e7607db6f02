//! Reports about a running job: checkpoints and points of series. A job's own processes may send them with the token
//! that they are given, and so may members of the team.

use std::collections::BTreeMap;

use serde_json::json;
use trainyard_core::{
    catch::MAX_PATH,
    model::{JobId, ReplicaKey, TeamRole},
};

use super::{Actions, Ask, FieldFault, Refusal, found};
use crate::db::{
    DbError,
    access::Via,
    audit,
    events::{self, NewEvent, Subject},
    jobs_read::{self, Home},
    logs::{self, write::JobNews},
    metrics::{self, Owner, Point, SeriesKey},
    reports::{self, Checkpoint},
};

/// One request carries at most this many points.
pub const MAX_POINTS: usize = 10_000;

/// A number that a job reports.
#[derive(Debug, Clone)]
pub struct NewPoint {
    pub series: String,
    pub value: f64,
    pub step: Option<i64>,
    /// Milliseconds since 1970; left out: when it arrived.
    pub at: Option<i64>,
    /// Left out: the first replica of the job's first role is not guessed; the point belongs to rank 0's place, `""`.
    pub replica: Option<ReplicaKey>,
}

impl Actions {
    pub async fn report_checkpoint(
        &self,
        ask: Ask<'_>,
        job: JobId,
        step: i64,
        path: &str,
    ) -> Result<Checkpoint, Refusal> {
        let home = self.reporter(ask, job).await?;
        let mut faults = Vec::new();
        if step < 0 {
            faults.push(FieldFault::new("step", "out_of_range", "a step is 0 or more").value(step.to_string()));
        }
        if path.is_empty() || path.len() > MAX_PATH || path.contains('\0') {
            faults.push(
                FieldFault::new(
                    "path",
                    "wrong_form",
                    format!("a path has 1 to {MAX_PATH} bytes and no NUL"),
                )
                .value(path)
                .hint("say where the next attempt finds the checkpoint"),
            );
        }
        if !faults.is_empty() {
            return Err(Refusal::Faults(faults));
        }
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let new = reports::add_checkpoint(&mut tx, job, home.attempt, step, path, now).await?;
        if new {
            let event = NewEvent {
                kind: "job.checkpoint",
                actor: Some(ask.caller.actor.user),
                message: &format!("Checkpoint at step {step}"),
                data: json!({ "attempt": home.attempt, "step": step, "path": path, "source": "api" }),
            };
            events::append(&mut tx, Subject::Job(job), event, now).await?;
            if !matches!(ask.caller.via, Via::Job { .. }) {
                let detail = json!({ "step": step });
                audit::write(
                    &mut tx,
                    ask.entry("job.checkpoint", "job", job.0, Some(home.team), detail),
                    now,
                )
                .await?;
            }
        }
        tx.commit().await.map_err(DbError::from)?;
        if new {
            self.wake.subject(job.0);
        }
        Ok(Checkpoint {
            attempt: home.attempt,
            step,
            path: path.to_owned(),
            at: now,
            source: "api".into(),
        })
    }

    /// Answers how many points were stored.
    pub async fn report_points(&self, ask: Ask<'_>, job: JobId, points: &[NewPoint]) -> Result<usize, Refusal> {
        let home = self.reporter(ask, job).await?;
        check(points)?;
        let now = self.now();
        let key = logs::readable(&self.db, &ask.caller.actor.scope(), job).await?;
        let mut series: BTreeMap<SeriesKey, Vec<Point>> = BTreeMap::new();
        for point in points {
            let place = SeriesKey {
                attempt: home.attempt,
                replica: point.replica.clone(),
                name: point.series.clone(),
            };
            series.entry(place).or_default().push(Point {
                step: point.step,
                at: point.at.unwrap_or(now.timestamp_millis()),
                value: point.value,
            });
        }
        let mut tx = self.db.begin().await?;
        metrics::append(&mut tx, Owner::Job(key), &series).await?;
        let step = points.iter().filter_map(|point| point.step).max();
        if step.is_some() {
            let news = JobNews {
                job,
                attempt: home.attempt,
                step,
                total: None,
                at: now.timestamp_millis(),
            };
            logs::write::note_jobs(&mut tx, &[news]).await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        self.wake.subject(job.0);
        Ok(points.len())
    }

    /// The job, if the caller may report about it and it has an attempt to report about.
    async fn reporter(&self, ask: Ask<'_>, job: JobId) -> Result<Home, Refusal> {
        let home = found(
            "job",
            job,
            jobs_read::home(&self.db, &ask.caller.actor.scope(), job).await,
        )?;
        // Who was recognised a moment ago may be of an attempt that has ended since.
        let own = matches!(ask.caller.via, Via::Job { job: own, attempt }
            if own == job && attempt == home.attempt && home.phase.is_active());
        if !own && !ask.caller.actor.may(home.team, TeamRole::Member) {
            return Err(Refusal::Forbidden {
                needs: "the token of the job's running attempt, or the role member in its team".into(),
            });
        }
        if home.phase.is_final() {
            return Err(Refusal::Ended { phase: home.phase });
        }
        if home.attempt == 0 {
            return Err(Refusal::NoAttempt);
        }
        Ok(home)
    }
}

fn check(points: &[NewPoint]) -> Result<(), Refusal> {
    if points.is_empty() || points.len() > MAX_POINTS {
        return Err(Refusal::fault(
            FieldFault::new(
                "points",
                "out_of_range",
                format!("a request carries 1 to {MAX_POINTS} points"),
            )
            .value(points.len().to_string())
            .hint("send them in several requests"),
        ));
    }
    let mut faults = Vec::new();
    for (index, point) in points.iter().enumerate() {
        if point.series.is_empty() || point.series.len() > 64 || point.series.chars().any(char::is_control) {
            faults.push(
                FieldFault::new(
                    format!("points[{index}].series"),
                    "wrong_form",
                    "a series' name has 1 to 64 bytes",
                )
                .value(&point.series),
            );
        }
        let role = point.replica.as_ref().map_or("", |replica| &replica.role);
        if role.len() > 63 || role.chars().any(char::is_control) {
            faults.push(
                FieldFault::new(
                    format!("points[{index}].replica.role"),
                    "wrong_form",
                    "a role's name has at most 63 bytes",
                )
                .value(role)
                .hint("name a role of the job's document"),
            );
        }
        if !point.value.is_finite() {
            faults.push(FieldFault::new(
                format!("points[{index}].value"),
                "wrong_form",
                "a value is a finite number",
            ));
        }
        if point.step.is_some_and(|step| step < 0) {
            faults.push(FieldFault::new(
                format!("points[{index}].step"),
                "out_of_range",
                "a step is 0 or more",
            ));
        }
        if point.at.is_some_and(|at| !(0..=253_402_300_799_999).contains(&at)) {
            faults.push(FieldFault::new(
                format!("points[{index}].at"),
                "out_of_range",
                "a time lies between 1970 and 9999",
            ));
        }
        if faults.len() >= 20 {
            break;
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Faults(faults))
    }
}
