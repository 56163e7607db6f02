//! A JSON Schema, read once into the rules that the checker walks.
//!
//! Only the keywords that our schemas use are known. A schema with another one is refused, rather than half checked.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use regex::Regex;
use serde_json::{Map, Value};

use super::fault::shortened;
use super::units::{CpuQuantity, Duration, MemoryQuantity, UnitError};

pub type RuleId = usize;

/// A schema as rules. The first rule is the document's.
#[derive(Debug)]
pub struct Rules {
    pub(super) all: Vec<Rule>,
    /// Where each field name may stand, for hints: `image` in `roles[]`.
    pub(super) homes: HashMap<String, Vec<String>>,
}

#[derive(Debug, Default)]
pub(super) struct Rule {
    /// Empty: any type.
    pub types: Vec<Type>,
    /// The closed set of words, if it is one.
    pub words: Vec<String>,
    pub pattern: Option<Regex>,
    pub form: Option<Form>,
    pub least: Option<f64>,
    pub most: Option<f64>,
    /// Characters of text, items of a list, entries of a mapping.
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub unique: bool,
    pub items: Option<RuleId>,
    pub fields: Vec<(String, RuleId)>,
    pub required: Vec<String>,
    pub rest: Rest,
    /// What keys must look like.
    pub keys: Option<RuleId>,
    /// Exactly one of these applies; the value's shape says which.
    pub branches: Vec<RuleId>,
    /// Applies besides: what a `$ref` names.
    pub base: Option<RuleId>,
    /// What it is, in words for messages.
    pub title: Option<String>,
    /// Holds what nobody may read back: no fault shows it.
    pub hidden: bool,
    /// Holds a text of another language, in which a placeholder is none of our business.
    pub verbatim: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    List,
    Map,
}

/// Fields that a mapping does not name.
#[derive(Debug, Default)]
pub(super) enum Rest {
    #[default]
    Any,
    Refused,
    Each(RuleId),
}

/// Forms that a pattern can't describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Duration,
    Cpu,
    Memory,
    Regex,
    Time,
}

impl Form {
    pub fn check(self, text: &str) -> Result<(), String> {
        let words = |error: UnitError| error.to_string();
        match self {
            Form::Duration => text.parse::<Duration>().map(drop).map_err(words),
            Form::Cpu => text.parse::<CpuQuantity>().map(drop).map_err(words),
            Form::Memory => text.parse::<MemoryQuantity>().map(drop).map_err(words),
            Form::Regex => crate::catch::compile(text).map(drop).map_err(|error| error.to_string()),
            Form::Time => match text.parse::<DateTime<Utc>>() {
                Ok(_) => Ok(()),
                Err(_) => Err(format!("'{}' is no time such as 2026-12-01T12:00:00Z", shortened(text))),
            },
        }
    }
}

/// Why a schema can't be used to check documents. A fault of whoever wrote the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schema, {path}: {reason}")]
pub struct SchemaError {
    pub path: String,
    pub reason: String,
}

impl Rules {
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let mut compiler = Compiler {
            root: schema,
            rules: Vec::new(),
            references: HashMap::new(),
        };
        compiler.rule(schema, "#")?;
        let mut rules = Rules {
            all: compiler.rules,
            homes: HashMap::new(),
        };
        let mut homes = HashMap::new();
        rules.gather_homes(0, "", 0, &mut homes);
        rules.homes = homes;
        Ok(rules)
    }

    /// The rule that a bare `$ref` stands for.
    pub(super) fn settled(&self, id: RuleId) -> &Rule {
        let mut rule = &self.all[id];
        // A schema may be recursive, but never by references alone: those are refused when compiled.
        while let Some(base) = rule.base
            && rule.types.is_empty()
            && rule.branches.is_empty()
        {
            rule = &self.all[base];
        }
        rule
    }

    fn gather_homes(&self, id: RuleId, path: &str, depth: usize, homes: &mut HashMap<String, Vec<String>>) {
        if depth > 6 {
            return;
        }
        let rule = self.settled(id);
        for (name, field) in &rule.fields {
            let home = homes.entry(name.clone()).or_default();
            if !home.iter().any(|known| known == path) {
                home.push(path.to_owned());
            }
            let inner = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            self.gather_homes(*field, &inner, depth + 1, homes);
        }
        if let Some(items) = rule.items {
            self.gather_homes(items, &format!("{path}[]"), depth + 1, homes);
        }
        for &branch in &rule.branches {
            self.gather_homes(branch, path, depth + 1, homes);
        }
    }
}

struct Compiler<'s> {
    root: &'s Value,
    rules: Vec<Rule>,
    references: HashMap<String, RuleId>,
}

impl<'s> Compiler<'s> {
    fn rule(&mut self, schema: &'s Value, path: &str) -> Result<RuleId, SchemaError> {
        let id = self.rules.len();
        self.rules.push(Rule::default());
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(true) => return Ok(id),
            _ => return Err(error(path, "neither a mapping nor `true`")),
        };
        let mut rule = Rule::default();
        for (keyword, value) in keywords {
            let here = format!("{path}/{keyword}");
            self.keyword(&mut rule, keyword, value, keywords, &here)?;
        }
        self.fold_words(&mut rule);
        if let Some(base) = rule.base
            && rule.types.is_empty()
            && self.leads_to(base, id)
        {
            return Err(error(path, "a reference that leads to itself"));
        }
        self.rules[id] = rule;
        Ok(id)
    }

    fn keyword(
        &mut self,
        rule: &mut Rule,
        keyword: &str,
        value: &'s Value,
        siblings: &'s Map<String, Value>,
        path: &str,
    ) -> Result<(), SchemaError> {
        match keyword {
            "$schema" | "$id" | "$defs" | "$comment" | "description" | "default" | "examples" | "deprecated" => {}
            // What OpenAPI says besides.
            "components" | "example" => {}
            "writeOnly" => rule.hidden = value == &Value::Bool(true),
            "title" => rule.title = value.as_str().map(str::to_owned),
            "x-verbatim" => rule.verbatim = value == &Value::Bool(true),
            "$ref" => rule.base = Some(self.reference(value.as_str().unwrap_or_default(), path)?),
            "type" => rule.types = types(value, path)?,
            "const" => rule.words.push(word(value, path)?),
            "enum" => {
                for value in value.as_array().into_iter().flatten() {
                    match value {
                        // An optional word.
                        Value::Null => {}
                        _ => rule.words.push(word(value, path)?),
                    }
                }
            }
            "pattern" => {
                let pattern = value.as_str().unwrap_or_default();
                rule.pattern = Some(Regex::new(pattern).map_err(|cause| error(path, &cause.to_string()))?);
            }
            "format" => self.format(rule, value.as_str().unwrap_or_default(), path)?,
            "minimum" => rule.least = Some(number(value, path)?.max(rule.least.unwrap_or(f64::MIN))),
            "maximum" => rule.most = Some(number(value, path)?.min(rule.most.unwrap_or(f64::MAX))),
            "minLength" | "minItems" | "minProperties" => rule.min_length = Some(number(value, path)? as usize),
            "maxLength" | "maxItems" | "maxProperties" => rule.max_length = Some(number(value, path)? as usize),
            "uniqueItems" => rule.unique = value == &Value::Bool(true),
            "items" => rule.items = Some(self.rule(value, path)?),
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    let id = self.rule(schema, &format!("{path}/{name}"))?;
                    rule.fields.push((name.clone(), id));
                }
            }
            "required" => {
                let names = value.as_array().into_iter().flatten();
                rule.required = names.filter_map(Value::as_str).map(str::to_owned).collect();
            }
            "additionalProperties" => {
                rule.rest = match value {
                    Value::Bool(false) => Rest::Refused,
                    Value::Bool(true) => Rest::Any,
                    schema => {
                        let each = self.rule(schema, path)?;
                        // What stands in place of such values may be one of them.
                        rule.hidden |= self.rules[each].hidden;
                        Rest::Each(each)
                    }
                }
            }
            "propertyNames" => rule.keys = Some(self.rule(value, path)?),
            "oneOf" | "anyOf" if siblings.contains_key("oneOf") && siblings.contains_key("anyOf") => {
                return Err(error(path, "oneOf and anyOf side by side"));
            }
            "oneOf" | "anyOf" => {
                for (index, branch) in value.as_array().into_iter().flatten().enumerate() {
                    let id = self.rule(branch, &format!("{path}/{index}"))?;
                    rule.branches.push(id);
                }
            }
            _ => return Err(error(path, "a keyword that the checker does not know")),
        }
        Ok(())
    }

    fn format(&mut self, rule: &mut Rule, format: &str, path: &str) -> Result<(), SchemaError> {
        let mut range = |least: f64, most: f64| {
            rule.least = Some(rule.least.map_or(least, |known| known.max(least)));
            rule.most = Some(rule.most.map_or(most, |known| known.min(most)));
        };
        match format {
            "duration-text" => rule.form = Some(Form::Duration),
            "cpu-quantity" => rule.form = Some(Form::Cpu),
            "memory-quantity" => rule.form = Some(Form::Memory),
            "regex" => rule.form = Some(Form::Regex),
            "date-time" => rule.form = Some(Form::Time),
            "uint32" => range(0.0, f64::from(u32::MAX)),
            "int32" => range(f64::from(i32::MIN), f64::from(i32::MAX)),
            // Whole numbers beyond these are floats by then, and no integers.
            "uint64" => range(0.0, u64::MAX as f64),
            "int64" => range(i64::MIN as f64, i64::MAX as f64),
            "float" | "double" => {}
            _ => return Err(error(path, "a format that the checker does not know")),
        }
        Ok(())
    }

    fn reference(&mut self, reference: &str, path: &str) -> Result<RuleId, SchemaError> {
        if let Some(&known) = self.references.get(reference) {
            return Ok(known);
        }
        let root: &'s Value = self.root;
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let target = target.ok_or_else(|| error(path, "a reference to nothing"))?;
        // Known before it is read, so that a recursive schema ends.
        self.references.insert(reference.to_owned(), self.rules.len());
        self.rule(target, reference)
    }

    /// A set of words whose members have descriptions of their own comes as one branch for each.
    fn fold_words(&self, rule: &mut Rule) {
        let is_words = |&id: &RuleId| {
            let branch = &self.rules[id];
            !branch.words.is_empty() && branch.fields.is_empty() && branch.branches.is_empty()
        };
        if !rule.branches.is_empty() && rule.branches.iter().all(is_words) {
            let words = rule
                .branches
                .iter()
                .flat_map(|&id| self.rules[id].words.iter().cloned());
            rule.words = words.collect();
            rule.branches.clear();
            rule.types = vec![Type::Text];
        }
    }

    fn leads_to(&self, mut from: RuleId, to: RuleId) -> bool {
        for _ in 0..=self.rules.len() {
            if from == to {
                return true;
            }
            match self.rules[from].base {
                Some(next) => from = next,
                None => return false,
            }
        }
        true
    }
}

fn types(value: &Value, path: &str) -> Result<Vec<Type>, SchemaError> {
    let one = |value: &Value| match value.as_str() {
        Some("null") => Ok(Type::Null),
        Some("boolean") => Ok(Type::Boolean),
        Some("integer") => Ok(Type::Integer),
        Some("number") => Ok(Type::Number),
        Some("string") => Ok(Type::Text),
        Some("array") => Ok(Type::List),
        Some("object") => Ok(Type::Map),
        _ => Err(error(path, "no type of JSON Schema")),
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

fn word(value: &Value, path: &str) -> Result<String, SchemaError> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| error(path, "a closed set of anything but words"))
}

fn number(value: &Value, path: &str) -> Result<f64, SchemaError> {
    value.as_f64().ok_or_else(|| error(path, "not a number"))
}

fn error(path: &str, reason: &str) -> SchemaError {
    SchemaError {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}
