//! Profile mpi2: the MPI operator's own kind, and the training operator beside it without its own.

mod support;

use serde_json::json;
use std::time::Instant;
use support::{IMAGE, in_namespace, shared, tell, text};
use trainyard_testbed::Profile::Mpi2;

#[tokio::test(flavor = "multi_thread")]
async fn an_mpijob_computes_pi_over_both_nodes() {
    let testbed = shared(Mpi2).await;
    in_namespace(testbed, "mpi", |place| async move {
        let started = Instant::now();
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"role": "pi-worker"}},
        }]);
        let mpirun = ["mpirun", "--allow-run-as-root", "-np", "2", "--map-by", "node", "python3", "/opt/training/pi.py"];
        let launcher = json!({"restartPolicy": "OnFailure", "containers": [{"name": "mpi", "image": IMAGE, "command": mpirun}]});
        let worker = json!({"topologySpreadConstraints": spread, "containers": [{"name": "mpi", "image": IMAGE, "command": ["/usr/sbin/sshd", "-De"]}]});
        place
            .create(json!({
                "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "pi"},
                "spec": {
                    "slotsPerWorker": 1,
                    // A launcher that starts before its workers' sshd burns its retries.
                    "launcherCreationPolicy": "WaitForWorkersReady",
                    "runPolicy": {"cleanPodPolicy": "None"},
                    "mpiReplicaSpecs": {
                        "Launcher": {"replicas": 1, "template": {"spec": launcher}},
                        "Worker": {"replicas": 2, "template": {"metadata": {"labels": {"role": "pi-worker"}}, "spec": worker}},
                    },
                },
            }))
            .await;
        place.condition("kubeflow.org/v2beta1", "MPIJob", "pi", "Succeeded").await;
        tell("MPIJob of two workers, created to Succeeded", started.elapsed());
        let logs = place.logs("training.kubeflow.org/job-role=launcher").await;
        let line = logs.iter().flat_map(|(_, _, log)| log.lines()).find(|l| l.starts_with("pi=")).unwrap_or_else(|| panic!("{logs:?}")).to_string();
        println!("{line}");
        assert!(line.starts_with("pi=3.141593 ranks=2 hosts=pi-worker-0,pi-worker-1"), "{line}");
        let workers = place.pods().list(&kube::api::ListParams::default().labels("role=pi-worker")).await.unwrap();
        let nodes: std::collections::BTreeSet<_> = workers.iter().filter_map(|p| p.spec.as_ref()?.node_name.clone()).collect();
        assert_eq!(nodes.len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_training_operator_serves_its_other_kinds_beside_it() {
    let testbed = shared(Mpi2).await;
    in_namespace(testbed, "beside", |place| async move {
        let spec = json!({"containers": [{"name": "pytorch", "image": IMAGE, "command": ["python3", "allreduce.py"]}]});
        place
            .create(json!({
                "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "one"},
                "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": spec}}}},
            }))
            .await;
        place.condition("kubeflow.org/v1", "PyTorchJob", "one", "Succeeded").await;
        assert!(place.log("one-master-0").await.contains("world=1 sum=1"));
        let versions = testbed.kubectl(&["get", "crd", "mpijobs.kubeflow.org", "-o", "jsonpath={.spec.versions[*].name}"]).unwrap();
        assert_eq!(text(&json!({"v": versions}), "/v"), "v2beta1");
    })
    .await;
}
