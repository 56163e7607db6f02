//! Pages of jobs by age, newest first or oldest first. The work for one page is bounded however many jobs there are: candidates come from an
//! index in the order of the page, and no more than [`WINDOW`] of them are looked at for what no index answers.
//!
//! Deliberately absent: the document (no list needs it) and totals (a count of a million rows is never cheap).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use trainyard_core::model::{ClusterId, JobId, Phase, TeamId, UserId};
use uuid::Uuid;

use super::{
    Db, DbError, Scope,
    jobs_read::{Job, JobRow},
};

/// How many candidates one page may look at. A page that ends there may be short and still have a next one.
pub const WINDOW: i64 = 10_000;

/// How many jobs a page has that does not say.
const USUAL: i64 = 50;

/// A label of at most this many jobs is rare: its own index answers for all of them at once.
const RARE: i64 = 2_000;

/// Which jobs. Everything left out lets every job through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFilter {
    pub phases: Vec<Phase>,
    pub team: Option<TeamId>,
    pub cluster: Option<ClusterId>,
    pub owner: Option<UserId>,
    pub labels: BTreeMap<String, String>,
    /// Exactly this name.
    pub name: Option<String>,
    /// Part of the name, of a label or of the message.
    pub text: Option<String>,
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    pub order: Order,
}

/// The orders of a page: those that every index of jobs can be read in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Newest,
    Oldest,
}

#[derive(Debug, Clone)]
pub struct JobPage {
    pub jobs: Vec<Job>,
    /// The next page holds what comes after this job.
    pub next: Option<JobId>,
}

/// One page: jobs that come after one in the filter's order, at most `limit`.
pub async fn page(
    db: &Db,
    scope: &Scope,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: i64,
) -> Result<JobPage, DbError> {
    let ask = Ask::new(scope, filter, after, limit);
    if ask.teams.as_ref().is_some_and(Vec::is_empty) {
        return Ok(JobPage {
            jobs: Vec::new(),
            next: None,
        });
    }
    let mut rows = match ask.usual_rows(db).await? {
        Some(rows) => rows,
        None => ask.rows(db).await?,
    };
    if rows.len() as i64 > limit {
        rows.truncate(limit as usize);
        return into_page(db, rows, true).await;
    }
    if !ask.has_rest() {
        return into_page(db, rows, false).await;
    }
    if ask.labels.is_some() && ask.label_is_rare(db).await? {
        // Few jobs have the label: all of them come out of its own index, and the answer is complete.
        let mut rows = ask.rows_by_label(db).await?;
        let more = rows.len() as i64 > limit;
        rows.truncate(limit as usize);
        return into_page(db, rows, more).await;
    }
    let horizon = ask.horizon(db).await?;
    let mut page = into_page(db, rows, false).await?;
    page.next = horizon.map(JobId);
    Ok(page)
}

async fn into_page(db: &Db, rows: Vec<JobRow>, more: bool) -> Result<JobPage, DbError> {
    let mut ids: Vec<Uuid> = rows.iter().flat_map(JobRow::ids).collect();
    ids.sort_unstable();
    ids.dedup();
    let names = db.names.of(db, &ids).await?;
    let jobs = rows
        .into_iter()
        .map(|row| row.into_job(&names))
        .collect::<Result<Vec<_>, _>>()?;
    let next = if more { jobs.last().map(|job| job.id) } else { None };
    Ok(JobPage { jobs, next })
}

/// The lowest UUIDv7 of a moment: ids are ordered by time.
fn floor(at: DateTime<Utc>) -> Uuid {
    Uuid::from_u128((at.timestamp_millis().max(0) as u128) << 80)
}

/// A page's parameters as SQL wants them.
struct Ask {
    teams: Option<Vec<Uuid>>,
    phases: Option<Vec<String>>,
    owner: Option<Uuid>,
    cluster: Option<Uuid>,
    labels: Option<Json<BTreeMap<String, String>>>,
    name: Option<String>,
    text: Option<String>,
    order: Order,
    /// From here, and up to before there.
    from: Uuid,
    before: Uuid,
    window: i64,
    limit: i64,
}

/// The columns of a row, from what the texts say, put together.
macro_rules! select {
    ([$($text:tt)+] $db:expr, $($args:tt)*) => {
        sqlx::query_as!(
            JobRow,
            "/* jobs_list::page */
            select j.id, j.name, j.team_id, j.owner_id,
                j.labels as \"labels: Json<BTreeMap<String, String>>\", j.wanted, j.phase, j.reason, j.message,
                j.stale_since, j.priority, j.queue, j.cluster_wanted, j.cluster_id,
                j.replicas, j.cpu_milli, j.memory_bytes, j.gpus, j.generation, j.event_seq, j.attempt, j.step,
                j.step_at, j.total_steps, j.origin, j.origin_job_id, j.created_at, j.queued_at, j.queued_seconds,
                j.not_before, j.started_at, j.ended_at, null::text as document
            from "
                $(+ $text)*,
            $($args)*
        )
        .fetch_all($db)
        .await
    };
}

/// Rows from candidates that come out of an index in order. `$1` to `$5` belong to the candidates.
macro_rules! rows {
    ([$($candidates:tt)+], $way:tt, $ask:expr, $key:expr, $db:expr) => {
        select!(
            ["(" $($candidates)+ ") j
            where ($6::text[] is null or j.phase = any($6)) and ($7::uuid is null or j.cluster_id = $7)
                and ($8::jsonb is null or j.labels @> $8)
                and ($9::text is null or strpos(j.name, $9) > 0 or strpos(lower(j.message), $9) > 0
                    or strpos(lower(j.labels::text), $9) > 0)
                and ($11::text is null or j.name = $11)
            order by j.id " $way " limit $10"]
            &$db.pool,
            $ask.teams.as_deref(),
            $key,
            $ask.before,
            $ask.from,
            $ask.window,
            $ask.phases.as_deref(),
            $ask.cluster,
            $ask.labels.as_ref() as _,
            $ask.text.as_deref(),
            $ask.limit + 1,
            $ask.name.as_deref()
        )
    };
}

/// The last candidate that a page looked at, if there may be more behind it.
macro_rules! horizon {
    ([$($candidates:tt)+], $way:tt, $ask:expr, $key:expr, $db:expr) => {
        sqlx::query!(
            "/* jobs_list::horizon */
            select count(*) as \"looked_at!\", (array_agg(id order by id " + $way + "))[count(*)::integer] as last from ("
                $(+ $candidates)+
                + ") j",
            $ask.teams.as_deref(),
            $key,
            $ask.before,
            $ask.from,
            $ask.window
        )
        .fetch_one(&$db.pool)
        .await
        .map(|row| row.last.filter(|_| row.looked_at >= $ask.window))
    };
}

/// Everything there is, by the primary key.
macro_rules! everything {
    ($then:ident, $way:tt, $ask:expr, $db:expr) => {
        $then!(
            ["select * from jobs
             where $1::uuid[] is null and $2::text is null and deleted_at is null and id < $3 and id >= $4
             order by id " $way " limit $5"],
            $way,
            $ask,
            $ask.key(),
            $db
        )
    };
}

/// The first of each team, merged.
macro_rules! by_team {
    ($then:ident, $way:tt, $ask:expr, $db:expr) => {
        $then!(
            ["select n.* from unnest($1::uuid[]) s (team_id) cross join lateral (
                 select * from jobs
                 -- Compared as rows, so that no other index than the team's own gives this order.
                 where (team_id, id) < (s.team_id, $3) and (team_id, id) >= (s.team_id, $4)
                     and $2::text is null and deleted_at is null
                 order by team_id " $way ", id " $way " limit $5) n
             order by n.id " $way " limit $5"],
            $way,
            $ask,
            $ask.key(),
            $db
        )
    };
}

/// The first of each team in each phase, merged: ids first, from the index alone.
macro_rules! by_phase {
    ($then:ident, $way:tt, $ask:expr, $db:expr) => {
        $then!(
            ["select f.* from (
                 select n.id from (select id from teams where $1::uuid[] is null or id = any($1)) s (team_id)
                     cross join unnest(string_to_array($2::text, ',')) p (phase)
                     cross join lateral (
                         select id from jobs
                         where (team_id, phase, id) < (s.team_id, p.phase, $3)
                             and (team_id, phase, id) >= (s.team_id, p.phase, $4) and deleted_at is null
                         order by team_id " $way ", phase " $way ", id " $way " limit $5) n
                 order by n.id " $way " limit $5) m
                 -- One look by key each: the planner does not know how few there are.
                 cross join lateral (select * from jobs where id = m.id offset 0) f"],
            $way,
            $ask,
            $ask.key(),
            $db
        )
    };
}

/// The first of one person.
macro_rules! by_owner {
    ($then:ident, $way:tt, $ask:expr, $db:expr) => {
        $then!(
            ["select * from jobs
             where (owner_id, id) < ($2::text::uuid, $3) and (owner_id, id) >= ($2::text::uuid, $4)
                 and ($1::uuid[] is null or team_id = any($1)) and deleted_at is null
             order by owner_id " $way ", id " $way " limit $5"],
            $way,
            $ask,
            $ask.key(),
            $db
        )
    };
}

/// The candidates that this page needs, in its order.
macro_rules! by_age {
    ($then:ident, $ask:expr, $db:expr) => {
        match ($ask.order, $ask.owner, &$ask.phases, &$ask.teams) {
            (Order::Newest, Some(_), _, _) => by_owner!($then, "desc", $ask, $db),
            (Order::Newest, None, Some(_), _) => by_phase!($then, "desc", $ask, $db),
            (Order::Newest, None, None, Some(_)) => by_team!($then, "desc", $ask, $db),
            (Order::Newest, None, None, None) => everything!($then, "desc", $ask, $db),
            (Order::Oldest, Some(_), _, _) => by_owner!($then, "asc", $ask, $db),
            (Order::Oldest, None, Some(_), _) => by_phase!($then, "asc", $ask, $db),
            (Order::Oldest, None, None, Some(_)) => by_team!($then, "asc", $ask, $db),
            (Order::Oldest, None, None, None) => everything!($then, "asc", $ask, $db),
        }
    };
}

impl Ask {
    fn new(scope: &Scope, filter: &JobFilter, after: Option<JobId>, limit: i64) -> Self {
        let teams = match (scope.teams(), filter.team) {
            (None, None) => None,
            (None, Some(team)) => Some(vec![team.0]),
            (Some(teams), None) => Some(teams),
            (Some(teams), Some(team)) => Some(teams.into_iter().filter(|&known| known == team.0).collect()),
        };
        let mut from = filter.from.map_or(Uuid::nil(), floor);
        let mut before = filter.to.map_or(Uuid::max(), floor);
        // What was shown already lies beyond one of the two ends.
        match (filter.order, after) {
            (_, None) => {}
            (Order::Newest, Some(after)) => before = before.min(after.0),
            (Order::Oldest, Some(after)) => from = from.max(Uuid::from_u128(after.0.as_u128().saturating_add(1))),
        }
        let mut ask = Self {
            teams,
            phases: (!filter.phases.is_empty()).then(|| filter.phases.iter().map(Phase::to_string).collect()),
            owner: filter.owner.map(|owner| owner.0),
            cluster: filter.cluster.map(|cluster| cluster.0),
            labels: (!filter.labels.is_empty()).then(|| Json(filter.labels.clone())),
            name: filter.name.clone(),
            text: filter.text.as_ref().map(|text| text.to_lowercase()),
            order: filter.order,
            from,
            before,
            window: limit + 1,
            limit,
        };
        if ask.has_rest() {
            ask.window = WINDOW;
        }
        ask
    }

    /// Something is asked that the candidates' index does not answer.
    fn has_rest(&self) -> bool {
        self.cluster.is_some()
            || self.labels.is_some()
            || self.name.is_some()
            || self.text.is_some()
            || (self.owner.is_some() && self.phases.is_some())
    }

    /// What the candidates' index is asked for besides teams.
    fn key(&self) -> Option<String> {
        match (self.owner, &self.phases) {
            (Some(owner), _) => Some(owner.to_string()),
            (None, Some(phases)) => Some(phases.join(",")),
            (None, None) => None,
        }
    }

    /// The page that nearly everybody asks for: the newest [`USUAL`] of everything or of one team. With its limit in
    /// the text and no bound, Postgres keeps the plan; otherwise it plans each page anew, which costs more than the
    /// page itself.
    async fn usual_rows(&self, db: &Db) -> Result<Option<Vec<JobRow>>, DbError> {
        let bounded = self.before != Uuid::max() || !self.from.is_nil() || self.limit != USUAL;
        if bounded || self.order != Order::Newest || self.has_rest() || self.owner.is_some() || self.phases.is_some() {
            return Ok(None);
        }
        let team = match self.teams.as_deref() {
            None => None,
            Some(&[team]) => Some(team),
            Some(_) => return Ok(None),
        };
        let mut reader = db.reader().await?;
        let rows = match team {
            None => select!(["jobs j where j.deleted_at is null order by j.id desc limit 51"] &mut *reader,),
            Some(team) => select!(
                ["jobs j where j.team_id = $1 and j.deleted_at is null order by j.team_id desc, j.id desc limit 51"]
                &mut *reader, team
            ),
        };
        reader.done(rows).map(Some)
    }

    async fn rows(&self, db: &Db) -> Result<Vec<JobRow>, DbError> {
        Ok(by_age!(rows, self, db)?)
    }

    async fn horizon(&self, db: &Db) -> Result<Option<Uuid>, DbError> {
        Ok(by_age!(horizon, self, db)?)
    }

    async fn label_is_rare(&self, db: &Db) -> Result<bool, DbError> {
        // The index may have half a million entries under a label; it is told to stop where the answer is clear.
        let mut tx = db.begin().await?;
        sqlx::query!(
            r#"/* jobs_list::label_is_rare bound */ select set_config('gin_fuzzy_search_limit', $1, true)"#,
            (2 * RARE).to_string()
        )
        .fetch_one(&mut *tx)
        .await?;
        let found = sqlx::query_scalar!(
            r#"/* jobs_list::label_is_rare */
            select count(*) as "found!" from (select 1 from jobs where labels @> $1 and labels <> '{}' limit $2) l"#,
            self.labels.as_ref() as _,
            RARE + 1
        )
        .fetch_one(&mut *tx)
        .await?;
        Ok(found <= RARE)
    }

    async fn rows_by_label(&self, db: &Db) -> Result<Vec<JobRow>, DbError> {
        let owner = self.owner.map(|owner| owner.to_string());
        macro_rules! labelled {
            ($way:tt) => {
                rows!(
                    ["select f.* from (
                 -- The fence keeps the planner from walking all jobs in order in the hope of an early match.
                 select id, team_id, owner_id, deleted_at from jobs where labels @> $8 and labels <> '{}' offset 0
             ) l cross join lateral (select * from jobs where id = l.id offset 0) f
             where l.deleted_at is null and ($1::uuid[] is null or l.team_id = any($1))
                 and ($2::text is null or l.owner_id = $2::text::uuid) and l.id < $3 and l.id >= $4 and $5::bigint > 0"],
                    $way, self, owner, db
                )
            };
        }
        Ok(match self.order {
            Order::Newest => labelled!("desc"),
            Order::Oldest => labelled!("asc"),
        }?)
    }
}
