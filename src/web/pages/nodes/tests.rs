use super::*;

fn cell(number: u128, pool: &str, phase: &str, stale: bool, troubles: i64) -> Cell {
    Cell {
        id: NodeId(uuid::Uuid::from_u128(number)),
        name: format!("ip-10-0-0-{number}.us-west-2.compute.internal"),
        cluster: "east".into(),
        pool: Some(pool.into()),
        phase: phase.into(),
        message: String::new(),
        stale_since: stale.then_some(DateTime::UNIX_EPOCH),
        observed_at: DateTime::UNIX_EPOCH,
        troubles,
        critical: troubles / 2,
        cpu_milli: 1_000,
        memory_bytes: 0,
        gpus: 0,
    }
}

#[test]
fn what_needs_a_look_stands_first_over_all_pools() {
    let cells = [
        cell(1, "a", "ready", false, 0),
        cell(2, "a", "not_ready", false, 1),
        cell(3, "b", "ready", false, 1),
        cell(4, "b", "ready", true, 0),
        cell(5, "b", "ready", false, 2),
    ];
    let cells: Vec<&Cell> = cells.iter().collect();
    let grid = grid(&cells, "/nodes?view=table".into());
    let labels: Vec<&str> = grid.groups.iter().map(|group| group.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "east, pool a: needs a look",
            "east, pool b: needs a look",
            "east, pool a"
        ]
    );
    let runs: Vec<&str> = grid.groups[1].runs.iter().map(|run| run.label.as_str()).collect();
    assert_eq!(
        runs,
        ["1 ready, but critical", "1 not seen lately", "1 ready, with a warning"]
    );
    assert_eq!(grid.groups[1].runs[0].tone, Tone::Critical);
    assert_eq!(grid.groups[0].runs[0].cells[0].name, "ip-10-0-0-2");
    assert_eq!(grid.groups[0].runs[0].cells[0].href, "/n/0000000002");
}

#[test]
fn the_summary_tells_the_worst_first() {
    assert_eq!(summary(1, 0, 0, 0, 0), "The one node is ready.");
    assert_eq!(
        summary(12, 2, 1, 1, 0),
        "2 of 12 nodes not ready, 1 ready, but critical, 1 not seen lately."
    );
    assert_eq!(summary(1, 0, 0, 0, 1), "1 of 1 node ready with a warning.");
    assert_eq!(title(0, 3), "3 critical · Nodes");
}
