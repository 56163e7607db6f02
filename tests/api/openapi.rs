//! The committed document, and what generators need of it.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use trainyard::web;
use trainyard_core::document::Rules;

fn document() -> Value {
    serde_json::from_str(&web::openapi().to_json().unwrap()).unwrap()
}

/// `UPDATE_OPENAPI=1` writes it anew.
#[test]
fn the_committed_document_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/trainyard.json");
    let text = web::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "openapi/trainyard.json is stale: run this test with UPDATE_OPENAPI=1 and commit it"
    );
}

#[test]
fn operations_have_names_tags_words_and_refusals() {
    let document = document();
    let mut names = BTreeSet::new();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(names.insert(id.to_owned()), "{id} is there twice");
            assert!(operation["tags"][0].is_string(), "{id} has no tag");
            assert!(
                operation["summary"].is_string() || operation["description"].is_string(),
                "{id} has no words"
            );
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{id} never succeeds"
            );
            if operation["security"]
                .as_array()
                .is_some_and(|security| !security.is_empty())
            {
                assert!(responses.contains_key("401") && responses.contains_key("503"), "{id}");
            }
            count += 1;
        }
    }
    println!("{count} operations");
    assert!(count >= 60, "{count}");
}

/// The checker refuses a schema that it does not know whole, and faults would be told in serde's words.
#[test]
fn the_checker_knows_the_schema_of_every_json_body() {
    let document = document();
    let mut bodies = BTreeSet::new();
    let operations =
        (document["paths"].as_object().unwrap().values()).flat_map(|item| item.as_object().unwrap().values());
    for operation in operations {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Some(reference) = schema["$ref"]
            .as_str()
            .filter(|schema| !schema.ends_with("/JobDocument"))
        {
            let schema = json!({ "$ref": reference, "components": document["components"] });
            Rules::compile(&schema).unwrap();
            bodies.insert(reference.to_owned());
        }
    }
    assert!(bodies.len() >= 11, "{bodies:?}");
}

#[test]
fn every_schema_that_is_referred_to_is_there() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is missing");
    }
}
