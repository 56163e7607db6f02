//! A job that runs, waits, failed, and one of 512 ranks.

use super::*;

pub fn curve(seed: u64, steps: u32, from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..steps)
        .map(|step| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let noise = ((state >> 40) as f64 / f64::from(1 << 24) - 0.5) * 0.08;
            let part = f64::from(step) / f64::from(steps.max(2) - 1);
            (
                f64::from(step),
                to + (from - to) * (-4.0 * part).exp() * (1.0 + noise) + noise * 0.3,
            )
        })
        .collect()
}

pub fn over_time(points: Vec<(f64, f64)>, seconds: f64) -> Vec<(f64, f64)> {
    let start = ago(60).timestamp_millis() as f64;
    points
        .into_iter()
        .map(|(x, y)| (start + x * seconds * 1000.0, y))
        .collect()
}

pub fn plots(ranks: u8, odd: Option<u8>, size: plot::Size) -> Vec<Plot> {
    let lines = |from: f64, to: f64, timed: bool| -> Vec<Line> {
        (0..ranks)
            .map(|rank| {
                let stands_out = odd == Some(rank);
                let to = if stands_out { to * 1.25 } else { to };
                let points = curve(u64::from(rank) + 1, 240, from, to);
                let points = if timed { over_time(points, 15.0) } else { points };
                Line {
                    name: format!("worker-{rank}"),
                    color: rank,
                    points,
                    stands_out,
                }
            })
            .collect()
    };
    let make = |id: &str, title: &str, says: &str, x, y_label, from_zero, series| Plot {
        id: id.into(),
        title: title.into(),
        says: says.into(),
        svg: plot::draw(
            &Chart {
                title,
                description: says,
                x,
                y_label,
                from_zero,
                series,
            },
            size,
        )
        .unwrap(),
        numbers: format!("/jobs/{JOB}/numbers/{id}"),
    };
    vec![
        make(
            "loss",
            "loss",
            "0.31 at step 1,240, falling",
            Horizontal::Step,
            "loss",
            false,
            lines(2.4, 0.3, false),
        ),
        make(
            "cpu",
            "CPU",
            "1.9 cores a rank in the last minute",
            Horizontal::Time,
            "cores",
            true,
            lines(0.4, 1.9, true),
        ),
        make(
            "memory",
            "Memory",
            "3.1 GiB a rank now; the limit is 4 GiB",
            Horizontal::Time,
            "GiB",
            true,
            lines(0.6, 3.1, true),
        ),
    ]
}

pub fn event(seq: i64, words: &str, minutes: i64, message: &str, kind: &str, actor: Option<&str>) -> EventRow {
    EventRow {
        seq,
        at: when(words, minutes),
        message: message.into(),
        kind: kind.into(),
        actor: actor.map(Into::into),
    }
}

pub fn bar(tone: Tone, from: i64, to: Option<i64>, word: &'static str, title: &str) -> Bar {
    Bar {
        tone,
        from: ago(from),
        to: to.map(ago),
        word,
        title: title.into(),
    }
}

pub fn job_timeline(failed: bool) -> TimelineFigure {
    let point = |minutes, kind, title: &str| Point {
        at: ago(minutes),
        kind,
        title: title.into(),
    };
    let last = if failed { Some(12) } else { None };
    timeline::draw(
        "Timeline of mixtral-pretrain from 2026-11-30 12:59 UTC until now",
        ago(61),
        ago(0),
        &[
            Lane {
                label: "Job".into(),
                bars: vec![
                    bar(Tone::Waiting, 61, Some(58), "queued", "Queued 3 min"),
                    bar(Tone::Waiting, 33, Some(32), "queued", "Queued 1 min"),
                ],
                points: vec![
                    point(61, PointKind::Person, "Submitted by Maya Ortiz"),
                    point(33, PointKind::Restart, "Attempt 2"),
                ],
            },
            Lane {
                label: "Attempt 1: failed, rank 3 ended with exit code 1".into(),
                bars: vec![
                    bar(Tone::Starting, 58, Some(57), "starting", "Starting 1 min"),
                    bar(Tone::Running, 57, Some(34), "running", "Running 23 min"),
                    bar(Tone::Failed, 34, Some(33), "stopping", "Stopping 1 min"),
                ],
                points: vec![
                    point(49, PointKind::Checkpoint, "Checkpoint at step 200"),
                    point(41, PointKind::Checkpoint, "Checkpoint at step 400"),
                    point(34, PointKind::Fault, "Rank 3 ended with exit code 1"),
                ],
            },
            Lane {
                label: "Attempt 2: running, resumed at step 400".into(),
                bars: vec![
                    bar(Tone::Starting, 32, Some(31), "starting", "Starting 1 min"),
                    bar(Tone::Running, 31, last, "running", "Running 31 min"),
                ],
                points: vec![
                    point(20, PointKind::Checkpoint, "Checkpoint at step 800"),
                    point(8, PointKind::Checkpoint, "Checkpoint at step 1,200"),
                ],
            },
            Lane {
                label: "Node gpu-a-11, gpu hot: 6 min".into(),
                bars: vec![bar(
                    Tone::Warning,
                    36,
                    Some(30),
                    "node fault, warning",
                    "Temperature above 85 °C, from 2026-11-30 15:24:00 UTC",
                )],
                points: vec![],
            },
        ],
    )
}

pub fn replica(rank: u32, tone: Tone, sentence: &str, step: &str) -> ReplicaRow {
    ReplicaRow {
        rank,
        key: format!("worker-{rank}"),
        tone,
        sentence: sentence.into(),
        node: Some((format!("gpu-a-{}", 8 + rank), "/nodes/node_x".into())),
        step: step.into(),
        last_output: Some(when("2 s ago", 0)),
        restarts: "0".into(),
    }
}

/// It runs, and is not well.
pub fn hung_job() -> JobPage {
    let well = running_job();
    JobPage {
        state: State {
            tone: Tone::Critical,
            sentence: "Running, but hung, 4 of 4 ranks, step 1,240 of 5,000".into(),
            next: Some("Read the last lines of each rank, then cancel and rerun it.".into()),
            ..well.state.clone()
        },
        ..well
    }
}

pub fn running_job() -> JobPage {
    let action = |label, verb: &str, danger| Action {
        label,
        href: format!("/jobs/{JOB}/{verb}"),
        danger,
    };
    JobPage {
        shell: Shell {
            notice: Some("Priority set to 10.".into()),
            ..shell("Running: mixtral-pretrain", Section::Jobs, &[("Jobs", "/jobs")])
        },
        id: JOB.into(),
        name: "mixtral-pretrain".into(),
        state: State {
            tone: Tone::Running,
            sentence: "Running, 4 of 4 ranks, step 1,240 of 5,000, about 2 h left".into(),
            reason: None,
            code: None,
            since: Some(when("31 min ago", 31)),
            next: None,
            stale: None,
        },
        actions: vec![
            action("Suspend", "suspend", false),
            action("Priority", "priority", false),
            action("Cancel", "cancel", true),
        ],
        conditions: vec![Condition {
            tone: Tone::Warning,
            severity: "warning",
            name: "Slow rank".into(),
            message:
                "Rank 2 (worker-2) has been on step 1,231 for 48 s; the median rank takes 1.2 s a step and is at 1,240."
                    .into(),
            code: "rank_slow".into(),
            since: when("1 min ago", 1),
        }],
        reasons: vec![],
        post_mortem: None,
        facts: vec![
            Fact::link("Cluster", "this-machine", "/clusters/clu_x"),
            Fact::new("Team, owner", "vision, Maya Ortiz"),
            Fact::new("Asks for", "4 replicas: 8 cores, 16 GiB, 4 GPUs in all"),
            Fact::new("Attempt", "2 of at most 4"),
            Fact::new("Last checkpoint", "step 1,200, 8 min ago"),
            Fact::new("Priority", "10"),
            Fact::when("Submitted", when("1 h 1 min ago", 61)),
            Fact::new("Waited, ran", "4 min, 54 min"),
            Fact::new("Restarted by", "Trainyard, as a whole"),
            Fact::new("Labels", "exp=moe, sweep=7"),
            Fact::new("Id", JOB),
        ],
        timeline: job_timeline(false),
        replicas: Replicas {
            summary: "of attempt 2: 4 running".into(),
            rows: (0..4)
                .map(|rank| {
                    replica(
                        rank,
                        Tone::Running,
                        "running 31 min",
                        if rank == 2 { "1,231" } else { "1,240" },
                    )
                })
                .collect(),
            grid: None,
        },
        attempts: vec![choice("Attempt 1", "", false), choice("Attempt 2", "", true)],
        plots: plots(4, Some(2), plot::Size::Small),
        no_plots: "",
        checkpoints: vec![
            CheckpointRow {
                step: "1,200".into(),
                attempt: 2,
                path: "/var/lib/trainyard/jobs/mixtral/ckpt/step-1200.pt".into(),
                at: when("8 min ago", 8),
            },
            CheckpointRow {
                step: "800".into(),
                attempt: 2,
                path: "/var/lib/trainyard/jobs/mixtral/ckpt/step-800.pt".into(),
                at: when("20 min ago", 20),
            },
        ],
        events: vec![
            event(
                14,
                "1 min ago",
                1,
                "Rank 2 is slow: on step 1,231 for 48 s",
                "job.condition",
                None,
            ),
            event(13, "8 min ago", 8, "Checkpoint at step 1,200", "job.checkpoint", None),
            event(
                12,
                "10 min ago",
                10,
                "Priority changed from 0 to 10",
                "job.priority",
                Some("Maya Ortiz"),
            ),
            event(
                11,
                "31 min ago",
                31,
                "Attempt 2 runs: 4 of 4 ranks, resumed at step 400",
                "job.phase",
                None,
            ),
            event(
                10,
                "33 min ago",
                33,
                "Attempt 1 failed: rank 3 ended with exit code 1. The policy allows 3 more attempts.",
                "attempt.ended",
                None,
            ),
        ],
        more_events: Some("/jobs/x?events=9".into()),
        document: DOCUMENT.into(),
    }
}

pub fn waiting_job() -> JobPage {
    JobPage {
        shell: shell("Waiting: eval-harness", Section::Jobs, &[("Jobs", "/jobs")]),
        name: "eval-harness".into(),
        state: State {
            tone: Tone::Waiting,
            sentence: "Waiting 14 min: needs 8 GPUs on one node; the fullest node has 6 free".into(),
            reason: None,
            code: None,
            since: Some(when("14 min ago", 14)),
            next: Some("Ask for 6 GPUs, or wait for job llama-8b-sft (about 20 min).".into()),
            stale: None,
        },
        reasons: vec![Reason {
            layer: "Capacity".into(),
            message: "Each replica needs 8 GPUs on one node. Of 12 nodes with GPUs none has more than 6 free.".into(),
            code: "no_node_fits".into(),
            numbers: vec![
                ("GPUs asked for on one node".into(), "8".into()),
                ("GPUs free on the fullest node".into(), "6".into()),
                ("GPUs free in all".into(), "22".into()),
            ],
            next: "Ask for 6 GPUs, or wait for job llama-8b-sft (about 20 min).".into(),
        }],
        conditions: vec![],
        replicas: Replicas::default(),
        attempts: vec![],
        plots: vec![],
        no_plots: "Nothing was measured yet. Print a line such as step=120 loss=0.31 and it is drawn here.",
        checkpoints: vec![],
        timeline: timeline::draw(
            "Timeline of eval-harness",
            ago(14),
            ago(0),
            &[Lane {
                label: "Job".into(),
                bars: vec![bar(Tone::Waiting, 14, None, "queued", "Queued 14 min")],
                points: vec![],
            }],
        ),
        ..running_job()
    }
}

pub fn failed_job() -> JobPage {
    let lines = [
        "step=1190 loss=nan lr=0.0003",
        "Traceback (most recent call last):",
        "  File \"train.py\", line 212, in <module>",
        "    main()",
        "  File \"train.py\", line 187, in main",
        "    raise FloatingPointError(f\"loss is {loss} at step {step}\")",
        "FloatingPointError: loss is nan at step 1190",
    ];
    let end = |part, first, rank: u32, exit: &str, lines: &[&str]| {
        RankEnd {
        part,
        first,
        name: format!("rank {rank} (worker-{rank}) on gpu-a-{}", rank + 8),
        exit: exit.into(),
        meaning: first.then(|| "The program itself gave up because the loss was not a number. The learning rate or the data at this step are the usual causes.".into()),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        logs: format!("/jobs/{JOB}/logs?replica=worker-{rank}"),
    }
    };
    JobPage {
        shell: shell("Failed: llama-8b-sft", Section::Jobs, &[("Jobs", "/jobs")]),
        name: "llama-8b-sft".into(),
        state: State {
            tone: Tone::Failed,
            sentence: "Failed after 41 min: rank 3 ended with exit code 1 at step 1,190".into(),
            reason: Some("FloatingPointError: loss is nan at step 1190".into()),
            code: Some("replica_failed".into()),
            since: Some(when("12 min ago", 12)),
            next: Some(
                "Look at rank 3 around step 1,190; rerun from the checkpoint at step 800 once it is mended.".into(),
            ),
            stale: None,
        },
        conditions: vec![],
        post_mortem: Some(PostMortemView {
            attempt: 2,
            summary: "Rank 3 was first to fail; ranks 0, 1 and 2 were victims and ended by Trainyard.".into(),
            code: "replica_failed".into(),
            policy: "No further attempt: the policy allowed 1 retry and it was used."
                .to_owned()
                .into(),
            steps_lost: Some("390 steps since the checkpoint at step 800 are lost.".into()),
            next: "Look at the lines of rank 3 below.".to_owned().into(),
            ranks: vec![
                end("First to fail", true, 3, "exit code 1", &lines),
                end(
                    "Victim",
                    false,
                    0,
                    "signal 15 (SIGTERM), sent by Trainyard",
                    &["step=1189 loss=0.412 lr=0.0003"],
                ),
                end("Victim", false, 1, "signal 15 (SIGTERM), sent by Trainyard", &[]),
            ],
            nodes: vec![Condition {
                tone: Tone::Warning,
                severity: "warning",
                name: "gpu-a-11: Hot".into(),
                message: "GPU 2 was at 91 °C".into(),
                code: "gpu_hot".into(),
                since: when("36 min ago", 36),
            }],
        }),
        timeline: job_timeline(true),
        replicas: Replicas {
            summary: "of attempt 2: 3 ended by Trainyard, 1 failed".into(),
            rows: (0..4)
                .map(|rank| match rank {
                    3 => replica(rank, Tone::Failed, "exit code 1 after 19 min", "1,190"),
                    _ => replica(rank, Tone::Cancelled, "ended by Trainyard", "1,189"),
                })
                .collect(),
            grid: None,
        },
        ..running_job()
    }
}

/// 512 ranks: the table becomes a grid.
pub fn wide_job() -> JobPage {
    let cell = |rank: u32| GridCell {
        name: format!("worker-{rank}"),
        href: format!("?replica=worker-{rank}"),
    };
    JobPage {
        replicas: Replicas {
            summary: "of attempt 2: 1 failed, 3 starting, 508 running".into(),
            rows: vec![],
            grid: Some(Grid {
                groups: vec![GridGroup {
                    label: "worker".into(),
                    summary: "512 replicas".into(),
                    runs: vec![
                        GridRun {
                            tone: Tone::Failed,
                            label: "1 failed".into(),
                            cells: vec![cell(17)],
                        },
                        GridRun {
                            tone: Tone::Starting,
                            label: "3 starting".into(),
                            cells: (18..21).map(cell).collect(),
                        },
                        GridRun {
                            tone: Tone::Running,
                            label: "508 running".into(),
                            cells: (21..529).map(cell).collect(),
                        },
                    ],
                }],
                legend: vec![
                    (Tone::Failed, "failed".into()),
                    (Tone::Starting, "starting".into()),
                    (Tone::Running, "running".into()),
                ],
                table: "?view=table".into(),
            }),
        },
        plots: plots(12, Some(9), plot::Size::Small),
        ..running_job()
    }
}
