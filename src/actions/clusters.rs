//! Grants of clusters, and checks: questions that a worker answers, since the web never calls out.

use serde_json::{Value, json};
use trainyard_core::model::{CheckId, ClusterId, TeamId};
use uuid::Uuid;

use super::{Actions, Ask, FieldFault, Refusal, found};
use crate::db::{
    DbError, audit,
    checks::{self, Check, NewCheck, Place},
    clusters_read::{self, Grant},
    grants::{self, GrantTerms},
    queue,
    tasks::{self, TaskKind},
    teams,
};

/// The questions that can be asked. Each is about a cluster.
pub const CHECK_KINDS: [&str; 1] = ["cluster.look"];

impl Actions {
    /// Lets a team use a cluster, or changes on what terms.
    pub async fn put_grant(
        &self,
        ask: Ask<'_>,
        cluster: ClusterId,
        team: TeamId,
        terms: GrantTerms<'_>,
    ) -> Result<Grant, Refusal> {
        ask.admin()?;
        let scope = ask.caller.actor.scope();
        found("cluster", cluster, clusters_read::get(&self.db, &scope, cluster).await)?;
        found("team", team, teams::get(&self.db, &scope, team).await)?;
        if !matches!(terms.level, "use" | "privileged") {
            return Err(Refusal::fault(
                FieldFault::new("level", "unknown_word", "a grant's level is use or privileged").value(terms.level),
            ));
        }
        let now = self.now();
        let mut tx = self.db.begin().await?;
        grants::put(&mut tx, cluster, team, &terms, now).await?;
        let detail = json!({ "team": team, "level": terms.level, "namespace": terms.namespace, "queue": terms.queue });
        audit::write(
            &mut tx,
            ask.entry("grant.put", "cluster", cluster.0, Some(team), detail),
            now,
        )
        .await?;
        // Jobs of the team may fit somewhere now.
        tasks::poke(&mut tx, TaskKind::Place, self.installation().await?, None, now).await?;
        tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now).await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.subject(cluster.0);
        let all = clusters_read::grants(&self.db, &scope, cluster).await?;
        (all.into_iter().find(|grant| grant.team.id == team)).ok_or(Refusal::Stale)
    }

    /// Takes a cluster away from a team. What runs there goes on; what waits does not start there any more.
    pub async fn remove_grant(&self, ask: Ask<'_>, cluster: ClusterId, team: TeamId) -> Result<(), Refusal> {
        ask.admin()?;
        let now = self.now();
        let mut tx = self.db.begin().await?;
        found("grant", team, grants::remove(&mut tx, cluster, team).await)?;
        let detail = json!({ "team": team });
        audit::write(
            &mut tx,
            ask.entry("grant.remove", "cluster", cluster.0, Some(team), detail),
            now,
        )
        .await?;
        // What named no cluster may go elsewhere; the rest waits for another grant.
        queue::unplace(&mut tx, cluster, Some(team)).await?;
        tasks::poke(&mut tx, TaskKind::Place, self.installation().await?, None, now).await?;
        tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now).await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.subject(cluster.0);
        Ok(())
    }

    /// Writes a question down and wakes whoever can answer it.
    pub async fn ask_check(
        &self,
        ask: Ask<'_>,
        kind: &str,
        cluster: ClusterId,
        question: &Value,
    ) -> Result<Check, Refusal> {
        if !CHECK_KINDS.contains(&kind) {
            return Err(Refusal::fault(
                FieldFault::new("kind", "unknown_word", "there is no check of that kind")
                    .value(kind)
                    .hint(format!("one of: {}", CHECK_KINDS.join(", "))),
            ));
        }
        let scope = ask.caller.actor.scope();
        found("cluster", cluster, clusters_read::get(&self.db, &scope, cluster).await)?;
        let id = CheckId(Uuid::now_v7());
        let now = self.now();
        let new = NewCheck {
            id,
            kind,
            cluster: Some(cluster),
            by: ask.caller.actor.user,
            question,
        };
        let is_gone = checks::place(&self.db, cluster).await? == Place::Gone;
        let mut tx = self.db.begin().await?;
        let machine = checks::insert(&mut tx, &new, now).await?;
        // A machine that is gone answers nothing; whoever is left says so.
        let machine = machine.filter(|_| !is_gone);
        tasks::poke(&mut tx, TaskKind::Check, id.0, machine.as_deref(), now).await?;
        audit::write(
            &mut tx,
            ask.entry("check.ask", "check", id.0, None, json!({ "kind": kind })),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.subject(id.0);
        Ok(checks::get(&self.db, None, id).await?)
    }
}
