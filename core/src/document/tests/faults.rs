use super::*;

fn check(text: &str) -> Vec<String> {
    told(check_job(text, None))
}

fn words(text: &str) -> String {
    let faults = check_job(text, None).unwrap_err();
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_text() {
    let text = "\
apiVersion: trainyard.dev/v1
kind: Job
name: Train_1
framework: pytroch
image: pytorch/pytorch
roles:
  - name: worker
    replicas: 0
    command: python3 train.py
    resources: { cpu: lots, memroy: 2Gi }
  - name: worker
    comand: [a]
deadlines: { queue: 90 }
metrics: { catch: no, pattern: '(?P<loss>[0-9.]+' }
";
    assert_eq!(
        check(text),
        [
            "wrong_form name 3:7",
            "unknown_word framework 4:12",
            "unknown_field image 5:1",
            "out_of_range roles[0].replicas 8:15",
            "wrong_type roles[0].command 9:14",
            "wrong_form roles[0].resources.cpu 10:23",
            "unknown_field roles[0].resources.memroy 10:29",
            "missing_field roles[1].command 11:5",
            "duplicate_name roles[1].name 11:11",
            "unknown_field roles[1].comand 12:5",
            "wrong_type deadlines.queue 13:21",
            "wrong_type metrics.catch 14:19",
            "wrong_form metrics.pattern 14:32",
        ]
    );
}

#[test]
fn messages_name_the_value_and_the_way_out() {
    let text = "\
apiVersion: trainyard.dev/v1
kind: Job
name: t
framework: pytroch
image: x
roles:
  - name: worker
    replicas: '2'
    command: python3 train.py
    resources: { cpu: lots, gpu: 1 }
metrics: { catch: no }
";
    assert_eq!(
        words(text),
        "\
line 4, column 12: framework: 'pytroch' is not one of pytorch, tensorflow, mpi, jax, plain; did you mean 'pytorch'?
line 5, column 1: image: there is no field 'image' here; 'image' belongs to roles[]
line 8, column 15: roles[0].replicas: '2' is text; expected is a whole number; leave the quotes out
line 9, column 14: roles[0].command: 'python3 train.py' is text; expected is a list; write it as a list: [\"python3\", \"train.py\"]
line 10, column 23: roles[0].resources.cpu: 'lots' is not a number of cores such as 2, 0.5 or 500m (at least 1m, at most 10000)
line 10, column 29: roles[0].resources.gpu: there is no field 'gpu' here; did you mean 'gpus'?
line 11, column 19: metrics.catch: 'no' is text; expected is true or false; write true or false"
    );
}

#[test]
fn json_has_positions_too() {
    let text = r#"{
  "apiVersion": "trainyard.dev/v1", "kind": "Job",
  "name": "t", "näme": 1,
  "roles": [{"name": "w", "command": ["a"],
    "replicas": -1, "replicas": 2, "env": {"A\u0041": null, "1x": "y"}}]
}"#;
    assert_eq!(
        check(text),
        [
            "unknown_field näme 3:16",
            "out_of_range roles[0].replicas 5:17",
            "duplicate_key roles[0].replicas 5:21",
            "wrong_type roles[0].env.AA 5:55",
            "wrong_form roles[0].env.1x 5:61",
        ]
    );
    assert_eq!(
        told(check_job("{\n \"a\": tru }", Some(Format::Json))),
        ["syntax . 2:10"]
    );
    assert_eq!(told(check_job("", Some(Format::Json))), ["syntax . 1:1"]);
}

#[test]
fn a_value_without_a_text_has_paths_without_lines() {
    let value = serde_json::json!({ "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "t", "roles": [] });
    assert_eq!(told(check_job_value(&value)), ["out_of_range roles -:-"]);
}

#[test]
fn scalars_are_taken_as_they_were_written() {
    let lines = "env: { ZIP: 010, RATE: 1.50, ON: True, NO: no, HEX: 0x10, AT: 2026-11-30, NONE: '' }\n";
    let document = check_job(&small_with(lines), None).unwrap();
    let value = |name: &str| match &document.env[name] {
        job::EnvValue::Value(text) => text.clone(),
        job::EnvValue::Secret { .. } => panic!("no secret"),
    };
    let values = ["ZIP", "RATE", "ON", "NO", "HEX", "AT", "NONE"].map(value);
    assert_eq!(values, ["010", "1.50", "True", "no", "0x10", "2026-11-30", ""]);
    let quantities = small_with("").replace(
        "    command",
        "    resources: { cpu: 0.50, memory: 1073741824 }\n    command",
    );
    let document = check_job(&quantities, None).unwrap();
    assert_eq!(document.roles[0].resources.cpu.as_milli(), 500);
}

#[test]
fn an_optional_field_with_nothing_in_it_is_left_out() {
    assert_eq!(
        check(&small_with("team:\nenv:\nmetrics:\ncheckpoints: { signal: ~ }\n")),
        [""; 0]
    );
    assert_eq!(check(&small_with("env: { A: }\n")), ["wrong_type env.A 9:9"]);
}

#[test]
fn placeholders_are_named_and_a_shell_is_left_alone() {
    let text = "\
apiVersion: trainyard.dev/v1
kind: Job
name: $JOB_NAME
team: PLACEHOLDER_TEAM
roles:
  - name: worker
    replicas: $NUM_NODES
    image: ${IMAGE}
    command: [sh, -c, 'PATH=$PATH:/opt python3 PLACEHOLDER_SCRIPT']
    env: { DATA: PLACEHOLDER_DATA, HOME: $HOME }
    resources: { cpu: $CPUS }
    volumes:
      - { name: data, mountPath: '/data/${USER}', source: { claim: { name: PLACEHOLDER_CLAIM } } }
code: { inline: { run.sh: 'echo PLACEHOLDER_X $PATH' } }
";
    assert_eq!(
        check(text),
        [
            "placeholder name 3:7",
            "placeholder team 4:7",
            "placeholder roles[0].replicas 7:15",
            "placeholder roles[0].image 8:12",
            "placeholder roles[0].command[2] 9:23",
            "placeholder roles[0].env.DATA 10:18",
            "placeholder roles[0].resources.cpu 11:23",
            "placeholder roles[0].volumes[0].mountPath 13:34",
            "placeholder roles[0].volumes[0].source.claim.name 13:76",
        ]
    );
    assert!(words(text).contains("the placeholder PLACEHOLDER_SCRIPT was not filled in"));
}

#[test]
fn mpi_needs_one_launcher() {
    let mpi = SMALL.replace("framework: pytorch", "framework: mpi");
    assert_eq!(check(&mpi), ["conflict framework 4:12"]);
    let launchers = mpi.replace("name: worker", "name: launcher");
    assert_eq!(check(&launchers), ["conflict roles[0].replicas 7:15"]);
    assert_eq!(check(&launchers.replace("replicas: 2", "replicas: 1")), [""; 0]);
}

#[test]
fn names_that_are_taken_are_refused() {
    let lines = "env: { TRAINYARD_JOB: x, RANK: 1, TF_CONFIG: y }\nlabels: { trainyard.dev/job: a, a.example/b: c, 'x y': z }\n";
    assert_eq!(
        check(&small_with(lines)),
        [
            "reserved_name env.TRAINYARD_JOB 9:8",
            "reserved_name env.RANK 9:26",
            "reserved_name labels[\"trainyard.dev/job\"] 10:11",
            "wrong_form labels[\"x y\"] 10:49",
        ]
    );
}

#[test]
fn code_stays_inside_its_folder() {
    let lines = "code:\n  inline:\n    ../a: ''\n    /b: ''\n    a//c: ''\n    d: ''\n    d/e: ''\n    ok/f.py: ''\n";
    assert_eq!(
        check(&small_with(lines)),
        [
            "wrong_form code.inline[\"../a\"] 11:5",
            "wrong_form code.inline[\"/b\"] 12:5",
            "wrong_form code.inline[\"a//c\"] 13:5",
            "conflict code.inline.d 14:5",
        ]
    );
    let large = format!("code: {{ inline: {{ a: '{}' }} }}\n", "x".repeat(901 * 1024));
    assert_eq!(check(&small_with(&large)), ["out_of_range code.inline 9:17"]);
    for (line, code) in [
        ("code: { upload: abc }", "wrong_form code.upload 9:17"),
        (
            "code: { git: { url: 'https://h/r', commit: main } }",
            "wrong_form code.git.commit 9:44",
        ),
        ("code: { inlin: {} }", "unknown_field code.inlin 9:9"),
        ("code: { upload: a, inline: { a: b } }", "conflict code 9:7"),
        ("code: {}", "missing_field code 9:7"),
    ] {
        assert_eq!(check(&small_with(line)), [code], "{line}");
    }
    let option = format!(
        "code: {{ git: {{ url: '--upload-pack=x', commit: {} }} }}",
        "a".repeat(40)
    );
    assert_eq!(check(&small_with(&option)), ["wrong_form code.git.url 9:21"]);
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for (lines, fault) in [
        ("deadlines: { run: 0s }", "out_of_range deadlines.run 9:19"),
        ("checkpoints: { wait: 1m }", "conflict checkpoints.wait 9:22"),
        ("checkpoints: { signal: USR9 }", "unknown_word checkpoints.signal 9:24"),
        (
            "restart: { neverRetryExitCodes: [0] }",
            "out_of_range restart.neverRetryExitCodes[0] 9:34",
        ),
        (
            "restart: { neverRetryExitCodes: [2, 2] }",
            "duplicate_name restart.neverRetryExitCodes[1] 9:37",
        ),
        (
            "metrics: { pattern: 'loss (?P<loss>.*)' }",
            "wrong_form metrics.pattern 9:21",
        ),
        ("priority: 1.5", "wrong_type priority 9:11"),
        ("priority: 99999999999999999999", "out_of_range priority 9:11"),
    ] {
        assert_eq!(check(&small_with(lines)), [fault], "{lines}");
    }
    let many = SMALL.replace("replicas: 2", "replicas: 10000") + "  - { name: b, replicas: 1, command: [a] }\n";
    assert_eq!(check(&many), ["out_of_range roles 6:3"]);
}

#[test]
fn another_kind_of_document_is_told_by_that_alone() {
    assert_eq!(
        words("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: { name: x }\n"),
        "line 1, column 13: apiVersion: this is a document of kubeflow.org/v1 PyTorchJob, not a job document of \
         trainyard.dev/v1; a job document begins with 'apiVersion: trainyard.dev/v1' and 'kind: Job'"
    );
    assert_eq!(check("[]"), ["wrong_type . 1:1"]);
    assert_eq!(
        check("apiVersion: trainyard.dev/v2\nkind: Job\nname: a\nroles: [{name: a, command: [b]}]"),
        ["unknown_word apiVersion 1:13"]
    );
}

#[test]
fn yaml_that_hides_things_is_refused() {
    for (text, fault) in [
        ("", "empty . 1:1"),
        ("# nothing\n", "empty . 1:1"),
        ("a: 1\n---\nb: 2\n", "several_documents . 2:1"),
        ("a: [1\nb: 2", "syntax . 2:2"),
        ("a: !!binary aGk=\n", "unsupported_yaml . 1:4"),
        ("a: &x [*x]\n", "syntax . 1:8"),
        ("a: &x { b: 1 }\nc: { <<: *x }\n", "unsupported_yaml . 2:6"),
        ("? [a]\n: b\n", "unsupported_yaml . 1:3"),
        ("name: {{ NAME }}\n", "unsupported_yaml . 1:8"),
        ("a: \u{0}\nb: 1\n", "syntax . 1:4"),
    ] {
        assert_eq!(told(check_job(text, Some(Format::Yaml))), [fault], "{text:?}");
    }
    assert_eq!(check(&small_with("name: again\n")), ["duplicate_key name 9:1"]);
    let escaped = small_with("env: { A: \"x\\0y\" }\n");
    assert_eq!(check(&escaped), ["wrong_form env.A 9:11"]);
}

#[test]
fn bounds_hold() {
    let large = " ".repeat(MAX_BYTES + 1);
    assert_eq!(check(&large), ["too_large . -:-"]);
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert!(check(&laughs)[0].starts_with("too_complex . "), "{:?}", check(&laughs));
    let text = "x".repeat(1000);
    let wide = format!("a: &a {text}\nb: [{}]\n", vec!["*a"; 10_000].join(", "));
    assert!(check(&wide)[0].starts_with("too_complex . "));
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for format in [Format::Json, Format::Yaml] {
            let faults = told(check_job(&deep, Some(format)));
            assert!(
                faults[0].starts_with("too_complex") || faults[0].starts_with("syntax"),
                "{faults:?}"
            );
        }
    }
    let many = small_with(&(0..500).map(|n| format!("x{n}: 1\n")).collect::<String>());
    let faults = check(&many);
    assert_eq!(faults.len(), MAX_FAULTS + 1);
    assert_eq!(faults.last().map(String::as_str), Some("more . -:-"));
}

#[test]
fn an_alias_is_the_value_that_it_names() {
    let text = small_with("env: &e { A: b }\n").replace("    command", "    env: *f\n    command");
    let text = text.replace("framework: pytorch", "framework: pytorch\nlabels: &f { A: b }");
    let document = check_job(&text, None).unwrap();
    assert_eq!(document.roles[0].env["A"], job::EnvValue::Value("b".into()));
}

#[test]
fn a_program_without_a_name_a_number_without_end_and_a_text_too_long_are_told_once_with_the_true_reason() {
    let job = |rest: &str| {
        format!("apiVersion: trainyard.dev/v1\nkind: Job\nname: a\nroles:\n  - name: main\n    command: [x]\n{rest}")
    };
    let nameless = job("").replace("[x]", "[\"\", x]");
    assert_eq!(check(&nameless), ["wrong_form roles[0].command[0] 6:15"]);
    assert!(words(&nameless).contains("begin the command with a program"));
    let endless = job("    replicas: 99999999999999999999\n");
    assert_eq!(check(&endless), ["out_of_range roles[0].replicas 7:15"]);
    assert!(
        words(&endless)
            .contains("'99999999999999999999' is beyond the greatest whole number there is, 18446744073709551615"),
        "{}",
        words(&endless)
    );
    for length in [131_070, 131_072, 131_073] {
        let long = job(&format!("env: {{ A: {} }}\n", "x".repeat(length)));
        assert_eq!(check(&long), ["out_of_range env.A 7:11"], "{length}");
    }
}
