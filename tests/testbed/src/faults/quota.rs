//! A namespace without room.

use crate::error::{Doing, Error, Result};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::{Duration, Instant};

/// Allows `hard` (e.g. `pods` = `0`) in a namespace, and returns when the quota is in force: until its status is filled, nothing is counted.
pub async fn limit(client: &Client, namespace: &str, resource: &str, hard: &str) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let quota = serde_json::json!({"metadata": {"name": "full"}, "spec": {"hard": {resource: hard}}});
    let quota: ResourceQuota = serde_json::from_value(quota).map_err(|e| Error::Refused(e.to_string()))?;
    quotas
        .create(&PostParams::default(), &quota)
        .await
        .doing("cannot make a quota")?;
    let started = Instant::now();
    while quotas
        .get("full")
        .await
        .doing("cannot read a quota")?
        .status
        .and_then(|s| s.hard)
        .is_none()
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
