//! Whether a gang fits, and where. Amounts are rows of numbers here, one column per resource.
//!
//! A single role is placed exactly: if there is a way, it is found. Several roles are placed one after the other,
//! the one that needs most first and then the other way round; a packing that only cleverer search finds is missed,
//! both on the full and on the empty cluster, so the answers agree with each other.

use std::collections::BTreeSet;

use super::{Amount, Node, RoleDemand};

/// The columns: cpu, memory, gpus, and every other name in sight, sorted.
pub(super) struct Columns {
    others: Vec<String>,
}

pub(super) const CPU: usize = 0;
pub(super) const MEMORY: usize = 1;
pub(super) const GPUS: usize = 2;
const FIXED: usize = 3;

impl Columns {
    pub fn over<'a>(amounts: impl Iterator<Item = &'a Amount>) -> Self {
        let names: BTreeSet<&String> = amounts.flat_map(|amount| amount.other.keys()).collect();
        Self {
            others: names.into_iter().cloned().collect(),
        }
    }

    pub fn len(&self) -> usize {
        FIXED + self.others.len()
    }

    pub fn name(&self, column: usize) -> &str {
        match column {
            CPU => "cpu",
            MEMORY => "memory",
            GPUS => "gpus",
            other => &self.others[other - FIXED],
        }
    }

    pub fn row(&self, amount: &Amount) -> Vec<u64> {
        let fixed = [amount.cpu_milli, amount.memory_bytes, amount.gpus];
        let others = self
            .others
            .iter()
            .map(|name| amount.other.get(name).copied().unwrap_or(0));
        fixed.into_iter().chain(others).collect()
    }
}

/// An amount per node.
#[derive(Clone)]
pub(super) struct Space {
    columns: usize,
    cells: Vec<u64>,
}

impl Space {
    pub fn of(columns: &Columns, nodes: &[&Node]) -> Self {
        let row = |node: &&Node| {
            let mut row = columns.row(&node.capacity);
            if !node.gpus.is_empty() {
                row[GPUS] = node.gpus.len() as u64;
            }
            row
        };
        Self {
            columns: columns.len(),
            cells: nodes.iter().flat_map(row).collect(),
        }
    }

    pub fn nodes(&self) -> usize {
        self.cells.len() / self.columns
    }

    pub fn row(&self, node: usize) -> &[u64] {
        &self.cells[node * self.columns..(node + 1) * self.columns]
    }

    /// Never below zero: a node may have shrunk under what it holds.
    pub fn take(&mut self, node: usize, row: &[u64]) {
        let cells = &mut self.cells[node * self.columns..(node + 1) * self.columns];
        for (cell, amount) in cells.iter_mut().zip(row) {
            *cell = cell.saturating_sub(*amount);
        }
    }

    pub fn take_all(&mut self, parts: &[(usize, Vec<u64>)]) {
        for (node, row) in parts {
            self.take(*node, row);
        }
    }

    /// Cell by cell, the smaller of both.
    pub fn meet(&mut self, other: &Space) {
        for (cell, bound) in self.cells.iter_mut().zip(&other.cells) {
            *cell = (*cell).min(*bound);
        }
    }
}

/// A gang's demand as rows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub roles: Vec<(u32, Vec<u64>)>,
}

impl Shape {
    pub fn of(columns: &Columns, roles: &[RoleDemand]) -> Self {
        let roles = roles.iter().map(|role| (role.replicas, columns.row(&role.each)));
        Self { roles: roles.collect() }
    }

    /// What the whole gang asks for in one column.
    pub fn asked(&self, column: usize) -> u64 {
        self.roles.iter().fold(0, |sum, (replicas, each)| {
            sum.saturating_add(each[column].saturating_mul(u64::from(*replicas)))
        })
    }
}

/// A node for each replica of each role.
pub(super) type Placement = Vec<Vec<usize>>;

/// A place for the whole gang, or none. `bare` tells which nodes have no GPUs at all: roles that need none go there
/// if they can.
pub(super) fn place(shape: &Shape, space: &Space, bare: &[bool]) -> Option<Placement> {
    let mut order: Vec<usize> = (0..shape.roles.len()).collect();
    // By what one replica needs, GPUs first; ties by the role's own order.
    order.sort_by_key(|&role| {
        let each = &shape.roles[role].1;
        std::cmp::Reverse((each[GPUS], each[CPU], each[MEMORY]))
    });
    if let Some(placement) = in_order(shape, space.clone(), bare, &order) {
        return Some(placement);
    }
    if order.len() < 2 {
        return None;
    }
    order.reverse();
    in_order(shape, space.clone(), bare, &order)
}

fn in_order(shape: &Shape, mut space: Space, bare: &[bool], order: &[usize]) -> Option<Placement> {
    let mut placement = vec![Vec::new(); shape.roles.len()];
    for &role in order {
        let (replicas, each) = &shape.roles[role];
        let on_bare = (each[GPUS] == 0 && bare.contains(&true) && bare.contains(&false))
            .then(|| place_role(*replicas, each, &space, |node| bare[node]))
            .flatten();
        let nodes = on_bare.or_else(|| place_role(*replicas, each, &space, |_| true))?;
        for &node in &nodes {
            space.take(node, each);
        }
        placement[role] = nodes;
    }
    Some(placement)
}

/// As few nodes as possible: those that hold most, and for the rest the one that it fills best. Neighbouring ranks
/// share nodes.
fn place_role(replicas: u32, each: &[u64], space: &Space, allowed: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let mut holds: Vec<(u64, usize)> = (0..space.nodes())
        .filter(|&node| allowed(node))
        .map(|node| (how_many(each, space.row(node)).min(u64::from(replicas)), node))
        .filter(|&(many, _)| many > 0)
        .collect();
    let total: u64 = holds.iter().map(|&(many, _)| many).sum();
    if total < u64::from(replicas) {
        return None;
    }
    let tightness = |node: usize| {
        let row = space.row(node);
        (row[GPUS], row[CPU], row[MEMORY], node)
    };
    holds.sort_by_key(|&(many, node)| (std::cmp::Reverse(many), tightness(node)));
    let mut left = u64::from(replicas);
    let mut nodes = Vec::with_capacity(replicas as usize);
    let mut used = 0;
    while left > 0 {
        // What is left goes to the smallest node that takes all of it, the tightest among equals; `holds` falls, so
        // those that do are a prefix, and within equals the tightest comes first.
        let enough = holds[used..].partition_point(|&(many, _)| many >= left);
        let (many, node) = match enough {
            0 => holds[used],
            enough => {
                let smallest = holds[used + enough - 1].0;
                let first = holds[used..].partition_point(|&(many, _)| many > smallest);
                holds[used + first]
            }
        };
        let taken = many.min(left);
        nodes.extend(std::iter::repeat_n(node, taken as usize));
        left -= taken;
        used += 1;
    }
    Some(nodes)
}

/// How many replicas fit into a row.
pub(super) fn how_many(each: &[u64], row: &[u64]) -> u64 {
    each.iter()
        .zip(row)
        .filter(|&(&each, _)| each > 0)
        .map(|(each, free)| free / each)
        .min()
        .unwrap_or(u64::MAX)
}
