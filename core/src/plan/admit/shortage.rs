//! The one resource that holds a gang up, in numbers that a sentence can be made of.

use super::{
    Node, RoleDemand, Shortage,
    fit::{CPU, Columns, GPUS, MEMORY, Shape, Space},
};

/// The scarcest resource of a gang that does not fit into `free`. Scarcest is where the smallest part of a role's
/// replicas would find a place, were that resource alone to count.
pub(super) fn shortage(
    columns: &Columns,
    roles: &[RoleDemand],
    shape: &Shape,
    free: &Space,
    total: &Space,
    nodes: &[&Node],
) -> Shortage {
    // GPUs are named before the rest where several are equally short, since they are what people count in.
    let order = [GPUS].into_iter().chain(3..columns.len()).chain([MEMORY, CPU]);
    let scarcest = order
        .flat_map(|column| (0..shape.roles.len()).map(move |role| (column, role)))
        .filter(|&(column, role)| shape.roles[role].1[column] > 0)
        .map(|(column, role)| (found_in_10_000(shape, free, column, role), column, role))
        .min_by_key(|&(found, ..)| found);
    let (_, column, role) = scarcest.unwrap_or((0, CPU, 0));
    let (replicas, each) = shape
        .roles
        .get(role)
        .map_or((0, 0), |(replicas, each)| (*replicas, each[column]));
    let cells = |space: &Space| {
        (0..space.nodes())
            .map(|node| space.row(node)[column])
            .collect::<Vec<u64>>()
    };
    let (free, total) = (cells(free), cells(total));
    let largest_free = free.iter().copied().max().unwrap_or(0);
    let largest_total = total.iter().copied().max().unwrap_or(0);
    let largest_node = free.iter().position(|&cell| cell == largest_free);
    Shortage {
        resource: columns.name(column).to_owned(),
        role: roles.get(role).map(|role| role.role.clone()).unwrap_or_default(),
        replicas,
        each,
        asked: shape.asked(column),
        free: free.iter().sum(),
        total: total.iter().sum(),
        largest_free,
        largest_free_node: largest_node.map(|node| nodes[node].name.clone()),
        largest_total,
        nodes: nodes.len() as u32,
        one_replica_too_big: each > largest_total,
    }
}

/// How many of ten thousand replicas would find a place, by one resource; the whole gang's sum counts as well.
fn found_in_10_000(shape: &Shape, space: &Space, column: usize, role: usize) -> u64 {
    let (replicas, each) = &shape.roles[role];
    let each = each[column];
    let places: u64 = (0..space.nodes()).map(|node| space.row(node)[column] / each).sum();
    let sum: u64 = (0..space.nodes()).map(|node| space.row(node)[column]).sum();
    let of_role = places.saturating_mul(10_000) / u64::from(*replicas).max(1);
    let of_gang = (u128::from(sum) * 10_000 / u128::from(shape.asked(column)).max(1)).min(u128::from(u64::MAX)) as u64;
    of_role.min(of_gang)
}
