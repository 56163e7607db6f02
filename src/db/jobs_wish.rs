//! The wish of a job and its place in the queue, as people change them. Phases are moved by workers alone.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{ClusterId, JobId, Phase, TeamId, Wanted};

use super::{DbError, Scope, tasks, word};

/// A job, locked for a change of its wish.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub id: JobId,
    pub team: TeamId,
    pub team_name: String,
    pub wanted: Wanted,
    pub phase: Phase,
    pub generation: i64,
    pub event_seq: i64,
    pub priority: i32,
    pub attempt: i32,
    pub class: String,
    pub cluster: Option<ClusterId>,
    /// The machine whose worker has to look while an attempt runs there.
    pub machine: Option<String>,
}

impl Wish {
    pub fn etag(&self) -> String {
        format!("\"{}-{}\"", self.generation, self.event_seq)
    }
}

pub async fn lock(tx: &mut PgConnection, scope: &Scope, id: JobId) -> Result<Wish, DbError> {
    let teams = scope.teams();
    let row = sqlx::query!(
        r#"/* jobs_wish::lock */
        select j.team_id, t.name as team_name, j.wanted, j.phase, j.generation, j.event_seq, j.priority, j.attempt,
            j.retention, j.cluster_id, c.machine_id as "machine_id?"
        from jobs j join teams t on t.id = j.team_id left join clusters c on c.id = j.cluster_id
        where j.id = $1 and j.deleted_at is null and ($2::uuid[] is null or j.team_id = any($2))
        for update of j"#,
        id.0,
        teams.as_deref()
    )
    .fetch_one(tx)
    .await?;
    let phase: Phase = word("jobs", id, &row.phase)?;
    Ok(Wish {
        id,
        team: row.team_id.into(),
        team_name: row.team_name,
        wanted: word("jobs", id, &row.wanted)?,
        phase,
        generation: row.generation,
        event_seq: row.event_seq,
        priority: row.priority,
        attempt: row.attempt,
        class: row.retention,
        cluster: row.cluster_id.map(ClusterId),
        // Where nothing runs, any worker can look.
        machine: row.machine_id.filter(|_| phase.is_active()),
    })
}

/// Writes the wish and asks for a look.
pub async fn write(tx: &mut PgConnection, wish: &Wish, wanted: Wanted, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs_wish::write */ update jobs set wanted = $2, generation = generation + 1 where id = $1"#,
        wish.id.0,
        wanted.as_str()
    )
    .execute(&mut *tx)
    .await?;
    tasks::poke(tx, tasks::TaskKind::Job, wish.id.0, wish.machine.as_deref(), now).await
}

pub async fn set_priority(tx: &mut PgConnection, id: JobId, priority: i32) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs_wish::set_priority */ update jobs set priority = $2, generation = generation + 1 where id = $1"#,
        id.0,
        priority
    )
    .execute(tx)
    .await?;
    Ok(())
}
