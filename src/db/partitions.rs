//! Ranges of the growing tables, made ahead and dropped whole.
//!
//! A range is a calendar month of the owners' ids. The default range catches ids that no month was made for, so a write
//! never fails for want of a partition.

use chrono::{DateTime, Datelike, Months, NaiveDate, Utc};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{Db, DbError};

/// (table, classes, column): what the first migration partitioned.
const PARTITIONED: [(&str, &[&str]); 5] = [
    ("events", &["short", "standard", "long", "installation"]),
    ("audit", &["installation"]),
    ("log_streams", &["short", "standard", "long"]),
    ("log_chunks", &["short", "standard", "long"]),
    ("metric_chunks", &["short", "standard", "long", "installation"]),
];

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
    match sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&db.pool)
        .await
        .map_err(DbError::from)
    {
        Ok(_) => Ok(()),
        // 23514: rows of this range lie in the default one. 42P07, 42P17: another process was faster.
        Err(DbError::Constraint { .. }) => Ok(()),
        Err(DbError::Other(sqlx::Error::Database(error)))
            if matches!(error.code().as_deref(), Some("42P07" | "42P17")) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn month(now: DateTime<Utc>, ahead: u32) -> NaiveDate {
    let first = now.date_naive().with_day(1).unwrap_or(now.date_naive());
    first.checked_add_months(Months::new(ahead)).unwrap_or(NaiveDate::MAX)
}

/// The lowest UUIDv7 of a day: 48 bits of milliseconds, then zeros.
fn floor(day: NaiveDate) -> Uuid {
    let millis = day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis().max(0) as u128;
    Uuid::from_u128(millis << 80)
}
