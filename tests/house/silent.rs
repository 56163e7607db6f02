//! A database that goes away without a word: its connections stay open, and nothing comes of them any more.

use std::{collections::BTreeSet, time::Duration};

use chrono::Utc;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{broadcast::Receiver, watch},
};
use tokio_util::sync::CancellationToken;
use trainyard::db::{
    Db, PgConnectOptions,
    listen::{Listener, Wake},
    notify, tasks,
};
use trainyard_core::model::WorkerId;
use uuid::Uuid;

use crate::support::postgres::database;

/// Longer than anybody should wait.
const LONGEST: Duration = Duration::from_secs(120);

/// The way to the server. Connections made before the last number stand still.
async fn way(to: String) -> (u16, watch::Sender<u32>) {
    let door = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = door.local_addr().expect("an address").port();
    let (freeze, frozen) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = door.accept().await {
            let (to, mut frozen) = (to.clone(), frozen.clone());
            frozen.mark_unchanged();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.expect("the server");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    changed = frozen.changed() => {
                        changed.expect("the test is there");
                        std::future::pending::<()>().await;
                    }
                }
            });
        }
    });
    (port, freeze)
}

async fn until_connected(wakes: &mut Receiver<Wake>) {
    let connected = async { while wakes.recv().await.expect("a wake-up") != Wake::Reconnected {} };
    tokio::time::timeout(LONGEST, connected).await.expect("connected");
}

#[tokio::test]
async fn who_listens_and_who_claims_make_new_connections() {
    let test = database().await;
    let options: PgConnectOptions = test.url().parse().expect("an address");
    let (port, freeze) = way(format!("{}:{}", options.get_host(), options.get_port())).await;
    let db = Db::lazy(options.host("127.0.0.1").port(port), 2);
    let stop = CancellationToken::new();
    let listener = Listener::start(&db, notify::ALL, stop.clone());
    let mut wakes = listener.subscribe();
    let claim = || async {
        let machines = [String::new()];
        let lease = Duration::from_secs(30);
        let claimed = tasks::claim(
            &db,
            WorkerId(Uuid::now_v7()),
            &machines,
            1,
            lease,
            Utc::now(),
            Uuid::now_v7(),
        );
        tokio::time::timeout(LONGEST, claimed)
            .await
            .expect("an answer, whatever it is")
    };
    claim().await.expect("nothing is due");
    until_connected(&mut wakes).await;
    let idle = async {
        while db.pool().num_idle() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONGEST, idle)
        .await
        .expect("it is back in the pool");

    freeze.send_modify(|number| *number += 1);
    claim().await.expect_err("no answer");
    claim().await.expect("on another connection");
    until_connected(&mut wakes).await;
    let heard = async {
        let mut heard = BTreeSet::new();
        while heard.is_empty() {
            notify::send(db.pool(), notify::TASKS, "anew").await.expect("sent");
            if let Ok(Wake::Notified { payload, .. }) = wakes.recv().await {
                heard.insert(payload);
            }
        }
        heard
    };
    let heard = tokio::time::timeout(LONGEST, heard).await.expect("heard");
    assert!(heard.contains("anew"), "{heard:?}");
    stop.cancel();
}
