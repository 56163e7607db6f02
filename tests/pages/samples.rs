//! Every page filled with values that could be real, among them the bad nights: failures, long names, many ranks.

use chrono::{DateTime, Duration, Utc};
use trainyard::web::{
    pages::{
        cluster::*, clusters::*, confirm::*, errors::*, job::*, jobs::*, logs::*, new_job::*, node::*, nodes::*,
        numbers::*, search::*, settings::*, sign_in::*, terminal, timeline, timeline::*, view::*,
    },
    plot::{self, Chart, Horizontal, Line},
};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_054_400, 0).unwrap()
}

fn ago(minutes: i64) -> DateTime<Utc> {
    now() - Duration::minutes(minutes)
}

fn when(words: &str, minutes: i64) -> When {
    When::new(words, ago(minutes))
}

fn shell(title: &str, section: Section, crumbs: &[(&str, &str)]) -> Shell {
    Shell {
        title: title.into(),
        section,
        crumbs: crumbs
            .iter()
            .map(|(label, href)| Crumb {
                label: (*label).into(),
                href: (*href).into(),
            })
            .collect(),
        viewer: Some(Viewer {
            name: "Maya Ortiz".into(),
            csrf: "0f3c".into(),
        }),
        here: "/".into(),
        ..Shell::default()
    }
}

fn option(value: &str, label: &str) -> SelectOption {
    SelectOption {
        value: value.into(),
        label: label.into(),
        selected: value.is_empty(),
    }
}

fn choice(label: &str, count: &str, current: bool) -> Choice {
    Choice {
        label: label.into(),
        href: "/jobs?state=x".into(),
        current,
        count: (!count.is_empty()).then(|| count.into()),
    }
}

/// Every sample by its name.
pub fn all() -> Vec<(&'static str, String)> {
    use askama::Template;
    let render = |sample: &dyn askama::DynTemplate| sample.dyn_render().unwrap();
    let hostile = JobPage {
        name: HOSTILE.into(),
        document: HOSTILE.into(),
        ..failed_job()
    };
    vec![
        ("sign-in", render(&SignInPage::offered("k3".into()))),
        ("sign-in-expired", render(&SignInPage::expired())),
        ("sign-in-used", render(&SignInPage::used())),
        ("jobs", render(&jobs())),
        (
            "jobs-empty",
            render(&JobsPage {
                rows: vec![],
                summary: "No job was submitted yet.".into(),
                ..jobs()
            }),
        ),
        ("job-running", render(&running_job())),
        ("job-waiting", render(&waiting_job())),
        ("job-failed", render(&failed_job())),
        ("job-wide", render(&wide_job())),
        ("job-hostile", render(&hostile)),
        ("cancel", render(&cancel())),
        ("delete", render(&delete())),
        ("logs", render(&logs(false))),
        ("logs-search", render(&logs(true))),
        ("new-job", render(&new_job(false))),
        ("new-job-faults", render(&new_job(true))),
        ("nodes", render(&nodes(5_000))),
        ("nodes-table", render(&nodes_table())),
        ("node", render(&node())),
        ("clusters", clusters().render().unwrap()),
        ("cluster", cluster().render().unwrap()),
        ("settings", render(&settings())),
        ("search", render(&search())),
        ("numbers", render(&numbers())),
        ("error", render(&error())),
    ]
}

pub const HOSTILE: &str =
    "</pre></script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&";

const JOB: &str = "job_06a5fqhl5pv3t1g0l2m9n7k8r4";

fn jobs() -> JobsPage {
    let row =
        |tone, sentence: &str, name: &str, team: &str, owner: &str, replicas: &str, gpus: &str, age, ran: &str| {
            let (words, minutes): (&str, i64) = age;
            JobRow {
                id: format!("job_{name:0<26}").replace('-', "0").chars().take(30).collect(),
                tone,
                sentence: sentence.into(),
                name: name.into(),
                team: team.into(),
                owner: owner.into(),
                cluster: "this-machine".into(),
                replicas: replicas.into(),
                gpus: gpus.into(),
                submitted: when(words, minutes),
                ran: ran.into(),
            }
        };
    use Tone::*;
    JobsPage {
        shell: shell("1 failed, 2 wait · Jobs", Section::Jobs, &[]),
        summary: "1 failed in the last day. 2 wait. 2 run.".into(),
        choices: vec![
            choice("All", "", true),
            choice("Open", "6", false),
            choice("Waiting", "2", false),
            choice("Running", "2", false),
            choice("Failed", "1 today", false),
            choice("Succeeded", "", false),
            choice("Cancelled", "", false),
        ],
        state: None,
        text: String::new(),
        label: String::new(),
        teams: vec![option("", "All my teams"), option("vision", "vision")],
        clusters: vec![option("", "All clusters"), option("this-machine", "this-machine")],
        filtered: false,
        rows: vec![
            row(
                Failed,
                "Failed after 41 min: rank 3 ended with exit code 1",
                "llama-8b-sft",
                "vision",
                "Maya Ortiz",
                "8",
                "64",
                ("12 min ago", 12),
                "41 min",
            ),
            row(
                Waiting,
                "Waiting 14 min: needs 8 GPUs on one node; the fullest node has 6 free",
                "eval-harness",
                "vision",
                "Sam Field",
                "1",
                "8",
                ("14 min ago", 14),
                "",
            ),
            row(
                Waiting,
                "Waiting 2 min: behind 1 job of the same priority",
                "tokenise-shards",
                "data",
                "Ada Lind",
                "4",
                "0",
                ("2 min ago", 2),
                "",
            ),
            row(
                Running,
                "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left",
                "mixtral-pretrain-long-name-with-many-parts-and-a-date-2026-11-30",
                "vision",
                "Maya Ortiz",
                "8",
                "64",
                ("1 h ago", 61),
                "58 min",
            ),
            row(
                Starting,
                "Starting, 3 of 4 ranks",
                "resnet-baseline",
                "vision",
                "Sam Field",
                "4",
                "4",
                ("1 min ago", 1),
                "4 s",
            ),
            row(
                Suspended,
                "Suspended 3 h ago by Ada Lind, resumes at step 820",
                "clip-ablation-3",
                "data",
                "Ada Lind",
                "2",
                "16",
                ("9 h ago", 540),
                "5 h 2 min",
            ),
            row(
                Stale,
                "Running when last seen 7 min ago: no worker looks at its cluster",
                "diffusion-xl",
                "data",
                "Ada Lind",
                "16",
                "128",
                ("1 d ago", 1440),
                "1 d 1 h",
            ),
            row(
                Succeeded,
                "Succeeded after 3 h 12 min, 5,000 steps",
                "bert-large-finetune",
                "data",
                "Ada Lind",
                "2",
                "2",
                ("6 h ago", 360),
                "3 h 12 min",
            ),
            row(
                Cancelled,
                "Cancelled by Sam Field after 2 min",
                "smoke",
                "vision",
                "Sam Field",
                "1",
                "0",
                ("8 h ago", 480),
                "2 min",
            ),
        ],
        pages: Pages {
            newer: None,
            older: Some("/jobs?after=x".into()),
        },
    }
}

fn curve(seed: u64, steps: u32, from: f64, to: f64) -> Vec<(f64, f64)> {
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

fn over_time(points: Vec<(f64, f64)>, seconds: f64) -> Vec<(f64, f64)> {
    let start = ago(60).timestamp_millis() as f64;
    points
        .into_iter()
        .map(|(x, y)| (start + x * seconds * 1000.0, y))
        .collect()
}

fn plots(ranks: u8, odd: Option<u8>) -> Vec<Plot> {
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
        svg: plot::draw(&Chart {
            title,
            description: says,
            x,
            y_label,
            from_zero,
            series,
        })
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

fn event(seq: i64, words: &str, minutes: i64, message: &str, kind: &str, actor: Option<&str>) -> EventRow {
    EventRow {
        seq,
        at: when(words, minutes),
        message: message.into(),
        kind: kind.into(),
        actor: actor.map(Into::into),
    }
}

fn bar(tone: Tone, from: i64, to: Option<i64>, word: &'static str, title: &str) -> Bar {
    Bar {
        tone,
        from: ago(from),
        to: to.map(ago),
        word,
        title: title.into(),
    }
}

fn job_timeline(failed: bool) -> TimelineFigure {
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
                label: "Node gpu-a-11".into(),
                bars: vec![bar(
                    Tone::Warning,
                    36,
                    Some(30),
                    "hot",
                    "Temperature above 85 °C for 6 min",
                )],
                points: vec![],
            },
        ],
    )
}

fn replica(rank: u32, tone: Tone, sentence: &str, step: &str) -> ReplicaRow {
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

fn running_job() -> JobPage {
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
        plots: plots(4, Some(2)),
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

fn waiting_job() -> JobPage {
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

fn failed_job() -> JobPage {
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
            policy: "No further attempt: the policy allowed 1 retry and it was used.".into(),
            steps_lost: Some("390 steps since the checkpoint at step 800 are lost.".into()),
            next: "Look at the lines of rank 3 below.".into(),
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
fn wide_job() -> JobPage {
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
        plots: plots(12, Some(9)),
        ..running_job()
    }
}

fn cancel() -> ConfirmPage {
    ConfirmPage {
        shell: shell(
            "Cancel mixtral-pretrain",
            Section::Jobs,
            &[("Jobs", "/jobs"), ("mixtral-pretrain", "/jobs/x")],
        ),
        question: "Cancel mixtral-pretrain?".into(),
        consequence:
            "All 4 ranks are asked to end, and are killed after 30 s. The job cannot be resumed; a rerun is a new job."
                .into(),
        lost: vec![
            "40 steps since the checkpoint at step 1,200".into(),
            "31 min of 4 GPUs in this attempt, if no rerun uses the checkpoint".into(),
        ],
        action: "/jobs/x/cancel".into(),
        verb: "Cancel the job",
        danger: true,
        keep: "Keep it running",
        back: "/jobs/x".into(),
        type_name: None,
        priority: None,
        etag: Some("7".into()),
        key: None,
        asked_at: "2026-11-30 16:00:00 UTC".into(),
        fault: None,
    }
}

fn delete() -> ConfirmPage {
    ConfirmPage {
        question: "Delete bert-large-finetune?".into(),
        consequence: "The job leaves every list. Its output, metrics and events are removed after 30 d; until then an admin can find them.".into(),
        lost: vec!["212 MiB of output".into(), "its plots and events".into()],
        verb: "Delete the job",
        keep: "Keep it",
        type_name: Some("bert-large-finetune".into()),
        fault: Some("The name that was typed, \"bert-large\", is not the job's.".into()),
        ..cancel()
    }
}

fn log_rows() -> Vec<LogRow> {
    let texts = [
        "\u{1b}[36mINFO\u{1b}[0m  rank {r}: NCCL version 2.23.4+cuda12.6",
        "step=1184 loss=0.4127 lr=0.0003 tokens/s=41,212",
        "epoch 3:  10%|#\repoch 3:  62%|######    | 620/1000 [00:41<00:25, 15.0it/s]",
        "\u{1b}[33mWARNING\u{1b}[0m gradient norm 14.2 clipped to 1.0",
        "step=1185 loss=0.4099 lr=0.0003 tokens/s=41,388",
        "a line that is long enough to be wrapped on a narrow screen, and on a wide one as well when somebody prints the whole configuration of a run in one go: {\"model\": \"llama-8b\", \"layers\": 32, \"hidden\": 4096, \"heads\": 32, \"vocab\": 128256, \"dtype\": \"bf16\", \"seq\": 8192, \"optimizer\": {\"name\": \"adamw\", \"betas\": [0.9, 0.95], \"weight_decay\": 0.1}}",
        "<script>window.broken = 1</script> & </code> is what this program printed",
        "Traceback (most recent call last):",
        "\u{1b}[1;31mFloatingPointError\u{1b}[0m: loss is nan at step 1190",
    ];
    let mut rows: Vec<LogRow> = (0..60)
        .map(|index: u32| {
            let rank = (index * 7 + index / 9) % 8;
            let at = now() - Duration::milliseconds(i64::from(60 - index) * 437);
            let text = texts[index as usize % texts.len()].replace("{r}", &rank.to_string());
            LogRow {
                anchor: format!("worker-{rank}.stdout.{}", 1240 + index),
                number: u64::from(1240 + index),
                replica: format!("worker-{rank}"),
                color: rank,
                stderr: index % 9 > 6,
                error: index % 9 > 6,
                time: at.format("%H:%M:%S%.3f").to_string(),
                exact: at.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
                iso: at.to_rfc3339(),
                segments: terminal::segments(&text),
                gap: None,
            }
        })
        .collect();
    rows.insert(
        22,
        LogRow {
            gap: Some(
                "Here 38 MiB of worker-3 are missing: it printed faster than could be stored, and 2 GiB was the bound."
                    .into(),
            ),
            ..rows[22].clone()
        },
    );
    rows
}

fn logs(searched: bool) -> LogsPage {
    LogsPage {
        shell: Shell {
            wide: true,
            ..shell(
                "Output of mixtral-pretrain",
                Section::Jobs,
                &[("Jobs", "/jobs"), ("mixtral-pretrain", "/jobs/x")],
            )
        },
        id: JOB.into(),
        name: "mixtral-pretrain".into(),
        tone: Tone::Running,
        sentence: "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left".into(),
        attempts: vec![option("2", "2, running"), option("1", "1, failed")],
        replicas: vec![option("", "All 8, by time"), option("worker-0", "worker-0")],
        times: vec![
            option("clock", "clock, UTC"),
            option("start", "since the start"),
            option("off", "off"),
        ],
        time_mode: "clock",
        search: if searched { "nan".into() } else { String::new() },
        regex: false,
        follow: true,
        found: searched.then(|| Found {
            summary: "\"nan\" was found 12 times, in 2 of 8 ranks".into(),
            hits: (0..12)
                .map(|index| FoundHit {
                    href: "#worker-3.stdout.1248".into(),
                    anchor: "worker-3.stdout.1248".into(),
                    replica: format!("worker-{}", if index < 7 { 3 } else { 5 }),
                    color: if index < 7 { 3 } else { 5 },
                    line: 1190 + index,
                    before: "step=1190 loss=".into(),
                    hit: "nan".into(),
                    after: " lr=0.0003".into(),
                })
                .collect(),
        }),
        first_error: Some("#worker-3.stdout.1248".into()),
        download: "/x".into(),
        older: Some("?before=x".into()),
        newer: None,
        rows: log_rows(),
        none: "Nothing was printed yet.".into(),
        viewer_config: "{}".into(),
    }
}

const DOCUMENT: &str = "apiVersion: trainyard.dev/v1
kind: Job
name: mixtral-pretrain
framework: pytorch
roles:
  - name: worker
    replicas: 4
    command: [python3, train.py]
    resources:
      cpu: 2
      memory: 4Gi
      gpus: 1
restart:
  max: 3
checkpoints:
  signal: USR1
";

fn new_job(faulty: bool) -> NewJobPage {
    let wrong = DOCUMENT
        .replace("replicas: 4", "replicas: many")
        .replace("memory: 4Gi", "memroy: 4Gi");
    let document = if faulty { wrong } else { DOCUMENT.to_owned() };
    let fault = |line, column, path: &str, message: &str, hint: &str| FaultView {
        line: Some(line),
        column,
        path: path.into(),
        message: message.into(),
        hint: (!hint.is_empty()).then(|| hint.into()),
        excerpt: excerpt(&document, line, column),
    };
    NewJobPage {
        shell: shell("New job", Section::Jobs, &[("Jobs", "/jobs")]),
        faults_heading: "2 faults in this document; nothing was submitted".into(),
        faults: if faulty {
            vec![
                fault(
                    7,
                    15,
                    "roles[0].replicas",
                    "'many' is not a whole number from 1 to 10,000.",
                    "",
                ),
                fault(
                    11,
                    7,
                    "roles[0].resources",
                    "'memroy' is not a field here.",
                    "Did you mean memory?",
                ),
            ]
        } else {
            vec![]
        },
        plan: (!faulty).then(|| PlanView {
            heading: "This document is sound",
            sentence: "It would start at once on this-machine: 4 replicas, 8 cores, 16 GiB, 4 GPUs.".into(),
            facts: vec![
                Fact::new("Cluster", "this-machine"),
                Fact::new("Replicas", "4"),
                Fact::new("Team", "vision"),
            ],
        }),
        document,
        idempotency_key: "k".into(),
        from: None,
        examples: vec![
            Example {
                name: "train".into(),
                about: "Two replicas, the standard library alone".into(),
                href: "/jobs/new?example=train".into(),
            },
            Example {
                name: "pytorch".into(),
                about: "Distributed PyTorch over gloo".into(),
                href: "/jobs/new?example=pytorch".into(),
            },
            Example {
                name: "mpi".into(),
                about: "One launcher, mpirun over the slots".into(),
                href: "/jobs/new?example=mpi".into(),
            },
        ],
    }
}

pub fn nodes(count: u32) -> NodesPage {
    let cell = |index: u32| GridCell {
        name: format!("ip-10-{}-{}-{}", index / 900, index / 30 % 30, index % 250),
        href: format!("/n/{:010x}", u64::from(index) * 88_172_645_463),
    };
    let half = count / 2;
    let group = |label: &str, from: u32, to: u32| GridGroup {
        label: label.into(),
        summary: format!("{} nodes", to - from),
        runs: vec![
            GridRun {
                tone: Tone::Failed,
                label: "2 not ready".into(),
                cells: (from..from + 2).map(cell).collect(),
            },
            GridRun {
                tone: Tone::Warning,
                label: "9 ready, with a warning".into(),
                cells: (from + 2..from + 11).map(cell).collect(),
            },
            GridRun {
                tone: Tone::Stale,
                label: "14 not seen lately".into(),
                cells: (from + 11..from + 25).map(cell).collect(),
            },
            GridRun {
                tone: Tone::Succeeded,
                label: format!("{} ready", to - from - 25),
                cells: (from + 25..to).map(cell).collect(),
            },
        ],
    };
    NodesPage {
        shell: Shell {
            wide: true,
            ..shell("4 not ready · Nodes", Section::Nodes, &[])
        },
        summary: "4 of 5,000 nodes are not ready. 18 are ready with a warning. 28 were not seen in the last 2 min."
            .into(),
        choices: vec![
            choice("All", "5,000", true),
            choice("Not ready", "4", false),
            choice("With a warning", "18", false),
            choice("Not seen lately", "28", false),
        ],
        grid: Some(Grid {
            groups: vec![
                group("eks-east, pool p5-48xlarge", 0, half),
                group("eks-east, pool m7i", half, count),
            ],
            legend: vec![
                (Tone::Failed, "not ready".into()),
                (Tone::Warning, "ready, with a warning".into()),
                (Tone::Stale, "not seen lately".into()),
                (Tone::Succeeded, "ready".into()),
            ],
            table: "/nodes?view=table".into(),
        }),
        grid_href: "/nodes".into(),
        rows: vec![],
        pages: Pages::default(),
    }
}

fn nodes_table() -> NodesPage {
    let row = |index: u32, tone, sentence: &str| NodeRow {
        id: format!("node_{index:026}"),
        tone,
        sentence: sentence.into(),
        name: format!("gpu-a-{index}"),
        place: "eks-east, p5-48xlarge".into(),
        cpu: "41.5 of 192".into(),
        memory: "310 of 2,048".into(),
        gpus: "6 of 8".into(),
        replicas: "3".into(),
        seen: when("3 s ago", 0),
    };
    NodesPage {
        grid: None,
        rows: vec![
            row(
                3,
                Tone::Failed,
                "Not ready 4 min: the kubelet stopped posting its status",
            ),
            row(11, Tone::Warning, "Ready; GPU 2 is at 91 °C"),
            row(4, Tone::Succeeded, "Ready 6 d"),
        ],
        ..nodes(5_000)
    }
}

fn node() -> NodePage {
    let times = |title: &str, id: &str, unit: &'static str, says: &str, from: f64, to: f64| Plot {
        id: id.into(),
        title: title.into(),
        says: says.into(),
        svg: plot::draw(&Chart {
            title,
            description: says,
            x: Horizontal::Time,
            y_label: unit,
            from_zero: true,
            series: vec![Line {
                name: title.into(),
                color: 0,
                points: over_time(curve(3, 240, from, to), 15.0),
                stands_out: false,
            }],
        })
        .unwrap(),
        numbers: "/nodes/x/numbers/cpu".into(),
    };
    NodePage {
        shell: shell("Ready: this-machine", Section::Nodes, &[("Nodes", "/nodes")]),
        name: "this-machine".into(),
        state: State {
            tone: Tone::Warning,
            sentence: "Ready, with 1 warning: the disk is 91 % full".into(),
            reason: Some("Jobs still start here.".into()),
            code: Some("disk_filling".into()),
            since: Some(when("2 h 4 min ago", 124)),
            next: Some("Free space under /var/lib/trainyard, or shorten the retention of logs.".into()),
            stale: None,
        },
        conditions: vec![
            Condition {
                tone: Tone::Warning,
                severity: "warning",
                name: "Disk".into(),
                message: "91 % of 234 GiB are used; it grows by 1.2 GiB an hour and is full in about 17 h.".into(),
                code: "disk_filling".into(),
                since: when("2 h 4 min ago", 124),
            },
            Condition {
                tone: Tone::Succeeded,
                severity: "fine",
                name: "Memory".into(),
                message: "6.1 of 15.5 GiB used, no swapping.".into(),
                code: "memory_ok".into(),
                since: when("6 d ago", 8640),
            },
            Condition {
                tone: Tone::Stale,
                severity: "unknown",
                name: "Temperature".into(),
                message: "This machine shows no temperature sensors.".into(),
                code: "no_sensor".into(),
                since: when("6 d ago", 8640),
            },
        ],
        timeline: Some(timeline::draw(
            "Conditions of this-machine in the last day",
            ago(1440),
            ago(0),
            &[
                Lane {
                    label: "Ready".into(),
                    bars: vec![
                        bar(Tone::Succeeded, 1440, Some(700), "holds", "Ready"),
                        bar(Tone::Failed, 700, Some(688), "broken", "Not ready 12 min"),
                        bar(Tone::Succeeded, 688, None, "holds", "Ready"),
                    ],
                    points: vec![],
                },
                Lane {
                    label: "Disk".into(),
                    bars: vec![
                        bar(Tone::Succeeded, 1440, Some(124), "holds", "Fine"),
                        bar(Tone::Warning, 124, None, "warning", "91 % full"),
                    ],
                    points: vec![],
                },
            ],
        )),
        usage_as_of: "3 s ago".into(),
        meters: vec![
            Meter {
                name: "CPU".into(),
                words: "1.9 of 2 cores".into(),
                percent: Some(95),
            },
            Meter {
                name: "Memory".into(),
                words: "6.1 of 15.5 GiB".into(),
                percent: Some(39),
            },
            Meter {
                name: "Disk /".into(),
                words: "213 of 234 GiB".into(),
                percent: Some(91),
            },
            Meter {
                name: "Load".into(),
                words: "2.4, 2.1, 1.7 over 1, 5, 15 min".into(),
                percent: None,
            },
            Meter {
                name: "Temperature".into(),
                words: "no sensor".into(),
                percent: None,
            },
        ],
        running_summary: "2 replicas of 1 job".into(),
        running: (0..2)
            .map(|rank| RunningRow {
                tone: Tone::Running,
                word: "running".into(),
                job: JOB.into(),
                job_name: "mixtral-pretrain".into(),
                key: format!("worker-{rank}"),
                rank,
                team: "vision".into(),
                step: "1,240".into(),
                gpus: "none".into(),
                since: Some(when("31 min ago", 31)),
            })
            .collect(),
        plots_heading: "In the last hour".into(),
        ranges: vec![
            choice("1 hour", "", true),
            choice("6 hours", "", false),
            choice("1 day", "", false),
            choice("7 days", "", false),
        ],
        plots: vec![
            times("CPU", "cpu", "cores", "1.9 cores now, of 2", 0.3, 1.9),
            times("Memory", "memory", "GiB", "6.1 GiB now, of 15.5", 2.0, 6.1),
            times("Disk", "disk", "GiB", "213 GiB now, of 234", 200.0, 213.0),
        ],
        gpus: vec![GpuRow {
            index: 0,
            model: "NVIDIA H100 80GB HBM3".into(),
            busy: "97".into(),
            memory_used: "71.2".into(),
            memory: "79.6".into(),
            temperature: "64".into(),
            power: "612".into(),
            faults: "none".into(),
        }],
        facts: vec![
            Fact::new("Processor", "Intel Xeon Platinum 8481C, 2 cores"),
            Fact::new("Kernel", "Linux 6.1.0"),
            Fact::new("Machine id", "b7d0c1f2"),
        ],
        events: vec![event(
            3,
            "2 h 4 min ago",
            124,
            "The disk is more than 90 % full",
            "node.condition",
            None,
        )],
    }
}

fn clusters() -> ClustersPage {
    let row = |tone, sentence: &str, name: &str, provider| ClusterRow {
        id: format!("clu_{name}"),
        tone,
        sentence: sentence.into(),
        name: name.into(),
        provider,
        nodes: "11 of 12".into(),
        cpu: "118".into(),
        gpus: "22".into(),
        running: "4".into(),
        waiting: "2".into(),
        seen: Some(when("1 s ago", 0)),
    };
    ClustersPage {
        shell: shell("Clusters", Section::Clusters, &[]),
        summary: "1 of 2 clusters is looked after by a worker.".into(),
        rows: vec![
            row(Tone::Stale, "Not seen for 7 min: no worker holds it", "eks-east", "EKS"),
            row(Tone::Succeeded, "Active 6 d", "this-machine", "this machine"),
        ],
    }
}

fn cluster() -> ClusterPage {
    let limit = |name, tone, word, how: &str| Limit {
        name,
        tone,
        word,
        how: how.into(),
    };
    ClusterPage {
        shell: shell("Active: this-machine", Section::Clusters, &[("Clusters", "/clusters")]),
        id: "clu_x".into(),
        name: "this-machine".into(),
        state: State { tone: Tone::Succeeded, sentence: "Active, 1 of 1 nodes ready, 1 job runs, 2 wait".into(), reason: None, code: None, since: Some(when("6 d ago", 8640)), next: None, stale: None },
        facts: vec![Fact::new("Comes from", "this machine"), Fact::new("CPU", "0.1 of 2 cores free"), Fact::new("Memory", "9.4 of 15.5 GiB free"), Fact::new("GPUs", "none"), Fact::new("Worker", "up 6 d, seen 1 s ago")],
        trust: "Trainyard runs as an ordinary account here, so its server, keys, database and every job are one trust domain: a job can read whatever this account can read.".into(),
        limits: vec![
            limit("Memory", Tone::Succeeded, "yes", "cgroup v2: a replica beyond its memory is ended and said to be out of memory"),
            limit("CPU", Tone::Warning, "no", "The cpu controller is not delegated to this account. Replicas are counted against cores, not held to them."),
            limit("GPUs", Tone::Stale, "not known yet", "There are none."),
        ],
        conditions: vec![],
        queue_summary: "2 jobs".into(),
        queue: vec![
            QueueRow { place: 1, job: JOB.into(), name: "eval-harness".into(), team: "vision".into(), priority: 0, asks: "1 replica: 8 GPUs".into(), since: when("14 min ago", 14), why: "Needs 8 GPUs on one node; this cluster has none".into() },
            QueueRow { place: 2, job: JOB.into(), name: "tokenise-shards".into(), team: "data".into(), priority: 0, asks: "4 replicas: 4 cores".into(), since: when("2 min ago", 2), why: "Behind eval-harness; starts first if it still leaves room".into() },
        ],
        grants: vec![Grant { team: "vision".into(), level: "use".into(), namespace: "none".into(), queue: "none".into() }],
        events: vec![event(1, "6 d ago", 8640, "Became active", "cluster.phase", None)],
    }
}

fn settings() -> SettingsPage {
    let token = |name: &str, dead| TokenRow {
        id: format!("tok_{name}"),
        name: name.into(),
        reach: "team vision, as member".into(),
        made: when("6 d ago", 8640),
        expires: Some(when("in 84 d", -120_960)),
        used: Some(when("4 min ago", 4)),
        dead,
    };
    SettingsPage {
        shell: shell("Settings", Section::Settings, &[]),
        facts: vec![
            Fact::new("Name", "Maya Ortiz"),
            Fact::new("Role", "admin of this installation"),
            Fact::new("Teams", "vision (owner), data (viewer)"),
        ],
        tokens: vec![token("laptop", None), token("ci", Some("revoked"))],
        fresh: Some(FreshToken {
            name: "laptop".into(),
            secret: "ty_shown_once".into(),
        }),
        fault: None,
        name: String::new(),
        teams: vec![option("", "all my teams"), option("vision", "vision")],
        roles: vec![option("viewer", "viewer"), option("member", "member")],
    }
}

fn search() -> SearchPage {
    let hit = |tone, name: &str, about: &str| Hit {
        tone,
        name: name.into(),
        href: "/jobs/x".into(),
        about: about.into(),
    };
    SearchPage {
        shell: shell("Find: eval", Section::None, &[]),
        text: "eval".into(),
        groups: vec![
            HitGroup {
                heading: "Jobs",
                none: "",
                hits: vec![
                    hit(Tone::Waiting, "eval-harness", "Waiting 14 min, vision"),
                    hit(Tone::Succeeded, "eval-7", "Succeeded, vision"),
                ],
            },
            HitGroup {
                heading: "Nodes",
                none: "No node's name contains it.",
                hits: vec![],
            },
        ],
    }
}

fn numbers() -> NumbersPage {
    NumbersPage {
        shell: shell(
            "loss of mixtral-pretrain",
            Section::Jobs,
            &[("Jobs", "/jobs"), ("mixtral-pretrain", "/jobs/x")],
        ),
        heading: "loss of mixtral-pretrain".into(),
        about: "Attempt 2, every rank, by step.".into(),
        csv: "/x.csv".into(),
        json: "/x.json".into(),
        columns: ["Step", "worker-0", "worker-1"].map(Into::into).to_vec(),
        rows: (0..30)
            .map(|step| vec![(step * 10).to_string(), "0.412".into(), "0.409".into()])
            .collect(),
    }
}

fn error() -> ErrorPage {
    ErrorPage {
        shell: shell("Not available", Section::None, &[]),
        status: 503,
        code: "database_away".into(),
        title: "The database is not available".into(),
        detail: "Trainyard runs, but its Postgres does not answer. Jobs go on; nothing that was acknowledged is lost."
            .into(),
        hint: Some("Wait a moment. If it lasts, run trainyard doctor on the server's machine.".into()),
        retry: true,
        request: Some("9f1c22".into()),
    }
}
