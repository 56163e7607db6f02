//! Verbs: what a person can do. Each checks, decides, writes the wish with its event and its audit line, and pokes a
//! worker, all in one transaction. Nothing here calls a cluster or a cloud, and nothing here moves a phase.
//!
//! - [`refusal`]: every way a verb can say no.
//! - [`create`] and [`batch`]: submitting jobs, many with one statement.
//! - [`wish`]: cancel, suspend, resume, delete, priority.
//! - [`report`]: checkpoints and metric points, by a job's own processes or a member.
//! - [`people`], [`tokens`], [`sign_in`], [`secrets`], [`clusters`], [`code`]: everything else.
//! - [`gone`]: a machine that will not come back.
//! - [`restored`]: the word that ends the time of only observing after a restore.
//! - [`rotate`]: a new key for the secrets.
//! - [`bootstrap`]: the first start.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::sync::OnceCell;
use trainyard_core::model::{AuditId, TeamId};
use uuid::Uuid;

use crate::{
    clock::Clock,
    db::{Db, DbError, access::Caller, audit, installation},
    keys::KeyFile,
};

pub mod batch;
pub mod bootstrap;
pub mod clusters;
pub mod code;
pub mod create;
pub mod gone;
pub mod people;
pub mod refusal;
pub mod report;
pub mod restored;
pub mod rotate;
pub mod secrets;
pub mod sign_in;
pub mod tokens;
pub mod wake;
pub mod wish;

pub use refusal::{FieldFault, Refusal};

/// What verbs work with. Cheap to clone.
#[derive(Clone)]
pub struct Actions {
    pub db: Db,
    pub clock: Arc<dyn Clock>,
    pub keys: Arc<KeyFile>,
    pub(crate) creator: batch::Creator,
    pub(crate) wake: wake::Waker,
    installation: Arc<OnceCell<Uuid>>,
}

/// Deeds lock what they are about and then ask for a look at it; a worker has its look and then locks what it is about.
/// Where the two meet, the database undoes one of them, and the deed is done again, four times in all at most.
async fn despite_collisions<T, F>(deed: impl Fn() -> F) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    for _ in 1..4 {
        match deed().await {
            Err(Refusal::Db(error)) if error.is_collision() => {}
            done => return done,
        }
    }
    deed().await
}

/// Who asks, and in which request.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub caller: &'a Caller,
    pub request: &'a str,
}

impl Actions {
    /// Starts the two small tasks that gather creates and wake-ups; they end when the last clone is gone.
    pub fn new(db: Db, clock: Arc<dyn Clock>, keys: Arc<KeyFile>) -> Self {
        let wake = wake::Waker::start(db.clone(), clock.clone());
        let creator = batch::Creator::start(db.clone(), clock.clone(), wake.clone());
        Self {
            db,
            clock,
            keys,
            creator,
            wake,
            installation: Arc::new(OnceCell::new()),
        }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The installation's id, read once.
    pub async fn installation(&self) -> Result<Uuid, Refusal> {
        let id = self
            .installation
            .get_or_try_init(|| async {
                match installation::read(&self.db).await {
                    Ok(row) => Ok(row.id),
                    Err(DbError::NotFound) => Err(Refusal::NotStarted),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        Ok(*id)
    }
}

impl Ask<'_> {
    /// The audit line of a deed.
    fn entry<'a>(
        &'a self,
        action: &'a str,
        kind: &'a str,
        subject: Uuid,
        team: Option<TeamId>,
        detail: Value,
    ) -> audit::NewEntry<'a> {
        audit::NewEntry {
            id: AuditId(Uuid::now_v7()),
            actor: Some(self.caller.actor.user),
            token: self.caller.actor.token,
            action,
            subject_kind: kind,
            subject: Some(subject),
            team,
            detail,
            request: self.request,
        }
    }

    /// Refuses all but admins.
    fn admin(&self) -> Result<(), Refusal> {
        if self.caller.actor.admin {
            Ok(())
        } else {
            Err(Refusal::Forbidden {
                needs: "the role admin".into(),
            })
        }
    }
}

/// A missing record, by what it was looked for as.
fn found<T>(what: &'static str, id: impl ToString, result: Result<T, DbError>) -> Result<T, Refusal> {
    result.map_err(|error| match error {
        DbError::NotFound => Refusal::NotFound {
            what,
            id: id.to_string(),
        },
        other => other.into(),
    })
}
