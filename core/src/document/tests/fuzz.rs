//! Documents bent out of shape, tens of thousands of times, from fixed seeds: the checker never panics, never runs
//! away, tells positions inside the text, and agrees with another implementation of JSON Schema.

use std::path::Path;

use super::*;

/// What the fuzz begins with: documents of ours, and real ones of other kinds where they are at hand.
fn seeds() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seeds = vec![
        SMALL.to_owned(),
        small_with("labels: { a: &x 'b', c: *x }\nenv: { A: 1, B: |\n    x\n  }\n"),
    ];
    for folder in ["examples", "../shared/manifests/jobs", "../shared/manifests/eks"] {
        gather(&root.join(folder), &mut seeds);
    }
    assert!(seeds.len() > 10);
    let json: Vec<String> = seeds
        .iter()
        .filter_map(|text| Some(to_json(&check_job(text, None).ok()?)))
        .collect();
    seeds.extend(json);
    seeds.sort();
    seeds
}

fn gather(folder: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            gather(&entry.path(), texts);
        } else if entry
            .path()
            .extension()
            .is_some_and(|end| end == "yaml" || end == "json")
        {
            texts.extend(std::fs::read_to_string(entry.path()));
        }
    }
}

/// Pieces that mean something to YAML, to JSON or to the checker.
const PIECES: &[&str] = &[
    "\n",
    "  ",
    "\t",
    "- ",
    ": ",
    "? ",
    "#",
    "|",
    ">",
    "|2-\n",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "<<: ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\x41",
    "null",
    "~",
    "true",
    "1e999",
    "-0",
    "0x",
    "🚂",
    "é",
    "\u{feff}",
    "\u{2028}",
    "\r",
    "\r\n",
    "\0",
    "\u{7f}",
    "PLACEHOLDER_A",
    "${B}",
    "$C",
    "roles",
    "name",
    "env",
    "TRAINYARD_X",
    "code: { inline: { ../x: y } }",
    "apiVersion: trainyard.dev/v1\n",
    "replicas: 99999999999",
    "cpu: ",
    "&a [*a]",
    "{a: &b [*b, *b]}",
];

fn bend(dice: &mut Dice, seeds: &[String]) -> String {
    let mut text: Vec<char> = dice.one(seeds).chars().collect();
    for _ in 0..1 + dice.below(6) {
        let at = dice.below(text.len() + 1);
        let to = (at + dice.below(40)).min(text.len());
        match dice.below(6) {
            0 => drop(text.drain(at..to)),
            1 | 2 => drop(text.splice(at..at, dice.one(PIECES).chars())),
            3 => drop(text.splice(at..to, dice.one(PIECES).chars())),
            4 => {
                let copied: Vec<char> = text[at..to].to_vec();
                let target = dice.below(text.len() + 1);
                drop(text.splice(target..target, copied));
            }
            _ => text.truncate(to),
        }
    }
    text.into_iter().collect()
}

fn assert_inside(text: &str, fault: &Fault) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (Some(line), Some(column)) = (fault.line, fault.column) else {
        assert!(
            matches!(fault.code, FaultCode::More | FaultCode::TooLarge),
            "without a place: {fault:?}"
        );
        return;
    };
    let found = text.split('\n').nth(line.max(1) as usize - 1);
    let length = found
        .unwrap_or_else(|| panic!("{fault:?} lies behind the text {text:?}"))
        .chars()
        .count();
    assert!(
        line >= 1 && column >= 1 && column as usize <= length + 1,
        "{fault:?} lies beside the text {text:?}"
    );
}

#[test]
fn bent_documents_are_judged_without_stumbling() {
    let seeds = seeds();
    let mut dice = Dice(3);
    let (mut clean, mut faulty) = (0, 0);
    for round in 0..20_000 {
        let text = bend(&mut dice, &seeds);
        let format = *dice.one(&[None, Some(Format::Yaml), Some(Format::Json)]);
        match check_job(&text, format) {
            Ok(document) => {
                clean += 1;
                let yaml = to_yaml(&document);
                assert_eq!(
                    check_job(&yaml, Some(Format::Yaml)),
                    Ok(document),
                    "round {round}: {text}\n---\n{yaml}"
                );
            }
            Err(faults) => {
                faulty += 1;
                assert!(!faults.is_empty() && faults.len() <= MAX_FAULTS + 1, "round {round}");
                for fault in &faults {
                    assert_inside(&text, fault);
                    assert!(
                        !fault.message.is_empty() && fault.message.len() < 1000,
                        "round {round}: {fault:?}"
                    );
                    assert!(
                        !fault.message.contains("can't be read"),
                        "the checker let through: {fault:?}\n{text}"
                    );
                }
            }
        }
    }
    println!("{clean} clean, {faulty} faulty");
    assert!(clean > 500 && faulty > 5_000, "{clean} clean, {faulty} faulty");
}

/// Changes one place of a document's value: another type, a missing field, a word too many.
fn bend_value(dice: &mut Dice, value: &mut Value) {
    let strangers = [
        Value::Bool(true),
        Value::from(-1),
        Value::from(0.5),
        Value::from(70_000),
        Value::from(""),
        Value::from("Ä b"),
        Value::from("10s"),
        Value::from("2Gi"),
        Value::from("USR1"),
        Value::Array(Vec::new()),
        Value::Array(vec![Value::from(3), Value::from(3)]),
        Value::Object(Default::default()),
        serde_json::json!({ "job": {} }),
        serde_json::json!({ "secretRef": { "name": "a", "key": "b" } }),
    ];
    match value {
        Value::Object(fields) if !fields.is_empty() && !dice.chance(12) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = dice.one(&keys);
            match dice.below(10) {
                0 => drop(fields.remove(key)),
                1 => drop(fields.insert(format!("{key}x"), dice.one(&strangers).clone())),
                _ => bend_value(dice, fields.get_mut(key).unwrap()),
            }
        }
        Value::Array(items) if !items.is_empty() && !dice.chance(6) => {
            let index = dice.below(items.len());
            bend_value(dice, &mut items[index]);
        }
        _ => *value = dice.one(&strangers).clone(),
    }
}

#[test]
fn another_judge_of_json_schema_agrees() {
    let schema = job_schema();
    let judge = jsonschema::validator_for(&schema).unwrap();
    let clean: Vec<Value> = seeds()
        .iter()
        .filter_map(|text| serde_json::to_value(check_job(text, None).ok()?).ok())
        .chain([serde_json::json!({
            "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "all", "labels": { "a": "b" }, "priority": 3,
            "roles": [{
                "name": "w", "replicas": 2, "command": ["a"], "args": ["b"], "image": "i:1", "workingDir": "x",
                "resources": { "cpu": 2, "memory": "1Gi", "gpus": 1, "other": { "v.example/e": 4 } },
                "volumes": [{ "name": "d", "mountPath": "/d", "source": { "hostPath": { "path": "/x" } }, "readOnly": true }]
            }],
            "code": { "git": { "url": "https://example.com/r", "commit": "0123456789012345678901234567890123456789" } },
            "env": { "T": { "secretRef": { "name": "s", "key": "k" } } },
            "restart": { "owner": "trainyard", "max": 2, "backoff": "1s", "neverRetryExitCodes": [1, 2] },
            "deadlines": { "queue": "1h", "run": "1d" }, "checkpoints": { "signal": "USR1", "wait": "1m" },
            "metrics": { "pattern": "(?P<step>1)", "totalSteps": 4 }, "stop": { "grace": "5s" }, "retention": "long"
        })])
        .collect();
    let mut dice = Dice(11);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..10_000 {
        let mut value = dice.one(&clean).clone();
        for _ in 0..dice.below(3) {
            bend_value(&mut dice, &mut value);
        }
        let root = Node::from_value(&value).unwrap();
        let mut faults = Faults::default();
        check(JOB_RULES.as_ref().unwrap(), &root, &mut faults);
        let ours = faults.finish(&root);
        let theirs = judge.iter_errors(&value).next();
        // Forms are beyond a schema: units out of range, patterns without a step.
        let only_forms = ours.iter().all(|fault| fault.code == FaultCode::WrongForm);
        match theirs {
            None => {
                accepted += 1;
                assert!(only_forms, "round {round}: only we refuse {value}: {ours:#?}");
            }
            Some(error) => {
                refused += 1;
                assert!(!ours.is_empty(), "round {round}: only they refuse {value}: {error}");
            }
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(
        accepted > 1_000 && refused > 1_000,
        "{accepted} accepted, {refused} refused"
    );
}

/// What takes a parser's time without being large: each of these must cost no more than its bytes.
#[test]
fn hostile_texts_are_refused_in_bounded_work() {
    let cases = [
        "[".repeat(MAX_BYTES),
        "{".repeat(MAX_BYTES),
        "- ".repeat(MAX_BYTES / 2),
        "? ".repeat(MAX_BYTES / 2),
        "a: ".repeat(MAX_BYTES / 3),
        "&a ".repeat(MAX_BYTES / 3),
        "!!x ".repeat(MAX_BYTES / 4),
        "\"\\u0041".repeat(MAX_BYTES / 7),
        format!("a: |\n{}", "  x\n".repeat(MAX_BYTES / 4 - 2)),
        format!("a: {}", "x ".repeat(MAX_BYTES / 2 - 2)),
        "a\n".repeat(MAX_BYTES / 2),
        "#\n".repeat(MAX_BYTES / 2),
        format!("[{}1]", "1,".repeat(MAX_BYTES / 2 - 2)),
        format!("{{{}\"z\":1}}", "\"a\":1,".repeat(MAX_BYTES / 6 - 2)),
        (0..MAX_BYTES / 12).map(|n| format!("k{n:07}: 1\n")).collect::<String>(),
    ];
    for text in &cases {
        for format in [Format::Yaml, Format::Json] {
            let begun = std::time::Instant::now();
            let faults = check_job(text, Some(format)).unwrap_err();
            println!("{:?} {format:?} {:?} {}", &text[..8], begun.elapsed(), faults[0]);
            faults.iter().for_each(|fault| assert_inside(text, fault));
        }
    }
}
