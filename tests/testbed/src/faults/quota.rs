//! A namespace without room.

use crate::error::{Doing, Error, Result};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use std::time::{Duration, Instant};

/// Allows `hard` (e.g. `pods` = `0`) in a namespace, in place of what it allowed before, and returns when the quota is in force: until its
/// status says the same, nothing is counted.
pub async fn limit(client: &Client, namespace: &str, resource: &str, hard: &str) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let quota = serde_json::json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {resource: hard}},
    });
    let wanted = quotas
        .patch("full", &PatchParams::apply("testbed"), &Patch::Apply(quota))
        .await;
    let wanted = wanted.doing("cannot set a quota")?.spec.and_then(|s| s.hard);
    let started = Instant::now();
    while quotas
        .get("full")
        .await
        .doing("cannot read a quota")?
        .status
        .and_then(|s| s.hard)
        != wanted
    {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(Error::Timeout {
                what: "a quota to be in force".into(),
                after: started.elapsed(),
                last: String::new(),
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

pub async fn lift(client: &Client, namespace: &str) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    quotas
        .delete("full", &Default::default())
        .await
        .map(drop)
        .doing("cannot lift a quota")
}
