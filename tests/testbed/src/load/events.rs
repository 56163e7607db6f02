//! Changes pods at a set rate, so that whoever watches them gets that many events.

use super::fill::{namespace, pod_name};
use crate::error::{Doing, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What came of it.
#[derive(Debug)]
pub struct Generated {
    pub events: usize,
    pub took: Duration,
}

impl Generated {
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }
}

/// Makes `total` changes to the pods of a filled cluster, `per_second` of them, as evenly as the API server lets. Each pod's
/// annotation counts up, so no change is one that the API server may swallow.
pub async fn generate(client: &Client, pods: usize, per_second: u32, total: usize) -> Result<Generated> {
    let started = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
    // A slow answer must not lower the rate: what is late is caught up with.
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for number in 0..total {
        pace.tick().await;
        // Bounded, so that an API server that cannot keep up is measured and not drowned.
        if under_way.len() >= super::nodes::WRITERS * 2 {
            join(&mut under_way).await?;
        }
        let client = client.clone();
        let index = number % pods.max(1);
        under_way.spawn(async move {
            let api: Api<Pod> = Api::namespaced(client, &namespace(index));
            let change = serde_json::json!({"metadata": {"annotations": {"testbed/change": number.to_string()}}});
            api.patch_metadata(&pod_name(index), &PatchParams::default(), &Patch::Merge(change))
                .await
                .map(drop)
                .doing("cannot change a pod")
        });
    }
    while !under_way.is_empty() {
        join(&mut under_way).await?;
    }
    Ok(Generated {
        events: total,
        took: started.elapsed(),
    })
}

async fn join(under_way: &mut JoinSet<Result<()>>) -> Result<()> {
    match under_way.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(panic)) => Err(crate::Error::Refused(format!("a change ended oddly: {panic}"))),
        None => Ok(()),
    }
}
