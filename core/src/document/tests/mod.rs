use super::*;

mod faults;
mod fill;
mod fuzz;
mod round_trip;

const SMALL: &str = "\
apiVersion: trainyard.dev/v1
kind: Job
name: train
framework: pytorch
roles:
  - name: worker
    replicas: 2
    command: [python3, train.py]
";

/// Every fault as `code path line:column`.
fn told(result: Result<job::JobDocument, Vec<Fault>>) -> Vec<String> {
    let place = |part: Option<u32>| part.map_or("-".to_owned(), |part| part.to_string());
    let tell = |fault: &Fault| {
        let code = serde_json::to_value(fault.code).unwrap();
        let path = if fault.path.is_empty() { "." } else { &fault.path };
        format!(
            "{} {path} {}:{}",
            code.as_str().unwrap(),
            place(fault.line),
            place(fault.column)
        )
    };
    result.map_or_else(|faults| faults.iter().map(tell).collect(), |_| Vec::new())
}

/// A clean document with more lines behind it.
fn small_with(lines: &str) -> String {
    format!("{SMALL}{lines}")
}

/// Deterministic numbers for generated documents (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn one<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

#[test]
fn the_schema_compiles_and_the_committed_one_is_fresh() {
    assert!(JOB_RULES.is_ok(), "{:?}", JOB_RULES.as_ref().err());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/job.schema.json");
    let fresh = format!("{}\n", serde_json::to_string_pretty(&job_schema()).unwrap());
    if std::env::var_os("TRAINYARD_WRITE_SCHEMAS").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == fresh,
        "openapi/job.schema.json is stale: TRAINYARD_WRITE_SCHEMAS=1 cargo test -p trainyard-core schema"
    );
}

#[test]
fn a_schema_that_the_checker_does_not_know_whole_is_refused() {
    for schema in [
        serde_json::json!({ "type": "object", "patternProperties": {} }),
        serde_json::json!({ "type": "string", "format": "hostname" }),
        serde_json::json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } }),
        serde_json::json!({ "$ref": "#/$defs/none" }),
    ] {
        assert!(Rules::compile(&schema).is_err(), "{schema}");
    }
    let recursive = serde_json::json!({ "type": "object", "additionalProperties": { "$ref": "#" } });
    assert!(Rules::compile(&recursive).is_ok());
}
