//! A machine that will not come back. Nobody can see that from here, so a person has to say it.

use serde_json::json;
use trainyard_core::{model::NodeId, plan::words};

use super::{Actions, Ask, FieldFault, Refusal, despite_collisions, found};
use crate::db::{
    DbError, audit, gone, nodes_read,
    nodes_read::Node,
    tasks::{self, TaskKind},
};

impl Actions {
    /// Declares a node gone: what lived there ends as lost, the restart policy applies, and what waited for it may go
    /// elsewhere. Should the machine come back after all, it does so as a new node, and ends what still runs on it.
    pub async fn declare_gone(&self, ask: Ask<'_>, node: NodeId) -> Result<Node, Refusal> {
        ask.admin()?;
        despite_collisions(|| self.try_declare_gone(ask, node)).await?;
        self.wake.subject(node.0);
        found(
            "node",
            node,
            nodes_read::get(&self.db, &ask.caller.actor.scope(), node).await,
        )
    }

    async fn try_declare_gone(&self, ask: Ask<'_>, node: NodeId) -> Result<(), Refusal> {
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let candidate = found("node", node, gone::lock(&mut tx, node).await)?;
        if candidate.gone_at.is_some() {
            return Ok(());
        }
        let Some(machine) = &candidate.machine else {
            return Err(Refusal::fault(
                FieldFault::new(
                    "node",
                    "not_ours_to_tell",
                    "the cluster itself tells which of its nodes are gone",
                )
                .value(&candidate.name)
                .hint("remove the node there"),
            ));
        };
        if candidate.stale_since.is_none() {
            return Err(Refusal::Alive {
                node: candidate.name,
                seen: words::exact(candidate.observed_at),
            });
        }
        let message = format!("{} said that it will not come back", ask.caller.actor.name);
        let lost = gone::declare(&mut tx, &candidate, machine, ask.caller.actor.user, &message, now).await?;
        tasks::poke(&mut tx, TaskKind::Place, self.installation().await?, None, now).await?;
        let detail = json!({ "name": candidate.name, "machine": machine, "attempts": lost });
        audit::write(&mut tx, ask.entry("node.gone", "node", node.0, None, detail), now).await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(())
    }
}
