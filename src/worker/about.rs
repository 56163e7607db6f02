//! What ingest must know of an attempt before it stores a byte of its output.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::ExposeSecret;
use trainyard_core::{catch::Catcher, document::job::Framework, kinds::rendezvous, model::SecretValue};

use super::{
    Worker,
    ingest::{About, AboutAttempts},
    launch,
};
use crate::{
    db::{jobs, logs::write::OpenAttempt},
    job_token,
};

pub struct FromRecords(pub Arc<Worker>);

#[async_trait]
impl AboutAttempts for FromRecords {
    async fn about(&self, attempt: &OpenAttempt) -> Result<About, String> {
        let worker = &self.0;
        let job = jobs::load(&worker.db, attempt.key.job())
            .await
            .map_err(|error| error.to_string())?;
        // Every version that the attempt may have been given is masked, the one that was replaced since included.
        let mut secrets = launch::every_version(worker, job.team, &launch::secret_refs(&job.document))
            .await
            .map_err(|error| error.to_string())?;
        let tokens = job_token::every(&(worker.keys)(), attempt.id).map_err(|error| error.to_string())?;
        secrets.extend(tokens.iter().map(|token| SecretValue(token.expose_secret().to_owned())));
        let mut catcher = Catcher::new(&job.document.metrics).map_err(|error| error.to_string())?;
        if job.document.framework == Framework::Mpi {
            catcher = catcher.with_tags();
        }
        Ok(About {
            secrets,
            catch: Arc::new(move |line, found| catcher.each(line, found)),
            ranks: Arc::new(move |rank| rendezvous::mpi_rank(&job.document, rank)),
        })
    }
}
