//! The pass over the queue.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use chrono::{DateTime, Utc};

use super::{
    Admissions, Admitted, Hold, Holder, JobRef, LookAhead, Node, NotYet, Placed, Shortage, Waiting,
    fit::{Columns, GPUS, Placement, Shape, Space, place},
    reserve::{Holding, Reservation, reserve},
    shortage::shortage,
};
use crate::model::{NodeId, ReplicaKey};

/// At most this many of those that must end are named.
const NAMED: usize = 10;

/// Decides once over the whole queue. Pure and deterministic: the order of the inputs does not matter.
pub fn admit(queue: &[Waiting], holders: &[Holder], nodes: &[Node], now: DateTime<Utc>, look: LookAhead) -> Admissions {
    let mut order: Vec<&Waiting> = queue.iter().collect();
    order.sort_unstable_by_key(|job| (Reverse(job.priority), job.queued_at, job.job));
    let mut pass = Pass::new(&order, holders, nodes, now);
    let mut seen = 0;
    for &job in order.iter().take(look.jobs.saturating_mul(10)) {
        if pass.counted >= look.jobs {
            break;
        }
        seen += 1;
        pass.look_at(job);
    }
    pass.close(order.len() - seen)
}

struct Pass<'a> {
    now: DateTime<Utc>,
    columns: Columns,
    nodes: Vec<&'a Node>,
    bare: Vec<bool>,
    capacity: Space,
    free: Space,
    free_gpus: Vec<Vec<u32>>,
    holdings: Vec<Holding>,
    head: Option<(JobRef, Reservation)>,
    /// Shapes that did not fit. Room only shrinks during a pass, so they won't later either.
    no_place_free: HashSet<Shape>,
    no_place_behind: HashSet<Shape>,
    too_big: HashMap<Shape, Option<Shortage>>,
    admitted: Vec<Admitted>,
    waiting: Vec<(&'a Waiting, Shape, u32, Held)>,
    /// Jobs that could start some day: what the look-ahead counts, and who is ahead of the next.
    counted: usize,
    ahead: u32,
    look_again_at: Option<DateTime<Utc>>,
}

/// Why a job was passed over; the numbers are added at the end, from what is free then.
enum Held {
    NoNodes,
    TooBig(Shortage),
    Backoff(DateTime<Utc>),
    Head,
    Behind(JobRef),
}

impl<'a> Pass<'a> {
    fn new(order: &[&Waiting], holders: &[Holder], nodes: &'a [Node], now: DateTime<Utc>) -> Self {
        let mut nodes: Vec<&Node> = nodes.iter().filter(|node| node.open).collect();
        nodes.sort_unstable_by_key(|node| node.id);
        let asked = order.iter().flat_map(|job| &job.roles).map(|role| &role.each);
        let columns = Columns::over(nodes.iter().map(|node| &node.capacity).chain(asked));
        let places: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(place, node)| (node.id, place)).collect();
        let capacity = Space::of(&columns, &nodes);
        let mut free = capacity.clone();
        let mut free_gpus: Vec<Vec<u32>> = nodes.iter().map(|node| node.gpus.clone()).collect();
        let mut holdings = Vec::with_capacity(holders.len());
        for holder in holders {
            let mut parts = Vec::with_capacity(holder.parts.len());
            for held in &holder.parts {
                // What stands on a node that takes no jobs holds nothing that could be given out.
                let Some(&node) = places.get(&held.node) else { continue };
                free_gpus[node].retain(|gpu| !held.gpus.contains(gpu));
                parts.push((node, columns.row(&held.amount)));
            }
            free.take_all(&parts);
            holdings.push(Holding {
                job: holder.job,
                name: holder.name.clone(),
                priority: holder.priority,
                queued_at: holder.queued_at,
                admitted_at: holder.admitted_at,
                ends_by: holder.ends_by,
                parts,
            });
        }
        for gpus in &mut free_gpus {
            gpus.sort_unstable();
            gpus.dedup();
        }
        Self {
            now,
            bare: (0..capacity.nodes())
                .map(|node| capacity.row(node)[GPUS] == 0)
                .collect(),
            columns,
            nodes,
            capacity,
            free,
            free_gpus,
            holdings,
            head: None,
            no_place_free: HashSet::new(),
            no_place_behind: HashSet::new(),
            too_big: HashMap::new(),
            admitted: Vec::new(),
            waiting: Vec::new(),
            counted: 0,
            ahead: 0,
            look_again_at: None,
        }
    }

    fn look_at(&mut self, job: &'a Waiting) {
        let shape = Shape::of(&self.columns, &job.roles);
        if let Some(held) = self.cannot(job, &shape) {
            self.waiting.push((job, shape, self.ahead, held));
            return;
        }
        self.counted += 1;
        if let Some(placement) = self.place(job, &shape) {
            self.start(job, &shape, &placement);
            return;
        }
        let held = match &self.head {
            Some((head, _)) => Held::Behind(head.clone()),
            None => {
                let reserved = reserve(job, &shape, &self.holdings, &self.capacity, &self.free, &self.bare);
                if let Some(ready) = reserved.as_ref().filter(|reserved| reserved.ready) {
                    self.start(job, &shape, &ready.placement);
                    return;
                }
                let head = JobRef {
                    job: job.job,
                    name: job.name.clone(),
                    ends_by: None,
                };
                self.head = reserved.map(|reserved| (head, reserved));
                Held::Head
            }
        };
        self.waiting.push((job, shape, self.ahead, held));
        self.ahead += 1;
    }

    /// Why a job could not start even if it were alone.
    fn cannot(&mut self, job: &Waiting, shape: &Shape) -> Option<Held> {
        if let Some(until) = job.not_before.filter(|&until| until > self.now) {
            self.look_again_at = Some(self.look_again_at.map_or(until, |look| look.min(until)));
            return Some(Held::Backoff(until));
        }
        if self.nodes.is_empty() {
            return Some(Held::NoNodes);
        }
        if !self.too_big.contains_key(shape) {
            let verdict = match place(shape, &self.capacity, &self.bare) {
                Some(_) => None,
                None => Some(self.shortage(job, shape, &self.capacity)),
            };
            self.too_big.insert(shape.clone(), verdict);
        }
        self.too_big.get(shape)?.clone().map(Held::TooBig)
    }

    fn place(&mut self, job: &Waiting, shape: &Shape) -> Option<Placement> {
        let Some((_, reserved)) = &self.head else {
            return tried(&mut self.no_place_free, shape, &self.free, &self.bare);
        };
        let beside = tried(&mut self.no_place_behind, shape, &reserved.room, &self.bare);
        let ends_before = job
            .longest_hold
            .is_some_and(|hold| reserved.by.is_some_and(|by| self.now + hold <= by));
        match beside {
            None if ends_before => tried(&mut self.no_place_free, shape, &self.free, &self.bare),
            beside => beside,
        }
    }

    fn start(&mut self, job: &Waiting, shape: &Shape, placement: &Placement) {
        let mut replicas = Vec::new();
        let mut parts = Vec::new();
        for (role, nodes) in placement.iter().enumerate() {
            let each = &shape.roles[role].1;
            for (index, &node) in nodes.iter().enumerate() {
                let numbered = self.free_gpus[node].len().min(each[GPUS] as usize);
                replicas.push(Placed {
                    key: ReplicaKey {
                        role: job.roles[role].role.clone(),
                        index: index as u32,
                    },
                    rank: replicas.len() as u32,
                    node: self.nodes[node].id,
                    gpus: self.free_gpus[node].drain(..numbered).collect(),
                });
                parts.push((node, each.clone()));
            }
        }
        self.free.take_all(&parts);
        if let Some((_, reserved)) = &mut self.head {
            reserved.room.take_all(&parts);
        }
        self.holdings.push(Holding {
            job: job.job,
            name: job.name.clone(),
            priority: job.priority,
            queued_at: job.queued_at,
            admitted_at: self.now,
            ends_by: job.longest_hold.map(|hold| self.now + hold),
            parts,
        });
        self.admitted.push(Admitted { job: job.job, replicas });
    }

    fn shortage(&self, job: &Waiting, shape: &Shape, free: &Space) -> Shortage {
        shortage(&self.columns, &job.roles, shape, free, &self.capacity, &self.nodes)
    }

    fn close(mut self, beyond: usize) -> Admissions {
        let mut told: HashMap<Shape, Option<Shortage>> = HashMap::new();
        let waiting = std::mem::take(&mut self.waiting);
        let waiting = waiting.into_iter().map(|(job, shape, ahead, held)| {
            let hold = match held {
                Held::NoNodes => Hold::NoNodes,
                Held::TooBig(shortage) => Hold::TooBig { shortage },
                Held::Backoff(until) => Hold::Backoff { until },
                Held::Head => {
                    let reserved = self.head.as_ref().map(|(_, reserved)| reserved);
                    let must_end = reserved
                        .map(|reserved| reserved.must_end.as_slice())
                        .unwrap_or_default();
                    Hold::NoRoom {
                        shortage: self.shortage(job, &shape, &self.free),
                        must_end_count: must_end.len() as u32,
                        must_end: must_end.iter().take(NAMED).cloned().collect(),
                        by: reserved.and_then(|reserved| reserved.by),
                    }
                }
                Held::Behind(head) => Hold::Behind {
                    head,
                    shortage: told
                        .entry(shape)
                        .or_insert_with_key(|shape| {
                            let fits = place(shape, &self.free, &self.bare).is_some();
                            (!fits).then(|| self.shortage(job, shape, &self.free))
                        })
                        .clone(),
                },
            };
            NotYet {
                job: job.job,
                ahead,
                hold,
            }
        });
        let waiting = waiting.collect();
        Admissions {
            waiting,
            admitted: self.admitted,
            beyond,
            look_again_at: self.look_again_at,
        }
    }
}

fn tried(failed: &mut HashSet<Shape>, shape: &Shape, space: &Space, bare: &[bool]) -> Option<Placement> {
    if failed.contains(shape) {
        return None;
    }
    let placement = place(shape, space, bare);
    if placement.is_none() {
        failed.insert(shape.clone());
    }
    placement
}
