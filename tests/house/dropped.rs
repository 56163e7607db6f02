//! Whoever stops waiting for the database (a client that left, a deadline) leaves no trace on the connection.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use sqlx::{Executor, Row};
use trainyard::db::{Db, DbError, Scope, jobs_read};
use trainyard_core::model::JobId;
use uuid::Uuid;

use crate::support::postgres::database;

/// Polls `future` at most `polls` times and drops it then; true when it was still not done.
async fn dropped_after(polls: usize, future: impl Future<Output = Result<(), DbError>>) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(true);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(result) => {
                result.expect("the database is there");
                Poll::Ready(false)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_nobody_waits_for_leaves_no_open_transaction() {
    let test = database().await;
    // One connection, so that the next statement certainly meets it.
    let db = Db::lazy(test.db.pool().connect_options().as_ref().clone(), 1);
    db.ping().await.expect("the server answers");
    let mut unfinished = 0;
    for round in 0..60 {
        let begin = async { db.begin().await?.commit().await.map_err(DbError::from) };
        if dropped_after(round % 6, begin).await {
            unfinished += 1;
        }
        // Inside a transaction that began earlier, `now()` is the time of that beginning. Asked in one message: of the
        // several that a prepared statement takes, each sets the statement's time anew.
        tokio::time::timeout(Duration::from_secs(20), async {
            let row = db
                .pool()
                .fetch_one(sqlx::raw_sql("select now() = statement_timestamp()"));
            let outside: bool = row.await.expect("the server answers").get(0);
            assert!(outside, "round {round}: the connection came back inside a transaction");
        })
        .await
        .expect("the connection came back");
    }
    assert!(
        unfinished > 20,
        "only {unfinished} of 60 were dropped in the middle: nothing was tried"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_nobody_waits_for_does_not_answer_the_next_one() {
    let test = database().await;
    // Half of two: one connection for reads, so that the next read certainly meets it.
    let db = Db::lazy(test.db.pool().connect_options().as_ref().clone(), 2);
    let read = async |id: u128| jobs_read::get(&db, &Scope::Everything, JobId(Uuid::from_u128(id))).await;
    let backend = async || {
        let mut reader = db.reader().await?;
        let pid = sqlx::query_scalar::<_, i32>("select pg_backend_pid()")
            .fetch_one(&mut *reader)
            .await;
        reader.done(pid)
    };
    assert_eq!(
        backend().await.expect("the server answers"),
        backend().await.expect("the server answers"),
        "a read that ended well leaves its connection to the next one"
    );
    let mut unfinished = 0;
    // A busy machine may have answered before it is dropped, so there are many.
    for round in 0..180 {
        let absent = async { read(round).await.map(drop).or_else(absent) };
        if dropped_after(1 + round as usize % 3, absent).await {
            unfinished += 1;
        }
        let pid = tokio::time::timeout(Duration::from_secs(20), backend()).await;
        assert!(pid.expect("the place came back").is_ok(), "round {round}");
    }
    assert!(unfinished > 10, "only {unfinished} of 180 were dropped in the middle");
    tokio::time::timeout(Duration::from_secs(20), db.close())
        .await
        .expect("closing does not wait for connections that are kept");
    assert!(backend().await.is_err(), "nothing is read after the end");
}

fn absent(error: DbError) -> Result<(), DbError> {
    match error {
        DbError::NotFound => Ok(()),
        other => Err(other),
    }
}
