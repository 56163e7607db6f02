//! The forms of names, paths and maps in a job document, as pieces of its JSON Schema. A title is what a message says
//! was expected.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::job::SecretRef;

/// Lower-case words with dashes: jobs, teams, clusters, secrets.
pub fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a name of lower-case letters, digits and dashes, at most 63 characters",
        "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
    })
}

pub fn role_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a name of lower-case letters, digits and dashes, at most 32 characters",
        "pattern": "^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
    })
}

/// A name that is kept elsewhere and has the form of an object's name there.
pub fn foreign_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a name of lower-case letters, digits, dashes and dots, at most 253 characters",
        "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
    })
}

pub fn image(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "an image such as pytorch/pytorch:2.9.0 or registry.example.com/team/train@sha256:...",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$"
    })
}

/// Linux takes so many bytes as one argument or one NAME=VALUE, the zero byte behind it counted: MAX_ARG_STRLEN, 32 pages.
pub const LONGEST_HANDED: usize = 131_072;

/// What a process is handed. Numbers and booleans are taken as they are written.
fn handed_text() -> Schema {
    json_schema!({ "type": ["string", "number", "boolean"], "maxLength": LONGEST_HANDED })
}

pub fn command(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": handed_text(), "minItems": 1, "maxItems": 1024 })
}

pub fn arguments(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": handed_text(), "maxItems": 4096 })
}

pub fn environment(generator: &mut SchemaGenerator) -> Schema {
    let secret = generator.subschema_for::<SecretRef>();
    json_schema!({
        "type": "object",
        "maxProperties": 1024,
        "propertyNames": {
            "title": "a name of letters, digits and underscores that begins with no digit",
            "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
            "maxLength": 255
        },
        "additionalProperties": {
            "anyOf": [
                handed_text(),
                {
                    "type": "object",
                    "properties": { "secretRef": secret },
                    "required": ["secretRef"],
                    "additionalProperties": false
                }
            ]
        }
    })
}

pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "propertyNames": {
            "title": "a label's name, such as project or example.com/project",
            "pattern": "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
        },
        "additionalProperties": {
            "type": ["string", "number", "boolean"],
            "title": "a label's value: letters, digits, dots, dashes and underscores, at most 63 characters",
            "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
        }
    })
}

pub fn other_resources(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "propertyNames": {
            "title": "a resource's name, such as vpc.amazonaws.com/efa",
            "pattern": "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
        },
        "additionalProperties": { "type": "integer", "minimum": 0, "maximum": 1_000_000 }
    })
}

pub fn inline_files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 256,
        "additionalProperties": { "type": "string", "x-verbatim": true }
    })
}

pub fn archive_digest(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a digest: sha256: and 64 hexadecimal digits",
        "pattern": "^sha256:[0-9a-f]{64}$"
    })
}

/// No transport that runs a program, and nothing that git would take for an option.
pub fn git_url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "the address of a repository, such as https://example.com/team/train.git",
        "pattern": "^((https?|ssh|git|file)://|[A-Za-z0-9._]+@[A-Za-z0-9.-]+:)[^\\s$]{1,1024}$"
    })
}

/// Names move, commits don't, and a rerun must run the same code.
pub fn git_commit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a commit's full hash of 40 hexadecimal digits (no branch or tag: a rerun must find the same code)",
        "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$"
    })
}

pub fn exit_codes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "integer", "minimum": 1, "maximum": 255 },
        "uniqueItems": true,
        "maxItems": 255
    })
}

pub fn absolute_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "an absolute path",
        "pattern": "^/[^\\x00-\\x1f\\x7f$]*$",
        "maxLength": 1024
    })
}

pub fn any_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a path",
        "pattern": "^[^\\x00-\\x1f\\x7f$]+$",
        "maxLength": 1024
    })
}

/// A limit in time of nothing would end every job at once.
pub fn deadline(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "title": "a duration such as 90s, 15m, 1h30m or 2d",
        "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$",
        "format": "duration-text"
    })
}

pub fn metric_pattern(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "regex", "x-verbatim": true })
}
