//! What is installed on top: the operators, from their own manifests.

use crate::build::manifests::{documents, to_text};
use crate::cluster::Testbed;
use crate::error::{Doing, Error, Result};
use crate::layout::write;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_yaml_ng::Value;
use std::time::{Duration, Instant};

/// `mpijobs.kubeflow.org` exists once per cluster, in two versions that exclude each other: hence two profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Profile {
    /// Nodes, DNS, network policies, storage, metrics; no operator.
    Bare,
    /// Training operator (all kinds), JobSet, Kueue, Trainer.
    V1,
    /// MPI operator v2beta1 and the training operator without its own MPIJob.
    Mpi2,
}

impl Profile {
    fn manifests(self) -> &'static [&'static str] {
        match self {
            Profile::Bare => &["local-path", "metrics-server"],
            // JobSet before Trainer, which looks for it once, at its start. Kueue after every Deployment, since none can be made while
            // its webhook is installed and not yet up.
            Profile::V1 => &[
                "local-path",
                "metrics-server",
                "training-operator",
                "jobset",
                "trainer",
                "kueue",
                "trainer-runtime",
            ],
            Profile::Mpi2 => &["local-path", "metrics-server", "training-operator", "mpi-operator"],
        }
    }
}

/// Installs a profile and waits until its operators answer.
pub async fn install(testbed: &Testbed, client: &Client, say: &dyn Fn(&str)) -> Result<()> {
    let profile = testbed.options.profile;
    // Trainer's webhook judges the runtime, and is not up at once: hence the retries.
    for name in profile.manifests() {
        retry(name, || async { apply(testbed, name) }).await?;
    }
    await_deployments(client).await?;
    if profile == Profile::V1 {
        retry("Kueue's webhook", || try_deployment(client.clone())).await?;
    }
    say(&format!("profile {profile:?} is installed"));
    Ok(())
}

fn apply(testbed: &Testbed, name: &str) -> Result<()> {
    let mut file = testbed.built.manifests.join(format!("{name}.yaml"));
    if name == "training-operator" && testbed.options.profile == Profile::Mpi2 {
        let text = std::fs::read_to_string(&file).doing("cannot read a manifest")?;
        file = testbed.layout.dir().join("training-operator-without-mpi.yaml");
        write(&file, without_mpi(&text)?)?;
    }
    let file = file.to_string_lossy().into_owned();
    testbed
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file])
        .map(|_| ())
}

/// The training operator without MPIJob: no CRD, no webhook, and told to serve every kind but that.
fn without_mpi(text: &str) -> Result<String> {
    let mut kept = documents(text)?;
    kept.retain(|d| d["metadata"]["name"].as_str() != Some("mpijobs.kubeflow.org"));
    for document in &mut kept {
        if document["kind"].as_str() == Some("Deployment") {
            let args: Vec<Value> = ["tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob"]
                .map(|k| format!("--enable-scheme={k}").into())
                .to_vec();
            document["spec"]["template"]["spec"]["containers"][0]["args"] = Value::Sequence(args);
        }
        if let Some(webhooks) = document.get_mut("webhooks").and_then(Value::as_sequence_mut) {
            webhooks.retain(|w| !w["name"].as_str().unwrap_or_default().contains("mpijob"));
        }
    }
    to_text(&kept)
}

/// How long nothing may move before the wait is given up. Operators start one after another on two cores that others use as well,
/// so a limit on the whole would say more about the machine's load than about them.
const STALLED: Duration = Duration::from_secs(240);

async fn await_deployments(client: &Client) -> Result<()> {
    let api: Api<Deployment> = Api::all(client.clone());
    let (mut fewest, mut moved) = (usize::MAX, Instant::now());
    loop {
        let list = api.list(&Default::default()).await.doing("cannot list deployments")?;
        let waiting: Vec<String> = list
            .iter()
            .filter(|d| {
                d.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
                    < d.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
            })
            .filter_map(|d| d.metadata.name.clone())
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if waiting.len() < fewest {
            (fewest, moved) = (waiting.len(), Instant::now());
        }
        if moved.elapsed() > STALLED {
            return Err(Error::Timeout {
                what: format!("operators: {}", waiting.join(", ")),
                after: moved.elapsed(),
                last: format!(":\n{}", unready(client).await?.join("\n")),
            });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// What each pod that is not ready says of its containers, for the error that names what did not come up.
async fn unready(client: &Client) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::all(client.clone());
    let list = pods.list(&Default::default()).await.doing("cannot list pods")?;
    let statuses = list.iter().filter_map(|pod| {
        let status = pod.status.as_ref()?;
        let ready = |c: &ContainerStatus| c.ready;
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        if !containers.is_empty() && containers.iter().all(ready) {
            return None;
        }
        let text = serde_json::to_string(&(&status.phase, &status.conditions, containers)).unwrap_or_default();
        Some(format!("{}: {text}", pod.metadata.name.as_deref().unwrap_or_default()))
    });
    Ok(statuses.collect())
}

/// While Kueue's webhook is not reachable, nobody can make a Deployment; a dry run tells.
async fn try_deployment(client: Client) -> Result<()> {
    let labels = serde_json::json!({"app": "probe"});
    let probe = serde_json::json!({
        "metadata": {"name": "probe"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}},
    });
    let probe: Deployment = serde_json::from_value(probe).map_err(|e| Error::Refused(e.to_string()))?;
    let api: Api<Deployment> = Api::namespaced(client, "default");
    api.create(
        &PostParams {
            dry_run: true,
            ..Default::default()
        },
        &probe,
    )
    .await
    .doing("dry run of a deployment")?;
    Ok(())
}

async fn retry<F: Future<Output = Result<()>>>(what: &str, attempt: impl Fn() -> F) -> Result<()> {
    let started = Instant::now();
    loop {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(120) => {
                return Err(Error::Timeout {
                    what: what.into(),
                    after: started.elapsed(),
                    last: format!(": {error}"),
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
}
