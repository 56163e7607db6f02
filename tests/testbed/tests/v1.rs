//! Profile v1: every kind of job that its operators serve, over both real nodes, and a queue.

mod support;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::{IMAGE, MINUTES, Place, in_namespace, is_true, shared, tell, text};
use trainyard_testbed::Profile::V1;
use trainyard_testbed::faults::nodes::set_devices;
use trainyard_testbed::layout::NODES;

/// A pod template whose pods spread over the nodes and ask for a GPU.
fn template(container: &str, command: &[&str], label: Value) -> Value {
    json!({
        "metadata": {"labels": label},
        "spec": {
            "restartPolicy": "Never",
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": label},
            }],
            "containers": [{
                "name": container, "image": IMAGE, "command": command,
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            }],
        },
    })
}

async fn with_gpus(place: &Place) {
    for node in NODES {
        set_devices(&place.client, node, "nvidia.com/gpu", 8).await.unwrap();
    }
}

/// All ranks summed the same, and they ran on both nodes.
fn assert_all_reduced(logs: &[(String, String, String)], ranks: usize) {
    assert_eq!(logs.len(), ranks, "{logs:?}");
    let sum = ranks * (ranks + 1) / 2;
    let mut seen = BTreeSet::new();
    for (pod, _, log) in logs {
        let line = log
            .lines()
            .find(|l| l.starts_with("allreduce "))
            .unwrap_or_else(|| panic!("{pod}: {log}"));
        assert!(line.contains(&format!("world={ranks} sum={sum} ")), "{pod}: {line}");
        seen.insert(line.split_whitespace().nth(1).unwrap_or_default().to_string());
    }
    assert_eq!(seen.len(), ranks, "every rank once: {seen:?}");
    let nodes: BTreeSet<_> = logs.iter().map(|(_, node, _)| node.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(NODES), "over both nodes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pytorchjob_over_both_nodes_reduces_with_gloo() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "pytorch", |place| async move {
        with_gpus(&place).await;
        let started = Instant::now();
        let replica = |n: u32| json!({"replicas": n, "restartPolicy": "Never", "template": template("pytorch", &["python3", "allreduce.py"], json!({"job": "reduce"}))});
        place
            .create(json!({
                "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "reduce"},
                "spec": {"pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(2)}},
            }))
            .await;
        place.condition("kubeflow.org/v1", "PyTorchJob", "reduce", "Succeeded").await;
        tell("PyTorchJob of 3 pods, created to Succeeded", started.elapsed());
        assert_all_reduced(&place.logs("training.kubeflow.org/job-name=reduce").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tfjob_gets_its_tf_config() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "tensorflow", |place| async move {
        let replica = |n: u32| {
            let spec = json!({"containers": [{"name": "tensorflow", "image": IMAGE, "command": ["python3", "environment.py"]}]});
            json!({"replicas": n, "restartPolicy": "Never", "template": {"spec": spec}})
        };
        place
            .create(json!({
                "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "tf"},
                "spec": {"tfReplicaSpecs": {"Worker": replica(2), "PS": replica(1)}, "successPolicy": "AllWorkers"},
            }))
            .await;
        place.condition("kubeflow.org/v1", "TFJob", "tf", "Succeeded").await;
        for index in 0..2 {
            let log = place.log(&format!("tf-worker-{index}")).await;
            let environment: Value = serde_json::from_str(&log).unwrap();
            println!("TF_CONFIG of worker {index}: {}", text(&environment, "/TF_CONFIG"));
            let config: Value = serde_json::from_str(&text(&environment, "/TF_CONFIG")).unwrap();
            assert_eq!(config["task"], json!({"type": "worker", "index": index}));
            assert_eq!(config["cluster"]["worker"].as_array().map(Vec::len), Some(2));
            assert_eq!(config["cluster"]["ps"], json!(["tf-ps-0.tensorflow.svc:2222"]));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobset_of_two_jobs_completes() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "jobset", |place| async move {
        let container = json!({"name": "main", "image": IMAGE, "command": ["python3", "classifier.py", "--steps", "40"]});
        let job = json!({"spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
        place
            .create(json!({
                "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "pair"},
                "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": job}, {"name": "b", "replicas": 1, "template": job}]},
            }))
            .await;
        let done = place.condition("jobset.x-k8s.io/v1alpha2", "JobSet", "pair", "Completed").await;
        assert_eq!(text(&done, "/status/terminalState"), "Completed");
        let logs = place.logs("jobset.sigs.k8s.io/jobset-name=pair").await;
        assert_eq!(logs.len(), 2);
        for (pod, _, log) in logs {
            assert!(log.contains("done steps=40"), "{pod}: {log}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexed_job_over_both_nodes_reduces_with_gloo() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "indexed", |place| async move {
        with_gpus(&place).await;
        let labels = json!({"job": "indexed"});
        place
            .create(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
                "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": true},
            }))
            .await;
        let mut template = template("main", &["python3", "allreduce.py"], labels);
        template["spec"]["subdomain"] = json!("peers");
        let environment = template["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        environment.push(json!({"name": "MASTER_ADDR", "value": "indexed-0.peers"}));
        environment.push(json!({"name": "WORLD_SIZE", "value": "3"}));
        place
            .create(json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "indexed"},
                "spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 0, "template": template},
            }))
            .await;
        let done = place.until("batch/v1", "Job", "indexed", MINUTES, |d| is_true(d, "Complete") || is_true(d, "Failed")).await;
        let logs = place.logs("job=indexed").await;
        assert_eq!(text(&done, "/status/completedIndexes"), "0-2", "{logs:?}");
        assert_all_reduced(&logs, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trainjob_over_both_nodes_reduces_with_gloo() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "trainer", |place| async move {
        place
            .create(json!({
                "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train"},
                "spec": {
                    "runtimeRef": {"name": "torch-distributed"},
                    "trainer": {
                        "image": IMAGE, "command": ["python3", "allreduce.py"], "numNodes": 2,
                        // More than half of a node's two cores: one pod fits on each.
                        "resourcesPerNode": {"requests": {"cpu": "1200m"}},
                        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    },
                },
            }))
            .await;
        place
            .condition("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", "Complete")
            .await;
        assert_all_reduced(&place.logs("jobset.sigs.k8s.io/jobset-name=train").await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kueue_admits_a_waiting_job_when_another_ends() {
    let testbed = shared(V1).await;
    in_namespace(testbed, "queued", |place| async move {
        queue(&place).await;
        place
            .create(job("first", "1", "until [ -e /tmp/end ]; do sleep 0.2; done"))
            .await;
        place
            .until("batch/v1", "Job", "first", MINUTES, |d| text(d, "/status/ready") == "1")
            .await;
        place.create(job("second", "1", "true")).await;
        place.create(job("too-large", "5", "true")).await;
        // The queue holds one CPU; the second waits for it, and the third will for ever.
        let message = waiting(&place, "second").await;
        println!("second waits: {message}");
        assert!(message.contains("insufficient unused quota"), "{message}");
        let message = waiting(&place, "too-large").await;
        println!("too-large waits: {message}");
        assert!(message.contains("maximum capacity"), "{message}");
        let second = place
            .until("batch/v1", "Job", "second", MINUTES, |d| !d.is_null())
            .await;
        assert_eq!(second["spec"]["suspend"], true);

        let pods = place
            .pods()
            .list(&kube::api::ListParams::default().labels("job-name=first"))
            .await
            .unwrap();
        let first = pods.items[0].metadata.name.clone().unwrap();
        testbed
            .kubectl(&["-n", "queued", "exec", &first, "--", "touch", "/tmp/end"])
            .unwrap();
        let ended = Instant::now();
        place.condition("batch/v1", "Job", "first", "Complete").await;
        place.condition("batch/v1", "Job", "second", "Complete").await;
        tell("second job Complete after the first was told to end", ended.elapsed());
        let large = place
            .until("batch/v1", "Job", "too-large", MINUTES, |d| !d.is_null())
            .await;
        assert_eq!(large["spec"]["suspend"], true);
        for (kind, name) in [("ClusterQueue", "one-cpu"), ("ResourceFlavor", "real")] {
            let api: kube::Api<kube::api::DynamicObject> =
                kube::Api::all_with(place.client.clone(), &support::resource("kueue.x-k8s.io/v1beta1", kind));
            api.delete(name, &Default::default()).await.unwrap();
        }
    })
    .await;
}

async fn queue(place: &Place) {
    let global = |kind: &str, name: &str, spec: Value| {
        (
            kind.to_string(),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
    };
    let quota = json!([{"name": "cpu", "nominalQuota": "1"}]);
    let groups = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "real", "resources": quota}]}]});
    for (kind, document) in [
        global("ResourceFlavor", "real", json!({})),
        global("ClusterQueue", "one-cpu", groups),
    ] {
        let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
            place.client.clone(),
            &support::resource("kueue.x-k8s.io/v1beta1", &kind),
        );
        let name = text(&document, "/metadata/name");
        api.patch(&name, &PatchParams::apply("testbed").force(), &Patch::Apply(document))
            .await
            .unwrap();
    }
    place
        .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": "one-cpu"}}))
        .await;
}

fn job(name: &str, cpus: &str, command: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", command], "resources": {"requests": {"cpu": cpus}}}],
        }}},
    })
}

/// Why Kueue holds a job back, once it says so.
async fn waiting(place: &Place, job: &str) -> String {
    let workloads = place.api("kueue.x-k8s.io/v1beta1", "Workload");
    let started = Instant::now();
    loop {
        for workload in workloads.list(&Default::default()).await.unwrap() {
            let document = serde_json::to_value(workload).unwrap();
            let reserved = support::find_condition(&document, "QuotaReserved");
            if text(&document, "/metadata/ownerReferences/0/name") == job
                && reserved.is_some_and(|c| c["status"] == "False")
            {
                return text(reserved.unwrap(), "/message");
            }
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "Kueue says nothing about {job}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
