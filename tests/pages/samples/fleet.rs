//! Nodes and clusters.

use super::*;

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
                tone: Tone::Critical,
                label: "3 ready, but critical".into(),
                cells: (from + 11..from + 14).map(cell).collect(),
            },
            GridRun {
                tone: Tone::Warning,
                label: "9 ready, with a warning".into(),
                cells: (from + 2..from + 11).map(cell).collect(),
            },
            GridRun {
                tone: Tone::Stale,
                label: "11 not seen lately".into(),
                cells: (from + 14..from + 25).map(cell).collect(),
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
                (Tone::Critical, "ready, but critical".into()),
                (Tone::Warning, "ready, with a warning".into()),
                (Tone::Stale, "not seen lately".into()),
                (Tone::Succeeded, "ready".into()),
            ],
            table: "/nodes?view=table".into(),
        }),
        grid_href: "/nodes".into(),
        filtered: false,
        heads: sort::heads(&nodes::table::COLUMNS, nodes::table::WORST, |sort| {
            format!("/nodes?sort={sort}")
        }),
        rows: vec![],
        pages: Pages::default(),
    }
}

pub fn nodes_table() -> NodesPage {
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

pub fn node() -> NodePage {
    let times = |title: &str, id: &str, unit: &'static str, says: &str, from: f64, to: f64| Plot {
        id: id.into(),
        title: title.into(),
        says: says.into(),
        svg: plot::draw(
            &Chart {
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
            },
            plot::Size::Small,
        )
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

pub fn clusters() -> ClustersPage {
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
        heads: sort::heads(&clusters::COLUMNS, clusters::WORST, |sort| {
            format!("/clusters?sort={sort}")
        }),
        rows: vec![
            row(Tone::Stale, "Not seen for 7 min: no worker holds it", "eks-east", "EKS"),
            row(Tone::Succeeded, "Active 6 d", "this-machine", "this machine"),
        ],
    }
}

pub fn cluster() -> ClusterPage {
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
        grants: vec![Grant { id: "team_x".into(), team: "vision".into(), level: "use".into(), namespace: "none".into(), queue: "none".into() }],
        events: vec![event(1, "6 d ago", 8640, "Became active", "cluster.phase", None)],
    }
}
