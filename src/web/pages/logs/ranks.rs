//! Ranks of `mpirun` on a page of output: the launcher prints what they say, each line with its rank's tag.

use trainyard_core::{
    document::job::{Framework, JobDocument},
    kinds::rendezvous::{self, RANK},
};

use super::LogsQuery;
use crate::{
    db::{
        Db,
        logs::JobKey,
        metrics::{self, Owner, Selection},
    },
    logs::page::Filter,
    web::{Error, pages::view::SelectOption},
};

/// So many are offered; an address names any other.
const OFFERED: u32 = 1_000;

/// The document of an MPI job; none of any other.
pub fn mpi_job(document: &str) -> Option<JobDocument> {
    let document: JobDocument = serde_json::from_str(document).ok()?;
    (document.framework == Framework::Mpi).then_some(document)
}

/// What an address chooses of an MPI job. A slot prints nothing itself: what the rank in it says is meant.
pub fn under_mpirun(filter: Filter, document: &JobDocument) -> Filter {
    let slot = filter
        .role
        .as_deref()
        .zip(filter.index)
        .and_then(|(role, index)| rendezvous::rank_of_slot(document, role, index.unsigned_abs()));
    let filter = match slot.and_then(|rank| i32::try_from(rank).ok()) {
        Some(rank) => Filter {
            role: None,
            index: None,
            rank: filter.rank.or(Some(rank)),
            ..filter
        },
        None => filter,
    };
    filter.under_mpirun()
}

/// The ranks to choose from: as many as slots, or as have told a number where only `mpirun` was told how many, and the one
/// that is chosen.
pub async fn options(
    db: &Db,
    key: JobKey,
    attempt: i32,
    document: &JobDocument,
    chosen: Option<u32>,
) -> Result<Vec<SelectOption>, Error> {
    let mut ranks = rendezvous::mpi_slots(document);
    if ranks == 1 {
        let selection = Selection {
            attempt: Some(attempt),
            ..Selection::default()
        };
        let told = metrics::keys(db, Owner::Job(key), &selection).await?;
        let told = told.into_iter().filter_map(|series| series.replica);
        let told = told.filter(|replica| replica.role == RANK);
        ranks = told.map(|replica| replica.index + 1).max().unwrap_or(0);
    }
    let option = |rank: Option<u32>| SelectOption {
        value: rank.map_or(String::new(), |rank| rank.to_string()),
        label: rank.map_or("all".to_owned(), |rank| rank.to_string()),
        selected: rank == chosen,
    };
    let beyond = chosen.filter(|chosen| *chosen >= ranks.min(OFFERED));
    let offered = (0..ranks.min(OFFERED)).chain(beyond).map(Some);
    Ok(std::iter::once(None).chain(offered).map(option).collect())
}

impl LogsQuery {
    pub(super) fn rank(&self) -> Option<i32> {
        Self::text(&self.rank)?.parse().ok().filter(|rank| *rank >= 0)
    }
}
