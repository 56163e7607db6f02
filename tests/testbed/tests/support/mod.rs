//! What the suites share: one instance per test binary, a namespace per test, waiting with a reason, logs.
#![allow(dead_code)] // Each suite uses its part.

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use trainyard_testbed::load::fill::make_namespace;
use trainyard_testbed::{Options, Profile, Testbed};

pub const IMAGE: &str = "trainyard-test/torch:1";
/// A deadline for what may take minutes when others use the two cores as well; reaching it is a failure, not a measurement.
pub const MINUTES: Duration = Duration::from_secs(600);

static SHARED: OnceCell<Testbed> = OnceCell::const_new();

/// The binary's instance; it ends with the process.
pub async fn shared(profile: Profile) -> &'static Testbed {
    SHARED
        .get_or_init(|| async {
            Testbed::start(Options::new(profile))
                .await
                .unwrap_or_else(|e| panic!("{e}"))
        })
        .await
}

/// One test's place: a client and a namespace, which is deleted afterwards, also when the test fails.
pub struct Place {
    pub client: Client,
    pub namespace: String,
}

pub async fn in_namespace<F: Future<Output = ()>>(testbed: &Testbed, name: &str, test: impl FnOnce(Place) -> F) {
    let client = testbed.client().await.unwrap();
    make_namespace(&client, name).await.unwrap();
    let place = Place {
        client: client.clone(),
        namespace: name.into(),
    };
    let outcome = AssertUnwindSafe(test(place)).catch_unwind().await;
    let namespaces: Api<Namespace> = Api::all(client);
    let _ = namespaces.delete(name, &DeleteParams::default()).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

impl Place {
    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(api_version, kind))
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object from its document, in this namespace.
    pub async fn create(&self, document: Value) -> DynamicObject {
        self.try_create(document).await.unwrap_or_else(|e| panic!("{e}"))
    }

    pub async fn try_create(&self, document: Value) -> Result<DynamicObject, kube::Error> {
        let (version, kind) = (text(&document, "/apiVersion"), text(&document, "/kind"));
        let api = self.api(&version, &kind);
        api.create(&PostParams::default(), &serde_json::from_value(document).unwrap())
            .await
    }

    /// Waits until an object's document satisfies `good`, and gives the document.
    pub async fn until(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        within: Duration,
        good: impl Fn(&Value) -> bool,
    ) -> Value {
        let api = self.api(version, kind);
        let started = Instant::now();
        loop {
            let document = api
                .get_opt(name)
                .await
                .unwrap()
                .map(|o| serde_json::to_value(o).unwrap())
                .unwrap_or_default();
            if good(&document) {
                return document;
            }
            if started.elapsed() > within {
                let pods = self.pods().list(&ListParams::default()).await.unwrap();
                let pods: Vec<_> = pods
                    .iter()
                    .map(|p| format!("{} {}", p.name_any(), serde_json::to_string(&p.status).unwrap()))
                    .collect();
                panic!(
                    "{kind} {name} after {within:?}: {}\npods: {}",
                    document["status"],
                    pods.join("\n")
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits for a condition to be True.
    pub async fn condition(&self, version: &str, kind: &str, name: &str, condition: &str) -> Value {
        self.until(version, kind, name, MINUTES, |d| is_true(d, condition))
            .await
    }

    pub async fn pod_until(&self, name: &str, within: Duration, good: impl Fn(&Value) -> bool) -> Value {
        self.until("v1", "Pod", name, within, good).await
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.pod_until(name, MINUTES, |p| text(p, "/status/phase") == phase)
            .await
    }

    pub async fn log(&self, pod: &str) -> String {
        self.pods()
            .logs(pod, &LogParams::default())
            .await
            .unwrap_or_else(|e| panic!("log of {pod}: {e}"))
    }

    /// Name, node and log of every pod that a selector finds, ordered by name.
    pub async fn logs(&self, selector: &str) -> Vec<(String, String, String)> {
        let pods = self.pods().list(&ListParams::default().labels(selector)).await.unwrap();
        let mut found = Vec::new();
        for pod in pods {
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
            found.push((pod.name_any(), node, self.log(&pod.name_any()).await));
        }
        found.sort();
        found
    }
}

pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub fn text(document: &Value, pointer: &str) -> String {
    match document.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

pub fn is_true(document: &Value, condition: &str) -> bool {
    find_condition(document, condition).is_some_and(|c| c["status"] == "True")
}

pub fn find_condition<'a>(document: &'a Value, condition: &str) -> Option<&'a Value> {
    document["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == condition)
}

/// A pod that runs one command of the training image.
pub fn pod(name: &str, command: &[&str]) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": IMAGE, "command": command}],
        },
    })
}

pub fn on(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// Prints a measured time; times are told and never asserted.
pub fn tell(what: &str, time: Duration) {
    println!("measured: {what}: {:.1} s", time.as_secs_f64());
}
