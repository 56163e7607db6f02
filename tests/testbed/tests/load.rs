//! Size: a filled cluster, its snapshot, events at a rate, thousands of followed logs. `TRAINYARD_TESTBED_LONG=1` runs the full size.

mod support;

use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, LogParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::tell;
use tokio::sync::{Mutex, Notify};
use trainyard_testbed::load::record::Recording;
use trainyard_testbed::load::{events, fill, logs, nodes, snapshot};
use trainyard_testbed::{Options, Profile, Testbed};

static TURN: Mutex<()> = Mutex::const_new(());

/// (nodes, pods, followers)
fn size() -> (usize, usize, usize) {
    if std::env::var_os("TRAINYARD_TESTBED_LONG").is_some() {
        (5_000, 50_000, 2_000)
    } else {
        (200, 2_000, 100)
    }
}

fn store_only() -> Options {
    Options {
        real_nodes: false,
        ..Options::new(Profile::Bare)
    }
}

async fn count<K>(client: &Client) -> usize
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let mut total = 0;
    let mut page = ListParams::default().limit(1000);
    loop {
        let list = api.list_metadata(&page).await.unwrap();
        total += list.items.len();
        match list.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return total,
        }
    }
}

fn memory(testbed: &Testbed, program: &str) -> f64 {
    let text = testbed
        .control()
        .script(&format!("grep VmRSS /proc/$(pgrep -x {program})/status"))
        .unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e6
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_cluster_fills_and_its_snapshot_starts_at_once() {
    let _turn = TURN.lock().await;
    let (node_count, pod_count, _) = size();
    let say = |line: &str| eprintln!("testbed: {line}");
    let still = || Options {
        fake_nodes: node_count,
        controllers: false,
        ..store_only()
    };
    let path = snapshot::path(
        &format!("{node_count}-{pod_count}"),
        &trainyard_testbed::build::all(&say).unwrap().key,
    );
    // A snapshot of an earlier run would hide what filling takes.
    let _ = std::fs::remove_dir_all(&path);
    let (testbed, filled) = snapshot::filled(still(), pod_count, true, &say).await.unwrap();
    println!(
        "measured: {node_count} nodes and {pod_count} pods, first time: {:?}",
        filled.unwrap()
    );
    let client = testbed.client().await.unwrap();
    assert_eq!(
        (count::<Node>(&client).await, count::<Pod>(&client).await),
        (node_count, pod_count)
    );
    println!(
        "measured: memory of kube-apiserver {:.2} GB, etcd {:.2} GB",
        memory(&testbed, "kube-apiserver"),
        memory(&testbed, "etcd")
    );

    // A watch of everything is recorded while pods change as fast as they can, and replayed from its file.
    let wanted = pod_count / 10;
    let begin = Notify::new();
    let (made, recording) = tokio::join!(
        async {
            begin.notified().await;
            events::generate(&client, pod_count, 2_000, wanted).await.unwrap()
        },
        Recording::take(
            &client,
            "/api/v1/pods",
            wanted,
            tokio::time::sleep(support::MINUTES),
            || begin.notify_one()
        ),
    );
    println!(
        "measured: {} events asked for at 2000/s came at {:.0}/s",
        made.events,
        made.rate()
    );
    assert_eq!(made.events, wanted);
    let recording = recording.unwrap();
    assert!(recording.len() >= wanted, "only {} events", recording.len());
    replays_whole(recording, pod_count, wanted).await;
    let paced = events::generate(&client, pod_count, 100, 500).await.unwrap();
    println!("measured: 500 events asked for at 100/s came at {:.0}/s", paced.rate());

    testbed.down().unwrap();
    let started = Instant::now();
    let (testbed, filled) = snapshot::filled(still(), pod_count, true, &say).await.unwrap();
    assert!(filled.is_none() && path.exists());
    tell("the same from its snapshot, started and ready", started.elapsed());
    let client = testbed.client().await.unwrap();
    let listing = Instant::now();
    assert_eq!(
        (count::<Node>(&client).await, count::<Pod>(&client).await),
        (node_count, pod_count)
    );
    tell("counted all of them", listing.elapsed());
    let pods: Api<Pod> = Api::namespaced(client, &fill::namespace(7));
    let pod = pods.get(&fill::pod_name(7)).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(pod.spec.unwrap().node_name, Some(nodes::name(7)));
    println!(
        "measured: memory of kube-apiserver {:.2} GB, etcd {:.2} GB",
        memory(&testbed, "kube-apiserver"),
        memory(&testbed, "etcd")
    );
    testbed.down().unwrap();
}

/// A watcher that only has the recording gets every pod and every change.
async fn replays_whole(recording: Recording, pod_count: usize, wanted: usize) {
    let file = std::env::temp_dir().join(format!("recording-{}.jsonl", std::process::id()));
    recording.save(&file).unwrap();
    let size = std::fs::metadata(&file).unwrap().len() as f64 / 1e6;
    let recording = Recording::load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let replay = recording.replay(0.0).await.unwrap();
    let pods: Api<Pod> = Api::all(replay.client().unwrap());
    let mut seen = pin!(watcher(pods, watcher::Config::default()));
    let started = Instant::now();
    let (mut listed, mut changed) = (0, 0);
    while changed < wanted {
        match tokio::time::timeout(support::MINUTES, seen.next()).await.unwrap() {
            Some(Ok(watcher::Event::InitApply(_))) => listed += 1,
            Some(Ok(watcher::Event::Apply(pod))) => {
                assert!(pod.metadata.annotations.unwrap().contains_key("testbed/change"));
                changed += 1;
            }
            Some(Ok(_)) => {}
            other => panic!("the replay broke: {other:?}"),
        }
    }
    assert_eq!(listed, pod_count);
    tell(
        &format!("a recording of {size:.0} MB replayed: {listed} pods, then {changed} changes"),
        started.elapsed(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fake_nodes_look_like_machines_for_training_and_get_pods() {
    let _turn = TURN.lock().await;
    let testbed = Testbed::start(Options {
        fake_nodes: 10,
        ..store_only()
    })
    .await
    .unwrap();
    support::in_namespace(&testbed, "fake", |place| async move {
        let all: Api<Node> = Api::all(place.client.clone());
        let gpus = |n: &Node| {
            n.status
                .as_ref()
                .unwrap()
                .allocatable
                .as_ref()
                .unwrap()
                .get("nvidia.com/gpu")
                .map(|q| q.0.clone())
        };
        let list = all
            .list(&ListParams::default().labels("node.kubernetes.io/instance-type=p5.48xlarge"))
            .await
            .unwrap();
        assert_eq!(list.items.len(), 2);
        assert_eq!(gpus(&list.items[0]), Some("8".into()));
        let trainium = all
            .list(&ListParams::default().labels("node.kubernetes.io/instance-type=trn2.48xlarge"))
            .await
            .unwrap();
        assert!(
            trainium.items[0]
                .status
                .as_ref()
                .unwrap()
                .capacity
                .as_ref()
                .unwrap()
                .contains_key("aws.amazon.com/neuron")
        );
        // The real scheduler places it by its GPUs and KWOK lets it run.
        let mut pod = support::pod("wants-gpus", &["sleep", "60"]);
        pod["spec"]["containers"][0]["resources"] =
            serde_json::json!({"limits": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}});
        pod["spec"]["tolerations"] = serde_json::json!([{"operator": "Exists"}]);
        place.create(pod).await;
        let running = place.phase("wants-gpus", "Running").await;
        let node = all.get(&support::text(&running, "/spec/nodeName")).await.unwrap();
        assert_eq!(
            node.metadata.labels.unwrap()["node.kubernetes.io/instance-type"],
            "p5.48xlarge"
        );
    })
    .await;
    testbed.down().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_many_pods_are_followed_at_once() {
    let _turn = TURN.lock().await;
    let followers = size().2;
    logs::raise_limits().unwrap();
    let testbed = Testbed::start(Options {
        fake_nodes: 20,
        ..store_only()
    })
    .await
    .unwrap();
    let client = testbed.client().await.unwrap();
    fill::running_pods(&client, logs::NAMESPACE, 20, followers)
        .await
        .unwrap();
    logs::append(&testbed, ["first".to_string()]).unwrap();
    let (opened, cut) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    let started = Instant::now();
    for index in 0..followers {
        let (client, opened, cut) = (client.clone(), opened.clone(), cut.clone());
        tasks.spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client, logs::NAMESPACE);
            let follow = LogParams {
                follow: true,
                ..LogParams::default()
            };
            // An API server to which thousands turn at once cuts some of them off, and a follower asks again.
            let mut lines = loop {
                match pods.log_stream(&fill::pod_name(index), &follow).await {
                    Ok(stream) => break stream.lines(),
                    Err(_) if started.elapsed() < support::MINUTES => cut.fetch_add(1, Ordering::SeqCst),
                    Err(error) => panic!("log of pod {index}: {error}"),
                };
                tokio::time::sleep(Duration::from_millis(500)).await;
            };
            let mut seen = Vec::new();
            while let Some(line) = lines.next().await {
                let line = line.unwrap();
                if line.ends_with("first") {
                    opened.fetch_add(1, Ordering::SeqCst);
                }
                seen.push(line);
                if seen.len() == 11 {
                    break;
                }
            }
            seen
        });
    }
    while opened.load(Ordering::SeqCst) < followers {
        assert!(
            started.elapsed() < support::MINUTES,
            "{} of {followers} follow",
            opened.load(Ordering::SeqCst)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tell(&format!("{followers} followers opened"), started.elapsed());
    println!(
        "measured: {} of their connections were cut and made again",
        cut.load(Ordering::SeqCst)
    );
    let started = Instant::now();
    logs::append(&testbed, (0..10).map(|i| format!("line {i}"))).unwrap();
    let mut whole = 0;
    while let Some(seen) = tasks.join_next().await {
        let seen = seen.unwrap();
        assert_eq!(seen.len(), 11, "{seen:?}");
        assert!(
            (0..10).all(|i| seen[i + 1].ends_with(&format!("line {i}"))),
            "in order and whole: {seen:?}"
        );
        whole += 1;
    }
    assert_eq!(whole, followers);
    tell(&format!("ten lines to each of {followers}"), started.elapsed());
    testbed.down().unwrap();
}
