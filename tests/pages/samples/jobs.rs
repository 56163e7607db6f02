//! The list of jobs, and what is asked before a verb.

use super::*;

pub fn jobs() -> JobsPage {
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
        sort: None,
        heads: sort::heads(&jobs::COLUMNS, jobs::NEWEST, |sort| format!("/jobs?sort={sort}")),
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
            first: None,
            next: Some("/jobs?after=x".into()),
        },
    }
}

pub fn cancel() -> ConfirmPage {
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

pub fn delete() -> ConfirmPage {
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
