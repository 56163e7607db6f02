//! Nodes: machines of clusters, and what is known of them.

use trainyard_core::model::NodeId;

use super::super::{Error, WebState, extract::Asker};
use crate::db::{
    DbError,
    nodes_read::{self, Node},
};

pub mod conditions;
pub mod events;
pub mod get;
pub mod gone;
pub mod list;
pub mod metrics;
pub mod replicas;

/// The node, if the caller may see its cluster.
async fn seen(state: &WebState, asker: &Asker, node: NodeId) -> Result<Node, Error> {
    nodes_read::get(&state.db, &asker.scope(), node)
        .await
        .map_err(|error| match error {
            DbError::NotFound => Error::not_found("node", &node.to_string()),
            other => other.into(),
        })
}
