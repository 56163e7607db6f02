use std::collections::BTreeMap;

use super::*;
use crate::model::{RestartOwner, Retention};
use job::*;
use units::{CpuQuantity, Duration, MemoryQuantity};

/// Texts that a careless writer would change: words of other types, blanks at the ends, breaks, colours, signs of YAML.
const TEXTS: &[&str] = &[
    "",
    "x",
    "true",
    "no",
    "null",
    "~",
    "1",
    "0x10",
    "1e3",
    "10s",
    "2Gi",
    "1d",
    "-",
    "--",
    "--flag",
    "---",
    "- a",
    "a: b",
    "a:",
    " lead",
    "trail ",
    "#c",
    "a #c",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a`",
    "'q'",
    "\"q\"",
    "[a]",
    "{a}",
    "a, b",
    "|",
    ">",
    "ä€😀",
    "\t",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}x",
    "a\\nb",
    "$PATH",
    "${X}",
    "<<",
    "=",
    "a=b",
    "2026-11-30",
    "12:30",
    "?",
    ": ",
    "...",
    "é\u{301}",
];
const SCRIPTS: &[&str] = &[
    "print(1)\n",
    "a\nb",
    "a\nb\n",
    "a\n\nb\n",
    "a\nb\n\n",
    "\na\n",
    "  a\nb\n",
    "a\n  b\n",
    "a\n \nb\n",
    "a\r\nb\n",
    "a\tb\nc\n",
    "#!/bin/sh\necho \"$PATH\" # no\n",
    "a\n   ",
    "---\na\n...\n",
    "\n",
    "\n\n",
    "a: b\n- c\n",
    "\u{1b}\nb\n",
    "tab\n\tindented\n",
    "a \nb \n",
];

fn text(dice: &mut Dice) -> String {
    match dice.below(3) {
        0 => (*dice.one(TEXTS)).to_owned(),
        1 => (*dice.one(SCRIPTS)).to_owned(),
        _ => {
            let length = dice.below(12);
            (0..length)
                .map(|_| {
                    *dice.one(&[
                        'a', 'B', '0', ' ', '\n', ':', '-', '#', '"', '\'', '\\', '€', '{', ',', '\t', '|',
                    ])
                })
                .collect()
        }
    }
}

fn texts(dice: &mut Dice, least: usize) -> Vec<String> {
    let length = least + dice.below(4);
    (0..length).map(|_| text(dice)).collect()
}

fn maybe<T>(dice: &mut Dice, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    if dice.chance(2) { Some(make(dice)) } else { None }
}

fn duration(dice: &mut Dice) -> Duration {
    Duration::seconds(1 + dice.next() % 1_000_000)
}

fn environment(dice: &mut Dice) -> BTreeMap<String, EnvValue> {
    let value = |dice: &mut Dice| match dice.below(4) {
        0 => EnvValue::Secret {
            secret_ref: SecretRef {
                name: "hub".into(),
                key: "a.b".into(),
            },
        },
        _ => EnvValue::Value(text(dice)),
    };
    (0..dice.below(4)).map(|n| (format!("NAME_{n}"), value(dice))).collect()
}

fn volume(dice: &mut Dice, n: usize) -> Volume {
    Volume {
        name: format!("v-{n}"),
        mount_path: format!("/mnt/{n} é"),
        source: match dice.below(4) {
            0 => VolumeSource::Job {},
            1 => VolumeSource::HostPath { path: "/data".into() },
            2 => VolumeSource::SecretRef(SecretRef {
                name: "login".into(),
                key: "file".into(),
            }),
            _ => VolumeSource::Claim {
                name: "fsx.claim".into(),
            },
        },
        read_only: dice.chance(2),
    }
}

fn role(dice: &mut Dice, n: usize) -> Role {
    Role {
        name: format!("role-{n}"),
        replicas: 1 + dice.below(9) as u32,
        // A program has a name.
        command: std::iter::once("run".to_owned()).chain(texts(dice, 0)).collect(),
        args: texts(dice, 0),
        image: maybe(dice, |_| "registry.example.com:5000/a/b:1.0@sha256:ab".into()),
        working_dir: maybe(dice, |_| "src/x".into()),
        env: environment(dice),
        resources: Resources {
            cpu: CpuQuantity::milli(1 + dice.next() % 100_000),
            memory: maybe(dice, |dice| {
                MemoryQuantity::bytes((1 + dice.next() % 4096) << (10 * dice.below(4)))
            }),
            gpus: dice.below(9) as u32,
            other: (0..dice.below(3))
                .map(|n| (format!("vendor.example/r{n}"), n as u64))
                .collect(),
        },
        volumes: (0..dice.below(3)).map(|n| volume(dice, n)).collect(),
    }
}

fn code(dice: &mut Dice) -> Code {
    match dice.below(3) {
        0 => Code::Upload(format!("sha256:{:064x}", dice.next())),
        1 => Code::Git {
            url: "https://example.com/a.git".into(),
            commit: format!("{:040x}", dice.next()),
        },
        _ => Code::Inline(
            (0..1 + dice.below(3))
                .map(|n| (format!("lib/f {n}.py"), text(dice)))
                .collect(),
        ),
    }
}

fn document(dice: &mut Dice) -> JobDocument {
    JobDocument {
        api_version: ApiVersion::V1,
        kind: JobKind::Job,
        name: ["a", "null", "0", "1e3", "true", "a-b"][dice.below(6)].into(),
        team: maybe(dice, |_| "team-1".into()),
        labels: (0..dice.below(3))
            .map(|n| (format!("a.example/l{n}"), ["1.0", "", "no", "x_y"][n].into()))
            .collect(),
        cluster: maybe(dice, |_| "here".into()),
        framework: *dice.one(&[
            Framework::Pytorch,
            Framework::Tensorflow,
            Framework::Jax,
            Framework::Plain,
        ]),
        roles: (0..1 + dice.below(3)).map(|n| role(dice, n)).collect(),
        code: maybe(dice, code),
        env: environment(dice),
        restart: Restart {
            owner: *dice.one(RestartOwner::ALL),
            max: dice.below(5) as u32,
            backoff: Duration::seconds(dice.next() % 100_000),
            never_retry_exit_codes: (0..dice.below(3) as i32).map(|n| n + 1).collect(),
        },
        deadlines: Deadlines {
            queue: maybe(dice, duration),
            start: maybe(dice, duration),
            run: maybe(dice, duration),
            silence: maybe(dice, duration),
        },
        priority: dice.below(2001) as i32 - 1000,
        queue: maybe(dice, |_| "q".into()),
        metrics: Metrics {
            catch: dice.chance(2),
            pattern: maybe(dice, |_| r"step (?P<step>\d+): '(?P<loss>[-0-9.e]+)' # \$".into()),
            total_steps: maybe(dice, |dice| 1 + dice.next() % 1_000_000),
        },
        checkpoints: if dice.chance(2) {
            Checkpoints::default()
        } else {
            Checkpoints {
                signal: Some(*dice.one(&[CheckpointSignal::Usr1, CheckpointSignal::Int])),
                wait: maybe(dice, duration),
            }
        },
        stop: Stop { grace: duration(dice) },
        retention: *dice.one(Retention::ALL),
    }
}

#[test]
fn what_is_written_reads_the_same() {
    let mut dice = Dice(20261130);
    for round in 0..400 {
        let document = document(&mut dice);
        let yaml = to_yaml(&document);
        let read = check_job(&yaml, Some(Format::Yaml));
        assert_eq!(read.as_ref(), Ok(&document), "round {round}\n{yaml}");
        assert_eq!(to_yaml(&document), yaml);
        let json = to_json(&document);
        assert_eq!(
            check_job(&json, Some(Format::Json)).as_ref(),
            Ok(&document),
            "round {round}\n{json}"
        );
        assert_eq!(
            check_job(&json, Some(Format::Yaml)).as_ref(),
            Ok(&document),
            "round {round}\n{json}"
        );
        let value = serde_json::to_value(&document).unwrap();
        assert_eq!(check_job_value(&value).as_ref(), Ok(&document), "round {round}");
        assert_eq!(
            serde_json::from_value::<JobDocument>(value).ok().as_ref(),
            Some(&document)
        );
    }
}

#[test]
fn defaults_are_filled() {
    let document = check_job(SMALL, None).unwrap();
    let role = &document.roles[0];
    assert_eq!(role.resources.cpu.as_milli(), 1000);
    assert_eq!(
        (document.restart.max, document.restart.backoff),
        (0, Duration::seconds(10))
    );
    assert_eq!(
        (document.stop.grace, document.retention),
        (Duration::seconds(30), Retention::Standard)
    );
    assert!(document.metrics.catch);
}

#[test]
fn a_clone_can_be_read_by_people() {
    let lines = "code:\n  inline:\n    a.py: |\n      import x\n\n      x.y('z')\nenv: { A: '1' }\n";
    let document = check_job(&small_with(lines), None).unwrap();
    assert_eq!(
        to_yaml(&document),
        "\
apiVersion: trainyard.dev/v1
kind: Job
name: train
framework: pytorch
roles:
  - name: worker
    replicas: 2
    command: [python3, train.py]
    resources:
      cpu: \"1\"
      gpus: 0
code:
  inline:
    a.py: |
      import x

      x.y('z')
env:
  A: \"1\"
restart:
  owner: trainyard
  max: 0
  backoff: 10s
deadlines: {}
priority: 0
metrics:
  catch: true
checkpoints: {}
stop:
  grace: 30s
retention: standard
"
    );
}
