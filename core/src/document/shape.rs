//! How a value's shape meets a rule: which branch it asks for, which rule a field has, and the plain value that a clean
//! tree becomes. Shared by the walk that finds faults and by the one that makes values, so both see one document.

use serde_json::{Map, Value};

use super::{
    rules::{Rest, Rule, RuleId, Rules, Type},
    tree::{Content, Entry, Node},
};

/// The tree as a plain value in the shape that the schema describes. Only for a tree without faults.
pub(super) fn to_value(rules: &Rules, node: &Node) -> Value {
    value_of(rules, Some(0), node)
}

fn value_of(rules: &Rules, id: Option<RuleId>, node: &Node) -> Value {
    let rule = id.map(|id| rules.settled(id));
    let branch = rule.and_then(|rule| match pick(rules, rule, node) {
        Pick::One(branch) => Some(rules.settled(branch)),
        _ => None,
    });
    let rule = branch.or(rule);
    let as_written = rule.is_some_and(|rule| rule.types.contains(&Type::Text));
    match &node.content {
        Content::Null => Value::Null,
        Content::Text(text) => Value::String(text.clone()),
        Content::Bool { written, .. } | Content::Number { written, .. } if as_written => Value::String(written.clone()),
        Content::Bool { value, .. } => Value::Bool(*value),
        Content::Number { value, .. } => Value::Number(value.clone()),
        Content::List(items) => {
            let inner = rule.and_then(|rule| rule.items);
            items.iter().map(|item| value_of(rules, inner, item)).collect()
        }
        Content::Map(entries) => {
            let mut map = Map::new();
            for entry in entries {
                let field = rule.and_then(|rule| field_rule(rule, &entry.key));
                if !rule.is_some_and(|rule| left_out(rule, entry)) {
                    map.insert(entry.key.clone(), value_of(rules, field, &entry.value));
                }
            }
            Value::Object(map)
        }
    }
}

/// A named field that is optional and has nothing in it.
pub(super) fn left_out(rule: &Rule, entry: &Entry) -> bool {
    matches!(entry.value.content, Content::Null)
        && rule.fields.iter().any(|(name, _)| *name == entry.key)
        && !rule.required.contains(&entry.key)
}

pub(super) fn field_rule(rule: &Rule, key: &str) -> Option<RuleId> {
    let named = rule.fields.iter().find(|(name, _)| name == key).map(|(_, id)| *id);
    named.or(match rule.rest {
        Rest::Each(id) => Some(id),
        Rest::Any | Rest::Refused => None,
    })
}

pub(super) enum Pick {
    /// The rule has no branches.
    None,
    One(RuleId),
    /// No branch takes a value of this type.
    WrongType,
    /// A mapping that names none of the keys that tell the branches apart, or several.
    Keys {
        known: Vec<String>,
        named: Vec<String>,
    },
}

/// Which branch a value's shape asks for.
pub(super) fn pick(rules: &Rules, rule: &Rule, node: &Node) -> Pick {
    if rule.branches.is_empty() {
        return Pick::None;
    }
    let fitting: Vec<RuleId> = rule
        .branches
        .iter()
        .copied()
        .filter(|&branch| accepts(rules, rules.settled(branch), node))
        .collect();
    match (fitting.as_slice(), &node.content) {
        ([], _) => Pick::WrongType,
        ([one], _) => Pick::One(*one),
        ([first, ..], Content::Map(_)) => {
            let key = |branch: &RuleId| rules.settled(*branch).required.first().cloned();
            let known: Vec<String> = fitting.iter().filter_map(key).collect();
            let named: Vec<String> = known.iter().filter(|key| node.get(key).is_some()).cloned().collect();
            match named.as_slice() {
                _ if known.len() < fitting.len() => Pick::One(*first),
                [name] => {
                    let branch = fitting
                        .iter()
                        .copied()
                        .find(|branch| key(branch).as_ref() == Some(name));
                    branch.map_or(Pick::None, Pick::One)
                }
                _ => Pick::Keys { known, named },
            }
        }
        ([first, ..], _) => Pick::One(*first),
    }
}

pub(super) fn accepts(rules: &Rules, rule: &Rule, node: &Node) -> bool {
    if !rule.branches.is_empty() {
        return rule
            .branches
            .iter()
            .any(|&branch| accepts(rules, rules.settled(branch), node));
    }
    let has = |wanted: Type| rule.types.contains(&wanted);
    rule.types.is_empty()
        || match &node.content {
            Content::Null => has(Type::Null),
            Content::Bool { .. } => has(Type::Boolean),
            Content::Number { value, .. } => has(Type::Number) || has(Type::Integer) && !value.is_f64(),
            Content::Text(_) => has(Type::Text),
            Content::List(_) => has(Type::List),
            Content::Map(_) => has(Type::Map),
        }
}
