//! Things that break a cluster, each in a cluster that has nothing else to do. One after another: they break the same nodes.

mod support;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::pin::pin;
use std::time::{Duration, Instant};
use support::{MINUTES, Place, find_condition, in_namespace, is_true, on, pod, shared, tell, text};
use tokio::sync::Mutex;
use trainyard_testbed::Profile::Bare;
use trainyard_testbed::Testbed;
use trainyard_testbed::cluster::{client_of, condition};
use trainyard_testbed::faults::proxy::{Fault, FaultProxy, Rule};
use trainyard_testbed::faults::{api, nodes, token};
use trainyard_testbed::{certs, load};

/// Held by each test while it breaks the cluster.
static TURN: Mutex<()> = Mutex::const_new(());

async fn node(client: &Client, name: &str) -> Node {
    Api::<Node>::all(client.clone()).get(name).await.unwrap()
}

/// Waits until a node's Ready condition has this status.
async fn await_node(client: &Client, name: &str, ready: &str) -> Duration {
    let started = Instant::now();
    while condition(&node(client, name).await, "Ready") != ready {
        assert!(started.elapsed() < MINUTES, "{name} is not Ready={ready}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    started.elapsed()
}

/// A pod that leaves a lost node after five seconds instead of five minutes.
fn mover(name: &str, node: &str) -> serde_json::Value {
    let mut pod = on(pod(name, &["sleep", "3600"]), node);
    let leave = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    pod["spec"]["tolerations"] = json!([
        leave("node.kubernetes.io/unreachable"),
        leave("node.kubernetes.io/not-ready")
    ]);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_kubelet_makes_its_node_not_ready_and_its_containers_go_on() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "stopped", |place| async move {
        place.create(mover("stays", "node-2")).await;
        place.phase("stays", "Running").await;
        nodes::stop_kubelet(testbed, "node-2").unwrap();
        let took = await_node(&place.client, "node-2", "Unknown").await;
        tell("kubelet stopped, node Ready=Unknown after", took);
        // Nobody is there to confirm the end of the pod, so it stays, Terminating, and its process runs.
        place
            .pod_until("stays", MINUTES, |p| !text(p, "/metadata/deletionTimestamp").is_empty())
            .await;
        let processes = testbed.node("node-2").run(["ps", "-e", "-o", "args"]).unwrap();
        assert!(processes.lines().any(|l| l == "sleep 3600"), "{processes}");
        nodes::start_kubelet(testbed, "node-2").unwrap();
        tell(
            "kubelet started, node Ready after",
            await_node(&place.client, "node-2", "True").await,
        );
        place.pod_until("stays", MINUTES, |p| p.is_null()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_loses_its_pods_and_comes_back_empty() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "killed", |place| async move {
        place.create(mover("dies", "node-2")).await;
        place.phase("dies", "Running").await;
        let killed = Instant::now();
        nodes::kill_node(testbed, "node-2").unwrap();
        let lines: Vec<_> = processes_with("sleep 3600");
        assert!(lines.is_empty(), "the node's processes outlive it: {lines:?}");
        // Dead is dead until it is revived, and every command says so.
        for fault in [nodes::start_kubelet, nodes::stop_kubelet, nodes::kill_node] {
            let told = fault(testbed, "node-2").unwrap_err().to_string();
            let way_out = format!("revive-node node-2 --instance {}`", testbed.layout.number);
            assert!(
                told.starts_with("node-2 is killed") && told.contains(&way_out),
                "{told}"
            );
        }
        await_node(&place.client, "node-2", "Unknown").await;
        tell("node killed, Ready=Unknown after", killed.elapsed());
        place
            .pod_until("dies", MINUTES, |p| !text(p, "/metadata/deletionTimestamp").is_empty())
            .await;
        tell("node killed, its pod asked to go after", killed.elapsed());
        // As a person or a cloud would say that the machine is really gone; only then may its pods be forgotten.
        testbed
            .kubectl(&[
                "taint",
                "node",
                "node-2",
                "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            ])
            .unwrap();
        place.pod_until("dies", MINUTES, |p| p.is_null()).await;
        tell(
            "node killed, its pod gone (out-of-service taint) after",
            killed.elapsed(),
        );
        testbed
            .kubectl(&["taint", "node", "node-2", "node.kubernetes.io/out-of-service-"])
            .unwrap();
        let started = Instant::now();
        nodes::revive_node(testbed, "node-2").unwrap();
        await_node(&place.client, "node-2", "True").await;
        tell("killed node revived, Ready after", started.elapsed());
        let mut again = on(pod("again", &["echo", "alive"]), "node-2");
        again["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        place.create(again).await;
        place.phase("again", "Succeeded").await;
    })
    .await;
}

/// Command lines on this machine that are just this.
fn processes_with(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let text = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ");
        if text == line {
            found.push(format!("{:?} {text}", entry.file_name()));
        }
    }
    found
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> Result<ConfigMap, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap();
    maps.create(&PostParams::default(), &map).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_a_restart_of_the_api_server() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "restart", |place| async move {
        let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), "restart");
        let mut seen = pin!(watcher(maps, watcher::Config::default()).filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => Some(map.name_any()),
                _ => None,
            }
        }));
        config_map(&place.client, "restart", "before").await.unwrap();
        await_name(&mut seen, "before").await;
        let started = Instant::now();
        api::restart_api_server(testbed).await.unwrap();
        tell("API server killed and ready again", started.elapsed());
        config_map(&place.client, "restart", "after").await.unwrap();
        await_name(&mut seen, "after").await;
        tell("API server killed, the watch brings news after", started.elapsed());
    })
    .await;
}

async fn await_name(names: &mut (impl futures::Stream<Item = String> + Unpin), wanted: &str) {
    let found = tokio::time::timeout(MINUTES, async {
        while let Some(name) = names.next().await {
            if name == wanted {
                return true;
            }
        }
        false
    });
    assert!(found.await.unwrap_or(false), "the watch never told of {wanted}");
}

/// The code of the error that a watch from this version gets.
async fn watch_from(place: &Place, version: &str) -> Option<u16> {
    let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), &place.namespace);
    let mut events = pin!(maps.watch(&WatchParams::default().timeout(5), version).await.unwrap());
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_that_was_forgotten_is_410() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "history", |place| async move {
        let first = config_map(&place.client, "history", "one")
            .await
            .unwrap()
            .resource_version()
            .unwrap();
        for name in ["two", "three", "four"] {
            config_map(&place.client, "history", name).await.unwrap();
        }
        assert_eq!(watch_from(&place, &first).await, None, "as yet, history is there");
        // A list in pages, caught between two pages by a compaction.
        let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), "history");
        let page = maps.list(&ListParams::default().limit(2)).await.unwrap();
        let rest = page.metadata.continue_.clone().unwrap();
        assert_eq!(
            maps.list(&ListParams::default().limit(2).continue_token(&rest))
                .await
                .unwrap()
                .items
                .len(),
            2
        );
        // Something has to happen in between: history is kept from the present state on, and the page's must not be that.
        config_map(&place.client, "history", "five").await.unwrap();
        api::forget_history(testbed).await.unwrap();
        match maps.list(&ListParams::default().limit(2).continue_token(&rest)).await {
            Err(kube::Error::Api(status)) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
            other => panic!("an old continuation was taken: {other:?}"),
        }
        assert_eq!(watch_from(&place, &first).await, Some(410));
        // kube's own watcher starts over by itself and finds everything.
        let mut seen = pin!(watcher(maps, watcher::Config::default()).try_filter_map(|e| async {
            Ok(match e {
                watcher::Event::InitApply(map) | watcher::Event::Apply(map) => Some(map.name_any()),
                _ => None,
            })
        }));
        for _ in 0..5 {
            tokio::time::timeout(MINUTES, seen.try_next()).await.unwrap().unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_504_after_the_write_leaves_one_object() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "lost-answer", |place| async move {
        let proxy = FaultProxy::start(testbed).await.unwrap();
        let client = proxy.client().unwrap();
        let path = "/namespaces/lost-answer/configmaps";
        proxy.add(Rule::new("POST", path, Fault::AnswerAfter(504)).times(1));
        let code = |outcome: Result<ConfigMap, kube::Error>| match outcome {
            Err(kube::Error::Api(status)) => status.code,
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(code(config_map(&client, "lost-answer", "once").await), 504);
        // Who tries again finds its own object, under the name that it derived.
        assert_eq!(code(config_map(&client, "lost-answer", "once").await), 409);
        let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), "lost-answer");
        let named = |name: &'static str| {
            let maps = maps.clone();
            async move {
                maps.list(&ListParams::default().fields(&format!("metadata.name={name}")))
                    .await
                    .unwrap()
                    .items
                    .len()
            }
        };
        assert_eq!(named("once").await, 1);
        // kube's default client asks again by itself, and so is told of a conflict with what it made itself.
        let default = proxy.retrying_client().unwrap();
        proxy.add(Rule::new("POST", path, Fault::AnswerAfter(504)).times(1));
        assert_eq!(code(config_map(&default, "lost-answer", "default").await), 409);
        assert_eq!(named("default").await, 1);
        // Before the write, the object does not exist, and the same name is free.
        proxy.add(Rule::new("POST", path, Fault::AnswerBefore(500)).times(1));
        assert_eq!(code(config_map(&client, "lost-answer", "later").await), 500);
        assert_eq!(named("later").await, 0);
        proxy.add(Rule::new("POST", path, Fault::Cut).times(1));
        assert!(
            matches!(config_map(&client, "lost-answer", "later").await, Err(e) if !matches!(e, kube::Error::Api(_)))
        );
        assert_eq!(named("later").await, 0);
        config_map(&client, "lost-answer", "later").await.unwrap();
        // The audit log tells the same: five writes arrived of seven that were tried.
        let arrived = api::audited(testbed, |line| {
            line["verb"] == "create"
                && text(line, "/requestURI").contains(path)
                && text(line, "/objectRef/name") != "kube-root-ca.crt"
                && text(line, "/user/username") == "testbed-admin"
        });
        assert_eq!(arrived.unwrap(), 5);
        assert_eq!(
            proxy.log().iter().filter(|(line, _)| line.starts_with("POST")).count(),
            7
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_delays_throttles_and_cuts_a_watch() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "slow", |place| async move {
        let proxy = FaultProxy::start(testbed).await.unwrap();
        let client = proxy.client().unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "slow");
        proxy.add(Rule::new("GET", "/configmaps", Fault::Delay(Duration::from_millis(300))).times(1));
        let started = Instant::now();
        maps.list(&ListParams::default()).await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(300));
        proxy.add(Rule::new("POST", "/configmaps", Fault::AnswerBefore(429)).times(1));
        let Err(kube::Error::Api(status)) = config_map(&client, "slow", "throttled").await else {
            panic!("not throttled")
        };
        assert_eq!(status.code, 429);
        config_map(&client, "slow", "throttled").await.unwrap();
        proxy.add(Rule::new("GET", "watch=true", Fault::CutAfter(10)).times(1));
        let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
        let broken = tokio::time::timeout(MINUTES, async { while let Ok(Some(_)) = events.try_next().await {} }).await;
        assert!(broken.is_ok(), "the watch goes on although it was cut");
        assert_eq!(
            proxy
                .log()
                .iter()
                .filter(|(_, fault)| *fault == Some(Fault::CutAfter(10)))
                .count(),
            1
        );
        drop(place);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_expires() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "tokens", |place| async move {
        testbed
            .kubectl(&[
                "-n",
                "tokens",
                "create",
                "rolebinding",
                "reads",
                "--clusterrole=view",
                "--serviceaccount=tokens:default",
            ])
            .unwrap();
        let token = token::expiring(testbed, &place.client, "tokens", "default", Duration::from_secs(5))
            .await
            .unwrap();
        let client =
            client_of(&certs::kubeconfig_with_token(testbed.layout, &testbed.layout.api_url(), &token).unwrap())
                .await
                .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, "tokens");
        let started = Instant::now();
        while maps.list(&ListParams::default()).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(4), "a fresh token is not taken");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let refused = loop {
            match maps.list(&ListParams::default()).await {
                Ok(_) => assert!(started.elapsed() < Duration::from_secs(40), "the token never expires"),
                Err(kube::Error::Api(status)) => break status.code,
                Err(other) => panic!("{other}"),
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        assert_eq!(refused, 401);
        tell("token of 5 s refused after", started.elapsed());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_devices_come_and_go() {
    let testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "ill", |place| async move {
        let client = &place.client;
        let kind = "AcceleratedHardwareReady";
        nodes::set_condition(
            client,
            "node-1",
            kind,
            "False",
            "NvidiaXID79Error",
            "GPU has fallen off the bus",
        )
        .await
        .unwrap();
        let document = serde_json::to_value(node(client, "node-1").await).unwrap();
        assert_eq!(find_condition(&document, kind).unwrap()["reason"], "NvidiaXID79Error");
        nodes::clear_condition(client, "node-1", kind).await.unwrap();
        let document = serde_json::to_value(node(client, "node-1").await).unwrap();
        assert!(find_condition(&document, kind).is_none() && is_true(&document, "Ready"));

        nodes::set_devices(client, "node-1", "nvidia.com/gpu", 8).await.unwrap();
        nodes::lose_devices(client, "node-1", "nvidia.com/gpu", 6)
            .await
            .unwrap();
        let status = node(client, "node-1").await.status.unwrap();
        let of = |list: &Option<std::collections::BTreeMap<String, _>>| {
            list.as_ref()
                .and_then(|l| l.get("nvidia.com/gpu").cloned())
                .map(|q: k8s_openapi::apimachinery::pkg::api::resource::Quantity| q.0)
        };
        assert_eq!(
            (of(&status.capacity), of(&status.allocatable)),
            (Some("8".into()), Some("6".into()))
        );
        nodes::set_devices(client, "node-1", "nvidia.com/gpu", 0).await.unwrap();
        assert_eq!(of(&node(client, "node-1").await.status.unwrap().capacity), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_watch_replays_without_an_api_server() {
    let testbed: &Testbed = shared(Bare).await;
    let _turn = TURN.lock().await;
    in_namespace(testbed, "recorded", |place| async move {
        let maker = place.client.clone();
        let path = "/api/v1/namespaces/recorded/configmaps";
        let taken = load::record::Recording::take(&place.client, path, 20, tokio::time::sleep(MINUTES), || {
            tokio::spawn(async move {
                for index in 0..20 {
                    config_map(&maker, "recorded", &format!("map-{index:02}"))
                        .await
                        .unwrap();
                }
            });
        });
        let recording = taken.await.unwrap();
        assert!(recording.len() >= 20);
        let file = std::env::temp_dir().join(format!("recording-{}.jsonl", std::process::id()));
        recording.save(&file).unwrap();
        let recording = load::record::Recording::load(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let replay = recording.replay(0.0).await.unwrap();
        for _ in 0..2 {
            let maps: Api<ConfigMap> = Api::namespaced(replay.client().unwrap(), "recorded");
            let mut seen = pin!(watcher(maps, watcher::Config::default()).try_filter_map(|e| async {
                Ok(match e {
                    watcher::Event::Apply(map) => Some(map.name_any()),
                    _ => None,
                })
            }));
            let mut names = Vec::new();
            while names.len() < 20 {
                let name = tokio::time::timeout(MINUTES, seen.try_next())
                    .await
                    .unwrap()
                    .unwrap()
                    .unwrap();
                if name.starts_with("map-") {
                    names.push(name);
                }
            }
            assert_eq!(
                names,
                (0..20).map(|i| format!("map-{i:02}")).collect::<Vec<_>>(),
                "the same every time"
            );
        }
    })
    .await;
}
