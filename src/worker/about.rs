//! What ingest must know of an attempt before it stores a byte of its output.

use std::sync::Arc;

use async_trait::async_trait;
use trainyard_core::catch::Catcher;

use super::{
    Worker,
    ingest::{About, AboutAttempts},
    launch,
};
use crate::db::{jobs, logs::write::OpenAttempt};

pub struct FromRecords(pub Arc<Worker>);

#[async_trait]
impl AboutAttempts for FromRecords {
    async fn about(&self, attempt: &OpenAttempt) -> Result<About, String> {
        let worker = &self.0;
        let job = jobs::load(&worker.db, attempt.key.job())
            .await
            .map_err(|error| error.to_string())?;
        // Every version that the attempt may have been given is masked, the one that was replaced since included.
        let secrets = launch::every_version(worker, job.team, &launch::secret_refs(&job.document))
            .await
            .map_err(|error| error.to_string())?;
        let catcher = Catcher::new(&job.document.metrics).map_err(|error| error.to_string())?;
        Ok(About {
            secrets,
            catch: Arc::new(move |line| catcher.catch(line)),
        })
    }
}
