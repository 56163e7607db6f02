//! Whoever stops waiting for the database (a client that left, a deadline) leaves no trace on the connection.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use sqlx::{Executor, Row};
use trainyard::db::{Db, DbError};

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
