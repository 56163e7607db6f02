//! Output, and writing a job.

use super::*;

pub fn log_rows() -> Vec<LogRow> {
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
                chosen: index > 55,
                href: format!("#worker-{rank}.stdout.{}", 1240 + index),
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

pub fn logs(searched: bool) -> LogsPage {
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
        ranks: if searched {
            vec![option("", "all"), option("0", "0"), option("1", "1")]
        } else {
            Vec::new()
        },
        times: vec![
            option("clock", "clock, UTC"),
            option("start", "since the start"),
            option("off", "off"),
        ],
        time_mode: "clock",
        search: if searched { "nan".into() } else { String::new() },
        regex: false,
        only: false,
        follow: true,
        live: true,
        one: false,
        found: searched.then(|| Found {
            summary: "\"nan\" was found 12 times, in 2 of 8 ranks".into(),
            groups: [(3, 1190, 7), (5, 1197, 5)]
                .map(|(rank, from, lines)| FoundGroup {
                    replica: format!("worker-{rank}"),
                    color: rank,
                    count: format!("{lines} lines"),
                    hits: (from..from + lines)
                        .map(|line| FoundHit {
                            href: format!("#worker-{rank}.stdout.{line}"),
                            anchor: format!("worker-{rank}.stdout.{line}"),
                            line,
                            stderr: rank == 3,
                            before: "step=1190 loss=".into(),
                            hit: "nan".into(),
                            after: " lr=0.0003".into(),
                        })
                        .collect(),
                })
                .to_vec(),
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

pub const DOCUMENT: &str = "apiVersion: trainyard.dev/v1
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

pub fn new_job(faulty: bool) -> NewJobPage {
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
            warnings: vec![
                "A local cluster has no queue 'gold'; its jobs start by priority and age alone (queue).".into(),
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
