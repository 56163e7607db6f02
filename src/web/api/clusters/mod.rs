//! Clusters, their grants and node pools.

use trainyard_core::model::ClusterId;

use super::super::{Error, WebState, extract::Asker};
use crate::db::{
    DbError,
    clusters_read::{self, Cluster},
};

pub mod conditions;
pub mod events;
pub mod get;
pub mod grants;
pub mod list;
pub mod node_pools;
pub mod put_grant;
pub mod remove_grant;

/// The cluster, if the caller may see it.
async fn seen(state: &WebState, asker: &Asker, cluster: ClusterId) -> Result<Cluster, Error> {
    clusters_read::get(&state.db, &asker.scope(), cluster)
        .await
        .map_err(|error| match error {
            DbError::NotFound => Error::not_found("cluster", &cluster.to_string()),
            other => other.into(),
        })
}
