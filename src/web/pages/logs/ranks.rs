//! Ranks of `mpirun` on a page of output: the launcher prints what they say, each line with its rank's tag, so a rank is
//! seen by a search for its tag.

use trainyard_core::{
    catch,
    document::job::{Framework, JobDocument},
    kinds::rendezvous::{RANK, mpi_slots},
};

use crate::{
    db::{
        Db,
        logs::JobKey,
        metrics::{self, Owner, Selection},
    },
    web::{
        Error,
        pages::{told, view::Choice},
    },
};

/// Links to so many; others are found by their tags.
const SHOWN: u32 = 64;

/// How many ranks an MPI job has: as many as slots, or as have told a number where only `mpirun` was told how many.
/// None for any other job.
pub async fn count(db: &Db, key: JobKey, attempt: i32, document: &str) -> Result<u32, Error> {
    let slots = match serde_json::from_str::<JobDocument>(document) {
        Ok(document) if document.framework == Framework::Mpi => mpi_slots(&document),
        _ => return Ok(0),
    };
    if slots > 1 {
        return Ok(slots);
    }
    let selection = Selection {
        attempt: Some(attempt),
        ..Selection::default()
    };
    let told = metrics::keys(db, Owner::Job(key), &selection).await?;
    let told = told.into_iter().filter_map(|series| series.replica);
    let told = told.filter(|replica| replica.role == RANK);
    Ok(told.map(|replica| replica.index + 1).max().unwrap_or(0))
}

/// `address`: the page's own, with the attempt. `only`: the search whose hits alone are shown.
pub fn links(ranks: u32, address: &str, only: Option<&str>) -> Vec<Choice> {
    let link = |rank| {
        let tag = catch::tag_of(rank);
        Choice {
            label: format!("MPI rank {rank}"),
            href: format!("{address}&search={}&regex=true&only=true", told::encoded(&tag)),
            current: only == Some(tag.as_str()),
            count: None,
        }
    };
    (0..ranks.min(SHOWN)).map(link).collect()
}
