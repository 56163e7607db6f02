//! The place that is set aside for the head of the queue, so that no stream of smaller jobs can starve it.
//!
//! Seen from the head, what runs is of two kinds. *Passers* come after it in the queue's order and were admitted
//! while it waited. All others are *elders*; while the head waits, no elder is added but by a higher priority.
//!
//! The place is found in the capacity without the passers, and without as few elders as possible: those that end
//! first, by their deadlines, then those without one, oldest first (the *leavers*). From then on a job behind the
//! head may take on each node only what is left of the capacity beside the remaining elders, the passers and the
//! whole place. That is the first door. The second: it may take any free room if its own deadlines end it before
//! the head can count on its place.
//!
//! Why the head never starves: the place depends on the head, the nodes and the elders alone. Between two ends of
//! elders it stays where it is; whatever stands on it then was there before, and nothing is added but through the
//! second door, which shuts at a fixed time. So once those have ended the head starts, at the latest when all
//! elders and, for each, the passers of its time have: at most (elders + 1) x (what can run at once) ends.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};

use super::{
    JobRef, Waiting,
    fit::{Placement, Shape, Space, place},
};
use crate::model::JobId;

/// What one live attempt holds on the nodes in sight.
pub(super) struct Holding {
    pub job: JobId,
    pub name: String,
    pub priority: i32,
    pub queued_at: DateTime<Utc>,
    pub admitted_at: DateTime<Utc>,
    pub ends_by: Option<DateTime<Utc>>,
    pub parts: Vec<(usize, Vec<u64>)>,
}

pub(super) struct Reservation {
    pub placement: Placement,
    /// The whole place is free already.
    pub ready: bool,
    /// What jobs behind the head may take.
    pub room: Space,
    /// Who has to end before the head starts.
    pub must_end: Vec<JobRef>,
    /// When all of them have, at the latest. Jobs that surely end before may pass by the second door.
    pub by: Option<DateTime<Utc>>,
}

/// Sets a place aside. `None` if there is none even on the empty cluster.
pub(super) fn reserve(
    head: &Waiting,
    shape: &Shape,
    holdings: &[Holding],
    capacity: &Space,
    free: &Space,
    bare: &[bool],
) -> Option<Reservation> {
    let (mut passers, mut elders): (Vec<&Holding>, Vec<&Holding>) =
        holdings.iter().partition(|holding| is_passer(holding, head));
    // Leavers first. Everything is in the key, so that the order of the input does not matter.
    elders.sort_by_key(|elder| (elder.ends_by.is_none(), elder.ends_by, elder.admitted_at, elder.job));

    let beside = |leavers: usize| {
        let mut space = capacity.clone();
        for elder in &elders[leavers..] {
            space.take_all(&elder.parts);
        }
        space
    };
    // The fewest leavers with which there is a place. More leavers never leave less room, so halving finds it.
    let (mut without, mut with) = (0, elders.len());
    while without < with {
        let middle = (without + with) / 2;
        match place(shape, &beside(middle), bare) {
            Some(_) => with = middle,
            None => without = middle + 1,
        }
    }
    let leavers = with;
    let mut room = beside(leavers);
    let placement = place(shape, &room, bare)?;

    let mut lacking = vec![Vec::new(); capacity.nodes()];
    for (nodes, (_, each)) in placement.iter().zip(&shape.roles) {
        for &node in nodes {
            room.take(node, each);
            let sum: &mut Vec<u64> = &mut lacking[node];
            sum.resize(each.len(), 0);
            sum.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
        }
    }
    for passer in &passers {
        room.take_all(&passer.parts);
    }
    room.meet(free);

    for (node, sum) in lacking.iter_mut().enumerate() {
        sum.iter_mut()
            .zip(free.row(node))
            .for_each(|(sum, free)| *sum = sum.saturating_sub(*free));
    }
    let ready = lacking.iter().flatten().all(|&lack| lack == 0);
    passers.sort_by_key(|passer| (passer.ends_by.is_none(), passer.ends_by, passer.admitted_at, passer.job));
    let in_the_way = elders[..leavers]
        .iter()
        .chain(&passers)
        .filter(|holding| gives_way(holding, &mut lacking));
    let must_end: Vec<JobRef> = in_the_way
        .map(|holding| JobRef {
            job: holding.job,
            name: holding.name.clone(),
            ends_by: holding.ends_by,
        })
        .collect();
    let by = must_end
        .iter()
        .map(|job| job.ends_by)
        .try_fold(DateTime::<Utc>::MIN_UTC, |latest, ends| Some(latest.max(ends?)))
        .filter(|_| !must_end.is_empty());
    Some(Reservation {
        placement,
        ready,
        room,
        must_end,
        by,
    })
}

fn is_passer(holding: &Holding, head: &Waiting) -> bool {
    let place = |priority: i32, queued_at, job| (Reverse(priority), queued_at, job);
    holding.admitted_at >= head.queued_at
        && place(holding.priority, holding.queued_at, holding.job) > place(head.priority, head.queued_at, head.job)
}

/// Whether a holding's end gives something of what is lacking; what it gives is not lacking any more.
fn gives_way(holding: &Holding, lacking: &mut [Vec<u64>]) -> bool {
    let mut gives = false;
    for (node, row) in &holding.parts {
        for (lack, held) in lacking[*node].iter_mut().zip(row) {
            gives |= *lack > 0 && *held > 0;
            *lack = lack.saturating_sub(*held);
        }
    }
    gives
}
