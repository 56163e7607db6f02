//! Series of numbers: chunks per (replica, series), never a row per point in the long run.
//!
//! Flushes append small rows; [`compact`] turns many of them into one. A job's points and a node's lie in one table:
//! a node's have the class `installation`, attempt 0 and no role.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{NodeId, ReplicaKey};
use uuid::Uuid;

use super::{Db, DbError, logs::JobKey};

/// A row that merging made this long is sealed: it is not touched again. Sealed rows are always a series' first.
const SEALED_POINTS: i64 = 1024;
/// So many small rows of a series are worth merging.
const SMALL_ROWS: i64 = 64;
/// So many points of a sealed row are told by at most five in its outline.
const OUTLINE_BUCKET: i64 = 128;
/// A series with more sealed rows than this is drawn from their outlines: by then those have more points than a small
/// plot has places.
const LONG_ROWS: i64 = 24;

/// Whose series these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    Job(JobKey),
    Node(NodeId),
}

impl Owner {
    fn class(self) -> &'static str {
        match self {
            Owner::Job(key) => key.class().as_str(),
            Owner::Node(_) => "installation",
        }
    }

    fn id(self) -> Uuid {
        match self {
            Owner::Job(key) => key.job().0,
            Owner::Node(node) => node.0,
        }
    }
}

/// One series: a replica's in an attempt, or a node's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    pub attempt: i32,
    /// `None`: the node itself.
    pub replica: Option<ReplicaKey>,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub step: Option<i64>,
    /// Milliseconds since 1970.
    pub at: i64,
    pub value: f64,
}

/// Appends points in the caller's transaction. Locks the owner's row, which is what keeps the numbering of rows apart
/// when a person posts points while a worker catches them.
pub async fn append(
    tx: &mut PgConnection,
    owner: Owner,
    series: &BTreeMap<SeriesKey, Vec<Point>>,
) -> Result<(), DbError> {
    if series.is_empty() {
        return Ok(());
    }
    lock(tx, owner).await?;
    let mut attempts = Vec::new();
    let mut roles = Vec::new();
    let mut indices = Vec::new();
    let mut names = Vec::new();
    let mut numbers = Vec::new();
    let mut steps = Vec::new();
    let mut times = Vec::new();
    let mut values = Vec::new();
    for (number, (key, points)) in (0i32..).zip(series) {
        attempts.push(key.attempt);
        roles.push(
            key.replica
                .as_ref()
                .map_or(String::new(), |replica| replica.role.clone()),
        );
        indices.push(key.replica.as_ref().map_or(0, |replica| replica.index as i32));
        names.push(key.name.clone());
        for point in points {
            numbers.push(number + 1);
            steps.push(point.step);
            times.push(point.at);
            values.push(point.value);
        }
    }
    sqlx::query!(
        r#"/* metrics::append */
        insert into metric_chunks
            (class, owner_id, attempt, role, index, series, seq, steps, times, vals, first_at, last_at, sealed)
        select $1, $2, s.attempt, s.role, s.index, s.name,
               1 + coalesce((
                   select max(m.seq) from metric_chunks m
                   where m.class = $1 and m.owner_id = $2 and m.attempt = s.attempt and m.series = s.name
                     and m.role = s.role and m.index = s.index), 0),
               p.steps, p.times, p.vals,
               to_timestamp(p.first_at / 1000.0), to_timestamp(p.last_at / 1000.0), false
        from unnest($3::int[], $4::text[], $5::int[], $6::text[]) with ordinality
                 as s (attempt, role, index, name, number)
        join (
            select number, array_agg(step order by place) as steps, array_agg(at order by place) as times,
                   array_agg(value order by place) as vals, min(at) as first_at, max(at) as last_at
            from unnest($7::int[], $8::bigint[], $9::bigint[], $10::float8[]) with ordinality
                     as p (number, step, at, value, place)
            group by number
        ) p on p.number = s.number"#,
        owner.class(),
        owner.id(),
        &attempts,
        &roles,
        &indices,
        &names,
        &numbers,
        &steps as &[Option<i64>],
        &times,
        &values
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn lock(tx: &mut PgConnection, owner: Owner) -> Result<(), DbError> {
    let found = match owner {
        Owner::Job(key) => {
            sqlx::query_scalar!(
                r#"/* metrics::lock job */ select 1 as "one!" from jobs where id = $1 for no key update"#,
                key.job().0
            )
            .fetch_optional(tx)
            .await?
        }
        Owner::Node(node) => {
            sqlx::query_scalar!(
                r#"/* metrics::lock node */ select 1 as "one!" from nodes where id = $1 for no key update"#,
                node.0
            )
            .fetch_optional(tx)
            .await?
        }
    };
    found.map(|_| ()).ok_or(DbError::NotFound)
}

/// Merges the small rows of every series of an owner that has many of them; with `all`, of every series that has two.
/// Answers how many rows went. Points and their order stay; what is sealed gets its outline.
pub async fn compact(db: &Db, owner: Owner, all: bool) -> Result<u64, DbError> {
    let mut tx = db.begin().await?;
    lock(&mut tx, owner).await?;
    let done = sqlx::query_scalar!(
        r#"/* metrics::compact */
        with many as (
            select attempt, series, role, index from metric_chunks
            where class = $1 and owner_id = $2 and not sealed
            group by attempt, series, role, index having count(*) >= $3
        ), gone as (
            delete from metric_chunks m using many
            where m.class = $1 and m.owner_id = $2 and not m.sealed and m.attempt = many.attempt
              and m.series = many.series and m.role = many.role and m.index = many.index
            returning m.*
        ), points as (
            select g.attempt, g.role, g.index, g.series, g.seq, g.first_at, g.last_at, p.step, p.at, p.value,
                   row_number() over (partition by g.attempt, g.role, g.index, g.series order by g.seq, p.place) - 1 as n,
                   count(*) over (partition by g.attempt, g.role, g.index, g.series) >= $4 as seals
            from gone g, unnest(g.steps, g.times, g.vals) with ordinality as p (step, at, value, place)
        ), marked as (
            -- NaN is the highest of all to Postgres.
            select points.*, seals and 1 in (
                       row_number() over (bucket order by n), row_number() over (bucket order by n desc),
                       row_number() over (bucket order by value, n),
                       row_number() over (bucket order by value = 'NaN', value desc, n),
                       case when value = 'NaN' then row_number() over (bucket order by value <> 'NaN', n) end) as outlines
            from points window bucket as (partition by attempt, role, index, series, n / $5)
        ), merged as (
            insert into metric_chunks
                (class, owner_id, attempt, role, index, series, seq, steps, times, vals, first_at, last_at, sealed,
                 outline_steps, outline_times, outline_vals)
            select $1, $2, attempt, role, index, series, min(seq),
                   array_agg(step order by n), array_agg(at order by n), array_agg(value order by n),
                   min(first_at), max(last_at), bool_or(seals),
                   array_agg(step order by n) filter (where outlines),
                   array_agg(at order by n) filter (where outlines),
                   array_agg(value order by n) filter (where outlines)
            from marked group by attempt, role, index, series
            returning 1
        )
        select (select count(*) from gone) - (select count(*) from merged) as "count!""#,
        owner.class(),
        owner.id(),
        if all { 2 } else { SMALL_ROWS },
        SEALED_POINTS,
        OUTLINE_BUCKET
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(done as u64)
}

/// Which points a reader wants. `Default`: all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection<'a> {
    pub attempt: Option<i32>,
    /// Empty: every series.
    pub names: &'a [String],
    pub replica: Option<&'a ReplicaKey>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
    /// Only points with a step from the one to the other, both included.
    pub steps: Option<(i64, i64)>,
}

/// Series with their points, in the order in which they were appended.
pub type Series = BTreeMap<SeriesKey, Vec<Point>>;

/// The selected points, every one.
pub async fn read(db: &Db, owner: Owner, selection: &Selection<'_>) -> Result<Series, DbError> {
    let (series, _) = select(db, owner, selection, i64::MAX).await?;
    Ok(series)
}

/// The selected points as far as a plot can show them: of a long series' sealed rows only the outline, which has each
/// bucket's first, last, lowest and highest point and its first that is no number. The newest points are all there.
/// Says too whether anything was left out.
pub async fn outline(db: &Db, owner: Owner, selection: &Selection<'_>) -> Result<(Series, bool), DbError> {
    select(db, owner, selection, LONG_ROWS).await
}

/// Of a series with more selected sealed rows than `long`, those are told by their outlines.
async fn select(db: &Db, owner: Owner, selection: &Selection<'_>, long: i64) -> Result<(Series, bool), DbError> {
    let rows = sqlx::query_as!(
        Row,
        r#"/* metrics::select */
        select attempt, role, index, series, thin as "thin!",
               case when thin then outline_steps else steps end as "steps!: Vec<Option<i64>>",
               case when thin then outline_times else times end as "times!",
               case when thin then outline_vals else vals end as "vals!"
        from (
            select m.*, outline_vals is not null
                   and count(*) filter (where sealed) over (partition by attempt, series, role, index) > $9 as thin
            from metric_chunks m
            where class = $1 and owner_id = $2
              and ($3::int is null or attempt = $3)
              and (cardinality($4::text[]) = 0 or series = any($4))
              and ($5::text is null or (role = $5 and index = $6))
              and ($7::timestamptz is null or last_at >= $7) and ($8::timestamptz is null or first_at < $8)
              and ($10::bigint is null or exists (select from unnest(steps) s (step) where step between $10 and $11))
        ) c
        order by attempt, series, role, index, seq"#,
        owner.class(),
        owner.id(),
        selection.attempt,
        selection.names,
        selection.replica.map(|replica| replica.role.as_str()),
        selection.replica.map(|replica| replica.index as i32),
        selection.since,
        selection.until,
        long,
        selection.steps.map(|(from, _)| from),
        selection.steps.map(|(_, to)| to)
    )
    .fetch_all(&db.pool)
    .await?;
    let thinned = rows.iter().any(|row| row.thin);
    Ok((joined(rows, selection), thinned))
}

struct Row {
    attempt: i32,
    role: String,
    index: i32,
    series: String,
    thin: bool,
    steps: Vec<Option<i64>>,
    times: Vec<i64>,
    vals: Vec<f64>,
}

fn joined(rows: Vec<Row>, selection: &Selection<'_>) -> Series {
    let since = selection.since.map_or(i64::MIN, |at| at.timestamp_millis());
    let until = selection.until.map_or(i64::MAX, |at| at.timestamp_millis());
    let steps = selection.steps.map(|(from, to)| from..=to);
    let mut series = Series::new();
    for row in rows {
        let key = key(row.attempt, row.role, row.index, row.series);
        let points = row.steps.into_iter().zip(row.times).zip(row.vals);
        series.entry(key).or_default().extend(
            points
                .map(|((step, at), value)| Point { step, at, value })
                .filter(|point| point.at >= since && point.at < until)
                .filter(|point| {
                    steps
                        .as_ref()
                        .is_none_or(|steps| point.step.is_some_and(|step| steps.contains(&step)))
                }),
        );
    }
    series
}

/// The selected series without their points, whatever the times and steps.
pub async fn keys(db: &Db, owner: Owner, selection: &Selection<'_>) -> Result<Vec<SeriesKey>, DbError> {
    let rows = sqlx::query!(
        r#"/* metrics::keys */
        select distinct attempt, series, role, index from metric_chunks
        where class = $1 and owner_id = $2
          and ($3::int is null or attempt = $3)
          and (cardinality($4::text[]) = 0 or series = any($4))
          and ($5::text is null or (role = $5 and index = $6))
        order by attempt, series, role, index"#,
        owner.class(),
        owner.id(),
        selection.attempt,
        selection.names,
        selection.replica.map(|replica| replica.role.as_str()),
        selection.replica.map(|replica| replica.index as i32)
    )
    .fetch_all(&db.pool)
    .await?;
    Ok((rows.into_iter())
        .map(|row| key(row.attempt, row.role, row.index, row.series))
        .collect())
}

fn key(attempt: i32, role: String, index: i32, name: String) -> SeriesKey {
    SeriesKey {
        attempt,
        replica: (!role.is_empty()).then_some(ReplicaKey {
            role,
            index: index as u32,
        }),
        name,
    }
}

/// The names of an owner's series.
pub async fn names(db: &Db, owner: Owner) -> Result<Vec<String>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* metrics::names */
        select distinct series from metric_chunks where class = $1 and owner_id = $2 order by series"#,
        owner.class(),
        owner.id()
    )
    .fetch_all(&db.pool)
    .await?)
}
