//! Ranges of the growing tables, made ahead and dropped whole.
//!
//! A range is a calendar month of the owners' ids. The default range catches ids that no month was made for, so a write
//! never fails for want of a partition. Both making and dropping lock a table for a moment; where that can't be had
//! within [`LOCK`], readers and writers are let by and the next look tries again.

use chrono::{DateTime, Datelike, Months, NaiveDate, Utc};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{Db, DbError, Tx};

/// (table, classes): what the first migration partitioned.
const PARTITIONED: [(&str, &[&str]); 5] = [
    ("events", &["short", "standard", "long", "installation"]),
    ("audit", &["installation"]),
    ("log_streams", &["short", "standard", "long"]),
    ("log_chunks", &["short", "standard", "long"]),
    ("metric_chunks", &["short", "standard", "long", "installation"]),
];
/// How long a change of tables may keep others waiting.
const LOCK: &str = "2s";

/// Makes this month's ranges and those of the next two months. Safe to run from several processes, and again.
/// A month whose rows already lie in the default range is left there.
pub async fn ensure(db: &Db, now: DateTime<Utc>) -> Result<(), DbError> {
    for ahead in 0..3 {
        let from = month(now, ahead);
        let to = month(now, ahead + 1);
        for (table, classes) in PARTITIONED {
            for class in classes {
                make(db, table, class, from, to).await?;
            }
        }
    }
    Ok(())
}

async fn make(db: &Db, table: &str, class: &str, from: NaiveDate, to: NaiveDate) -> Result<(), DbError> {
    let parent = format!("{table}_{class}");
    let name = format!("{parent}_{:04}{:02}", from.year(), from.month());
    let exists = sqlx::query_scalar!(
        r#"/* partitions::make */ select to_regclass($1) is not null as "exists!""#,
        name
    )
    .fetch_one(&db.pool)
    .await?;
    if exists {
        return Ok(());
    }
    // Names come from the constant above and numbers; nothing here is a person's text.
    let mut statement = format!(
        "/* partitions::make */ create table if not exists {name} partition of {parent} for values from ('{}') to ('{}')",
        floor(from),
        floor(to)
    );
    if table == "log_chunks" {
        statement.push_str(&format!("; alter table {name} alter column data set storage external"));
    }
    let mut tx = begin(db).await?;
    let made = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await;
    match made.map_err(DbError::from) {
        Ok(_) => Ok(tx.commit().await?),
        // 23514: rows of this range lie in the default one.
        Err(DbError::Constraint { .. }) => Ok(()),
        // 42P07, 42P17: another process was faster.
        Err(error) if is(&error, &["42P07", "42P17"]) || is_locked(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Drops the ranges of a class that hold nothing which is still to be kept: all owners are over since before
/// `ended_before`, and of output nothing is left. Log streams stay, since they tell readers that output was removed,
/// and when. Answers what was dropped.
pub async fn drop_old(db: &Db, class: &str, ended_before: DateTime<Utc>) -> Result<Vec<String>, DbError> {
    let mut dropped = Vec::new();
    for (table, classes) in PARTITIONED {
        if table == "log_streams" || !classes.contains(&class) {
            continue;
        }
        let parent = format!("{table}_{class}");
        for name in months_of(db, &parent).await? {
            let Some(from) = month_in(&name) else { continue };
            let to = from.checked_add_months(Months::new(1)).unwrap_or(NaiveDate::MAX);
            let is_over = floor(to) <= first_id(ended_before)
                && owners_are_over(db, table, class, (floor(from), floor(to)), ended_before).await?
                && (table != "log_chunks" || is_empty(db, &name).await?);
            if is_over && drop(db, table, &parent, &name).await? {
                dropped.push(name);
            }
        }
    }
    Ok(dropped)
}

async fn months_of(db: &Db, parent: &str) -> Result<Vec<String>, DbError> {
    let names = sqlx::query_scalar!(
        r#"/* partitions::months_of */
        select c.relname::text as "name!" from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = to_regclass($1) and c.relname ~ '_[0-9]{6}$' order by 1"#,
        parent
    );
    Ok(names.fetch_all(&db.pool).await?)
}

/// Whether nobody whose id lies in a range may still be written about, or ended so late that it is kept.
async fn owners_are_over(
    db: &Db,
    table: &str,
    class: &str,
    (from, to): (Uuid, Uuid),
    ended_before: DateTime<Utc>,
) -> Result<bool, DbError> {
    // An entry of the audit log is its own owner, and as old as its id.
    if table == "audit" {
        return Ok(true);
    }
    let kept = match class {
        "installation" => {
            sqlx::query_scalar!(
                r#"/* partitions::owners_are_over installation */
                select exists (select from nodes
                        where id >= $1 and id < $2 and (gone_at is null or gone_at >= $3))
                    or exists (select from clusters
                        where id >= $1 and id < $2 and (deleted_at is null or deleted_at >= $3)) as "kept!""#,
                from,
                to,
                ended_before
            )
            .fetch_one(&db.pool)
            .await?
        }
        class => {
            sqlx::query_scalar!(
                r#"/* partitions::owners_are_over */
                select exists (
                    select from jobs j
                    where j.id >= $1 and j.id < $2 and j.retention = $3 and (
                        j.ended_at is null or j.ended_at >= $4
                        or exists (select from attempts a where a.job_id = j.id and a.output_stored_at is null))
                ) as "kept!""#,
                from,
                to,
                class,
                ended_before
            )
            .fetch_one(&db.pool)
            .await?
        }
    };
    Ok(!kept)
}

/// Asked without a lock: nobody writes for owners that are over, and what was just emptied may take long to look through.
async fn is_empty(db: &Db, name: &str) -> Result<bool, DbError> {
    let ask = format!("/* partitions::is_empty */ select not exists (select from {name})");
    Ok(sqlx::query_scalar(AssertSqlSafe(ask)).fetch_one(&db.pool).await?)
}

/// False: it is in use just now.
async fn drop(db: &Db, table: &str, parent: &str, name: &str) -> Result<bool, DbError> {
    let mut tx = begin(db).await?;
    // The parent first, as every statement that comes through it does.
    let lock = format!("/* partitions::drop */ lock table only {parent}, {name} in access exclusive mode");
    let locked = sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *tx).await;
    match locked.map_err(DbError::from) {
        Ok(_) => {}
        Err(error) if is_locked(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    if table == "events" {
        let ask = format!("/* partitions::drop */ select exists (select from {name} where feed_position is null)");
        if sqlx::query_scalar(AssertSqlSafe(ask)).fetch_one(&mut *tx).await? {
            return Ok(false);
        }
        let note = format!(
            "/* partitions::drop */ update installation set feed_pruned = greatest(feed_pruned,
                coalesce((select max(feed_position) from {name}), 0))"
        );
        sqlx::raw_sql(AssertSqlSafe(note)).execute(&mut *tx).await?;
    }
    let statement = format!("/* partitions::drop */ drop table {name}");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}

async fn begin(db: &Db) -> Result<Tx<'static>, DbError> {
    let mut tx = db.begin().await?;
    let statement = format!("/* partitions::begin */ set local lock_timeout = '{LOCK}'");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await?;
    Ok(tx)
}

/// 55P03: a lock could not be had in time.
fn is_locked(error: &DbError) -> bool {
    is(error, &["55P03"])
}

fn is(error: &DbError, codes: &[&str]) -> bool {
    match error {
        DbError::Other(sqlx::Error::Database(error)) | DbError::Unavailable(sqlx::Error::Database(error)) => {
            error.code().is_some_and(|code| codes.contains(&&*code))
        }
        _ => false,
    }
}

fn month(now: DateTime<Utc>, ahead: u32) -> NaiveDate {
    let first = now.date_naive().with_day(1).unwrap_or(now.date_naive());
    first.checked_add_months(Months::new(ahead)).unwrap_or(NaiveDate::MAX)
}

/// The month that a partition's name ends with.
fn month_in(name: &str) -> Option<NaiveDate> {
    let (year, month) = name.rsplit('_').next()?.split_at_checked(4)?;
    NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, 1)
}

/// The lowest UUIDv7 of a day.
fn floor(day: NaiveDate) -> Uuid {
    first_id(day.and_time(chrono::NaiveTime::MIN).and_utc())
}

/// The lowest UUIDv7 of a moment: 48 bits of milliseconds, then zeros.
pub fn first_id(at: DateTime<Utc>) -> Uuid {
    Uuid::from_u128((at.timestamp_millis().max(0) as u128) << 80)
}
