//! Deeds that meet a worker's transaction: people lock the job and then its task, workers the task and then the job.

use std::time::{Duration, Instant};

use axum::http::Method;
use serde_json::json;
use trainyard::db::Tx;

use crate::{
    world::{World, hello, raw},
    world_parts::{cluster, grant},
};

/// Waits until a connection of this database waits for a lock of another one.
async fn somebody_waits(world: &World) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')",
        )
        .fetch_one(world.state.db.pool())
        .await
        .unwrap();
        if waits {
            return;
        }
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A worker that has its task and wants the job's row now. `false`: it was the one that the database undid.
async fn go_on(mut worker: Tx<'static>, job: &str) -> bool {
    let statement = format!("update jobs set message = message where id = '{}'", raw(job));
    match sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(&mut *worker)
        .await
    {
        Ok(_) => {
            worker.commit().await.unwrap();
            true
        }
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_deed_that_a_worker_crossed_is_done_all_the_same() {
    let world = World::new().await;
    let cluster = cluster(&world, "earth").await;
    grant(&world, &cluster, &world.team).await;
    let mut document = hello("crossed");
    document["cluster"] = json!("earth");
    let job = world.submit(&world.admin, document).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let place = format!(
        "update jobs set cluster_id = '{}' where id = '{}'",
        raw(&cluster),
        raw(&job)
    );
    world.run(&place).await;
    let deeds = [
        (Method::PATCH, format!("/api/v1/jobs/{job}")),
        (Method::POST, format!("/api/v1/jobs/{job}/suspend")),
        (Method::POST, format!("/api/v1/jobs/{job}/resume")),
    ];
    let mut undone = [0; 3];
    for round in 0..10 {
        for (index, (method, path)) in deeds.iter().enumerate() {
            let mut worker = world.state.db.begin().await.unwrap();
            sqlx::query("select 1 from tasks where subject_id in ($1, $2) for update")
                .bind(raw(&cluster))
                .bind(raw(&job))
                .fetch_all(&mut *worker)
                .await
                .unwrap();
            let ask = world.ask(method.clone(), path).by(&world.admin).header("if-match", "*");
            let ask = ask.json(match index {
                0 => json!({ "priority": round + 1 }),
                _ => json!({}),
            });
            let crossing = async {
                somebody_waits(&world).await;
                go_on(worker, &job).await
            };
            let (answer, worker_went_on) = tokio::join!(ask.send(), crossing);
            assert!(answer.status.is_success(), "{}: {}", answer.status, answer.text);
            // Whoever waited longer is undone; that has to have been the person at least once.
            undone[index] += usize::from(worker_went_on);
        }
        if undone.iter().all(|times| *times > 0) {
            return;
        }
    }
    panic!("the person's deed was never the one that was undone: {undone:?}");
}
