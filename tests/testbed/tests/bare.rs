//! Profile bare: what every cluster has. DNS, storage, network policies, metrics, and how things look that go wrong.

mod support;

use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{IMAGE, MINUTES, Place, find_condition, in_namespace, is_true, on, pod, shared, tell, text};
use trainyard_testbed::Profile::Bare;
use trainyard_testbed::faults::{quota, webhook::Refusal};
use trainyard_testbed::layout::NODES;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_keeps_what_one_pod_wrote_for_the_next() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "volume", |place| async move {
        // No class is named: the default one must be there.
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}});
        place.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"}, "spec": spec})).await;
        let with_claim = |name: &str, command: &[&str]| {
            let mut pod = pod(name, command);
            pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "checkpoints"}}]);
            pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
            pod
        };
        place.create(with_claim("writer", &["python3", "classifier.py", "--steps", "40", "--checkpoint", "/data"])).await;
        place.phase("writer", "Succeeded").await;
        place.create(with_claim("reader", &["python3", "classifier.py", "--steps", "60", "--checkpoint", "/data"])).await;
        place.phase("reader", "Succeeded").await;
        assert!(place.log("writer").await.contains("checkpoint step=40 path=/data/last.pt"));
        let log = place.log("reader").await;
        assert!(log.starts_with("resumed step=40\n"), "{log}");
        let claim = place.until("v1", "PersistentVolumeClaim", "checkpoints", MINUTES, |_| true).await;
        assert_eq!(text(&claim, "/spec/storageClassName"), "local-path");
        for name in ["writer", "reader"] {
            place.pods().delete(name, &Default::default()).await.unwrap();
        }
        place.api("v1", "PersistentVolumeClaim").delete("checkpoints", &Default::default()).await.unwrap();
        place.until("v1", "PersistentVolumeClaim", "checkpoints", MINUTES, Value::is_null).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_policy_opens_a_job_to_itself_and_closes_it_to_others() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "closed", |place| async move {
        in_namespace(testbed, "outside", |outside| async move {
            let member = |name: &str, node: &str, command: &[&str]| {
                let mut pod = on(pod(name, command), node);
                pod["metadata"]["labels"] = json!({"job": "mine"});
                pod
            };
            place.create(member("server", NODES[0], &["python3", "-m", "http.server", "8000"])).await;
            for (index, node) in NODES.iter().enumerate() {
                place.create(member(&format!("peer-{}", index + 1), node, &["sleep", "600"])).await;
                outside.create(on(pod(&format!("stranger-{}", index + 1), &["sleep", "600"]), node)).await;
            }
            let server = place.phase("server", "Running").await;
            let address = text(&server, "/status/podIP");
            let try_from = |namespace: &str, pod: &str| {
                let probe = format!("import socket; socket.create_connection(('{address}', 8000), 2)");
                testbed.kubectl(&["-n", namespace, "exec", pod, "--", "python3", "-c", &probe]).is_ok()
            };
            for name in ["peer-1", "peer-2"] {
                place.phase(name, "Running").await;
                wait_for(|| try_from("closed", name), "the server to answer").await;
            }
            for name in ["stranger-1", "stranger-2"] {
                outside.phase(name, "Running").await;
                assert!(try_from("outside", name), "before the policy, everybody gets in");
            }
            let selector = json!({"matchLabels": {"job": "mine"}});
            place
                .create(json!({
                    "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "own"},
                    "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": selector}]}]},
                }))
                .await;
            let started = Instant::now();
            wait_for(|| !try_from("outside", "stranger-1") && !try_from("outside", "stranger-2"), "the policy to be enforced").await;
            tell("network policy, made to enforced", started.elapsed());
            // Strangers on the server's node and across are out; its own on both nodes are still in.
            assert!(!try_from("outside", "stranger-1") && !try_from("outside", "stranger-2"));
            assert!(try_from("closed", "peer-1") && try_from("closed", "peer-2"));
        })
        .await;
    })
    .await;
}

async fn wait_for(good: impl Fn() -> bool, what: &str) {
    let started = Instant::now();
    while !good() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "waited too long for {what}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_resolve_and_services_answer_on_both_nodes() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "names", |place| async move {
        let mut server = on(pod("server", &["python3", "-m", "http.server", "8000"]), NODES[0]);
        server["metadata"]["labels"] = json!({"app": "server"});
        place.create(server).await;
        place.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]}})).await;
        place.phase("server", "Running").await;
        // By short and by full name, to another pod and to the API server; and a name of the world is refused at once.
        let script = "
import socket, time, urllib.request
def get(url):
    for _ in range(100):
        try: return urllib.request.urlopen(url, timeout=3).status
        except OSError: time.sleep(0.2)
print(get('http://web/'), get('http://web.names.svc.cluster.local/'), socket.gethostbyname('kubernetes.default') != '')
started = time.time()
try: socket.gethostbyname('nowhere.example'); print('resolved')
except OSError: print('refused', time.time() - started < 5)
";
        for (index, node) in NODES.iter().enumerate() {
            let name = format!("client-{}", index + 1);
            place.create(on(pod(&name, &["python3", "-c", script]), node)).await;
            place.phase(&name, "Succeeded").await;
            assert_eq!(place.log(&name).await, "200 200 True\nrefused True\n", "on {node}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_both_nodes_use() {
    let testbed = shared(Bare).await;
    let client = testbed.client().await.unwrap();
    let started = Instant::now();
    loop {
        let request = |path: &str| hyper::Request::get(path).body(Vec::new()).unwrap();
        let answer: Result<Value, _> = client.request(request("/apis/metrics.k8s.io/v1beta1/nodes")).await;
        let nodes: Vec<Value> = answer
            .ok()
            .and_then(|a| a["items"].as_array().cloned())
            .unwrap_or_default();
        let used = |node: &str| {
            nodes
                .iter()
                .any(|n| n["metadata"]["name"] == node && !text(n, "/usage/memory").is_empty())
        };
        if NODES.iter().all(|node| used(node)) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(90), "no metrics: {nodes:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Compares what is stable of a status with the saved fixture; `TRAINYARD_TESTBED_WRITE_FIXTURES=1` saves it anew.
fn fixture(name: &str, document: &Value, stable: &[&str]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(format!("{name}.json"));
    if std::env::var_os("TRAINYARD_TESTBED_WRITE_FIXTURES").is_some() {
        let text = serde_json::to_string_pretty(document).unwrap();
        trainyard_testbed::layout::write(&path, text + "\n").unwrap();
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for pointer in stable {
        assert!(saved.pointer(pointer).is_some(), "{name}: the fixture has no {pointer}");
        assert_eq!(
            document.pointer(pointer),
            saved.pointer(pointer),
            "{name}: {pointer} is no longer what the fixture says"
        );
    }
}

/// The document without what only clutters it.
fn slim(mut document: Value) -> Value {
    if let Some(metadata) = document["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    document
}

const STATE: &str = "/status/containerStatuses/0/state";

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_pod_is_oom_killed() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "greedy", |place| async move {
        let mut greedy = pod(
            "greedy",
            &["python3", "-c", "a = []\nwhile True: a.append(bytearray(1 << 20))"],
        );
        greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
        place.create(greedy).await;
        let ended = place.phase("greedy", "Failed").await;
        assert_eq!(text(&ended, &format!("{STATE}/terminated/reason")), "OOMKilled");
        fixture(
            "oom-killed",
            &slim(ended),
            &[
                "/status/phase",
                "/status/containerStatuses/0/state/terminated/reason",
                "/status/containerStatuses/0/state/terminated/exitCode",
            ],
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_an_err_image_pull_and_nobody_looks_it_up_outside() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "pull", |place| async move {
        let mut missing = pod("missing", &["true"]);
        missing["spec"]["containers"][0]["image"] = json!("localhost:1/team/model:v1");
        place.create(missing).await;
        let pointer = format!("{STATE}/waiting/reason");
        let first = place
            .pod_until("missing", MINUTES, |p| text(p, &pointer) == "ErrImagePull")
            .await;
        fixture(
            "err-image-pull",
            &slim(first),
            &["/status/phase", "/status/containerStatuses/0/state/waiting/reason"],
        );
        let second = place
            .pod_until("missing", MINUTES, |p| text(p, &pointer) == "ImagePullBackOff")
            .await;
        fixture(
            "image-pull-back-off",
            &slim(second),
            &["/status/containerStatuses/0/state/waiting/reason"],
        );
        // Whatever a pod or a node asks for: all ways lead to the control plane, and it knows no way out.
        let control = testbed.control();
        control.run(["ip", "route", "get", &testbed.layout.node_ip(1)]).unwrap();
        let out = control
            .run(["ip", "route", "get", "192.0.2.1"])
            .unwrap_err()
            .to_string();
        assert!(out.contains("unreachable"), "{out}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_is_unschedulable() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "unschedulable", |place| async move {
        let mut large = pod("large", &["true"]);
        large["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "16"}});
        place.create(large).await;
        let waiting = place
            .pod_until("large", MINUTES, |p| {
                find_condition(p, "PodScheduled").is_some_and(|c| c["reason"] == "Unschedulable")
            })
            .await;
        let message = text(find_condition(&waiting, "PodScheduled").unwrap(), "/message");
        println!("unschedulable: {message}");
        assert!(message.contains("2 Insufficient nvidia.com/gpu"), "{message}");
        fixture(
            "unschedulable",
            &slim(waiting),
            &[
                "/status/phase",
                "/status/conditions/0/reason",
                "/status/conditions/0/status",
            ],
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_keeps_failing_is_in_crash_loop_back_off() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "crash", |place| async move {
        let mut crashing = pod("crashing", &["sh", "-c", "echo about to fail; exit 3"]);
        crashing["spec"]["restartPolicy"] = json!("Always");
        place.create(crashing).await;
        let waiting = place
            .pod_until("crashing", MINUTES, |p| {
                text(p, &format!("{STATE}/waiting/reason")) == "CrashLoopBackOff"
            })
            .await;
        assert_eq!(
            text(&waiting, "/status/containerStatuses/0/lastState/terminated/exitCode"),
            "3"
        );
        fixture(
            "crash-loop-back-off",
            &slim(waiting),
            &[
                "/status/containerStatuses/0/state/waiting/reason",
                "/status/containerStatuses/0/lastState/terminated/exitCode",
            ],
        );
    })
    .await;
}

fn refusal(outcome: Result<kube::api::DynamicObject, kube::Error>) -> Value {
    match outcome {
        Err(kube::Error::Api(status)) => serde_json::to_value(&status).unwrap(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_refuses() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "refused", |place| async move {
        let webhook = Refusal::start(
            testbed,
            &place.client,
            "refused",
            "",
            "pods",
            "only images of the team are allowed",
        )
        .await
        .unwrap();
        // The API server learns of a webhook a moment after it was made.
        let mut tries = 0;
        let answer = loop {
            match place.try_create(pod(&format!("try-{tries}"), &["true"])).await {
                Ok(_) if tries < 100 => tries += 1,
                other => break refusal(other),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(answer["code"], 403);
        assert_eq!(
            text(&answer, "/message"),
            r#"admission webhook "refusal.testbed.local" denied the request: only images of the team are allowed"#
        );
        assert!(webhook.asked() >= 1);
        fixture("webhook-refusal", &answer, &["/code", "/message"]);
        webhook.lift().await.unwrap();
        let started = Instant::now();
        while place.try_create(pod("afterwards", &["true"])).await.is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "still refused after the webhook is gone"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_refuses() {
    let testbed = shared(Bare).await;
    in_namespace(testbed, "quota", |place| async move {
        quota::limit(&place.client, "quota", "pods", "0").await.unwrap();
        let answer = refusal(place.try_create(pod("one-too-many", &["true"])).await);
        assert_eq!((&answer["code"], &answer["reason"]), (&json!(403), &json!("Forbidden")));
        assert!(text(&answer, "/message").contains("exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0"), "{answer}");
        fixture("quota-refusal", &answer, &["/code", "/reason", "/message"]);
        // A Job meets it out of sight: it is made, and its controller says why there is no pod.
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE, "command": ["true"]}]});
        place.create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": {"spec": spec}}})).await;
        let event = event(&place, "FailedCreate").await;
        fixture("quota-refusal-event", &slim(event), &["/reason", "/type"]);
        quota::lift(&place.client, "quota").await.unwrap();
        place.create(pod("fits", &["true"])).await;
        place.phase("fits", "Succeeded").await;
        assert!(!is_true(&place.until("batch/v1", "Job", "job", MINUTES, |j| !j.is_null()).await, "Failed"));
    })
    .await;
}

async fn event(place: &Place, reason: &str) -> Value {
    let started = Instant::now();
    loop {
        let events = place.api("v1", "Event").list(&Default::default()).await.unwrap();
        let found = events
            .iter()
            .map(|e| serde_json::to_value(e).unwrap())
            .find(|e| e["reason"] == reason);
        if let Some(event) = found {
            return event;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "no event {reason}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
