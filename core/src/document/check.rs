//! The schema-driven checker: one walk over a tree, every fault at once.
//!
//! It knows no kind of document. [`Rules`] come from a JSON Schema, and the same walk serves every schema of ours.
//! Two kindnesses beyond JSON Schema: an optional field with nothing in it counts as left out, and where a schema
//! takes text beside numbers or booleans, a scalar is taken as it was written.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use regex::Regex;

use super::{
    fault::{FaultCode, Faults, nearest, shortened},
    rules::{Rest, Rule, RuleId, Rules, Type},
    shape::{Pick, accepts, field_rule, left_out, pick},
    tree::{Content, Entry, Node},
};

/// Words that somebody meant to fill in. A `$NAME` counts only where the field's own form refuses it, so a shell's
/// `$PATH` in a command is left alone.
static PLACEHOLDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"PLACEHOLDER_[A-Z0-9_]+|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*|<[A-Z][A-Z0-9_]+>").ok()
});

/// Gathers every fault of the tree against the rules.
pub(super) fn check<'t>(rules: &'t Rules, root: &'t Node, faults: &mut Faults<'t>) {
    doubled_keys(root, faults);
    let hidden = false;
    Walk { rules, faults, hidden }.node(0, root);
}

struct Walk<'t, 'f> {
    rules: &'t Rules,
    faults: &'f mut Faults<'t>,
    /// Inside of what nobody may read back. Only types are judged there, and no value is told.
    hidden: bool,
}

impl<'t> Walk<'t, '_> {
    fn node(&mut self, id: RuleId, node: &'t Node) {
        let rule = self.rules.settled(id);
        let around = self.hidden;
        self.hidden |= rule.hidden;
        self.value(rule, node);
        self.hidden = around;
    }

    fn value(&mut self, rule: &'t Rule, node: &'t Node) {
        if let Some(base) = rule.base {
            self.node(base, node);
        }
        match pick(self.rules, rule, node) {
            Pick::None => {}
            Pick::One(branch) => return self.node(branch, node),
            Pick::WrongType => return self.wrong_type(rule, node),
            Pick::Keys { known, named } => return self.wrong_keys(node, &known, &named),
        }
        if !accepts(self.rules, rule, node) {
            return self.wrong_type(rule, node);
        }
        match &node.content {
            Content::Null => {}
            Content::Map(entries) => self.map(rule, node, entries),
            Content::List(items) => self.list(rule, node, items),
            _ if self.hidden => {}
            Content::Text(text) => self.scalar(rule, node, text, None),
            Content::Bool { written, .. } => self.scalar(rule, node, written, None),
            Content::Number { value, written } => self.scalar(rule, node, written, value.as_f64()),
        }
    }

    fn map(&mut self, rule: &'t Rule, node: &'t Node, entries: &'t [Entry]) {
        self.length(rule, node, entries.len(), "entries");
        for entry in entries {
            if let Some(keys) = rule.keys {
                self.entry_key(self.rules.settled(keys), entry);
            }
            match field_rule(rule, &entry.key) {
                _ if left_out(rule, entry) => {}
                Some(field) => self.node(field, &entry.value),
                None if matches!(rule.rest, Rest::Refused) => self.unknown_field(rule, entry),
                None => {}
            }
        }
        for field in &rule.required {
            if node.get(field).is_none() {
                self.faults.missing(
                    node,
                    field,
                    format!("'{field}' is missing"),
                    self.expected_of(rule, field),
                );
            }
        }
    }

    fn expected_of(&self, rule: &Rule, field: &str) -> Option<String> {
        let field_rule = self.rules.settled(field_rule(rule, field)?);
        let hint = match field_rule.words.as_slice() {
            [only] => format!("write {field}: {only}"),
            _ => format!("give it {}", self.expected(field_rule)),
        };
        Some(hint)
    }

    fn entry_key(&mut self, rule: &'t Rule, entry: &'t Entry) {
        let key = &entry.key;
        let formed = rule.pattern.as_ref().is_none_or(|pattern| pattern.is_match(key));
        let fits = rule.max_length.is_none_or(|most| key.chars().count() <= most);
        if formed && fits {
            return;
        }
        let expected = rule.title.as_deref().unwrap_or("a name of the right form");
        let message = format!("'{}' is not {expected}", shortened(key));
        let code = if has_placeholder(key) {
            FaultCode::Placeholder
        } else {
            FaultCode::WrongForm
        };
        self.faults.key(entry, code, message, None);
    }

    fn unknown_field(&mut self, rule: &'t Rule, entry: &'t Entry) {
        let known = || rule.fields.iter().map(|(name, _)| name.as_str());
        let hint = if let Some(meant) = nearest(&entry.key, known()) {
            format!("did you mean '{meant}'?")
        } else if let Some(homes) = self.rules.homes.get(&entry.key) {
            let home = |path: &String| {
                if path.is_empty() {
                    "the document itself".to_owned()
                } else {
                    path.clone()
                }
            };
            format!(
                "'{}' belongs to {}",
                entry.key,
                homes.iter().map(home).collect::<Vec<_>>().join(", ")
            )
        } else {
            format!("fields here are {}", known().collect::<Vec<_>>().join(", "))
        };
        let message = format!("there is no field '{}' here", shortened(&entry.key));
        self.faults.key(entry, FaultCode::UnknownField, message, Some(hint));
    }

    fn list(&mut self, rule: &'t Rule, node: &'t Node, items: &'t [Node]) {
        self.length(rule, node, items.len(), "items");
        if let Some(inner) = rule.items {
            for item in items {
                self.node(inner, item);
            }
        }
        if rule.unique {
            let mut seen = HashSet::new();
            for item in items {
                if let Some(written) = item.written()
                    && !seen.insert(written)
                {
                    let message = format!("'{}' stands in the list twice", shortened(written));
                    self.faults
                        .value(item, FaultCode::DuplicateName, message, Some("leave one out".into()));
                }
            }
        }
    }

    fn scalar(&mut self, rule: &'t Rule, node: &'t Node, text: &str, number: Option<f64>) {
        if text.contains('\0') {
            let message = "a NUL character can't be handed to a process".to_owned();
            return self.faults.value(node, FaultCode::WrongForm, message, None);
        }
        if !rule.words.is_empty() && !rule.words.iter().any(|word| word == text) {
            return self.unknown_word(rule, node, text);
        }
        if let Some(form) = rule.form
            && let Err(message) = form.check(text)
        {
            return self.wrong_form(node, text, message, None);
        }
        if rule.form.is_none()
            && let Some(pattern) = &rule.pattern
            && !pattern.is_match(text)
        {
            let expected = rule.title.as_deref().unwrap_or("of the form that this field needs");
            let hint = rule.title.is_none().then(|| format!("it must match {pattern}"));
            return self.wrong_form(node, text, format!("'{}' is not {expected}", shortened(text)), hint);
        }
        if let Content::Text(_) = node.content {
            self.length(rule, node, text.chars().count(), "characters");
        } else if let Some(number) = number {
            self.range(rule, node, number);
        }
        if !rule.verbatim && text.contains("PLACEHOLDER_") {
            self.placeholder(node, text);
        }
    }

    fn range(&mut self, rule: &'t Rule, node: &'t Node, number: f64) {
        let written = shortened(node.written().unwrap_or_default());
        let message = match (rule.least, rule.most) {
            (Some(least), _) if number < least => format!("{written} is too small; the least is {least}"),
            (_, Some(most)) if number > most => format!("{written} is too large; the most is {most}"),
            _ => return,
        };
        self.faults.value(node, FaultCode::OutOfRange, message, None);
    }

    fn length(&mut self, rule: &'t Rule, node: &'t Node, length: usize, what: &str) {
        let message = match (rule.min_length, rule.max_length) {
            (Some(1), _) if length == 0 => format!("it has no {what}; at least one is needed"),
            (Some(least), _) if length < least => format!("it has {length} {what}; at least {least} are needed"),
            (_, Some(most)) if length > most => format!("it has {length} {what}; at most {most} are allowed"),
            _ => return,
        };
        self.faults.value(node, FaultCode::OutOfRange, message, None);
    }

    fn wrong_form(&mut self, node: &'t Node, text: &str, message: String, hint: Option<String>) {
        if has_placeholder(text) {
            return self.placeholder(node, text);
        }
        self.faults.value(node, FaultCode::WrongForm, message, hint);
    }

    fn placeholder(&mut self, node: &'t Node, text: &str) {
        // A command may hold a shell's variables too, and those are not what is missing.
        let found = PLACEHOLDER
            .iter()
            .flat_map(|pattern| pattern.find_iter(text))
            .map(|found| found.as_str());
        let name = shortened(
            found
                .min_by_key(|name| !name.starts_with("PLACEHOLDER_"))
                .unwrap_or(text),
        );
        let message = format!("the placeholder {name} was not filled in");
        self.faults.value(
            node,
            FaultCode::Placeholder,
            message,
            Some(format!("put its value in place of {name}")),
        );
    }

    fn unknown_word(&mut self, rule: &'t Rule, node: &'t Node, text: &str) {
        if has_placeholder(text) {
            return self.placeholder(node, text);
        }
        let message = format!("'{}' is not {}", shortened(text), one_of(&rule.words));
        let meant = nearest(text, rule.words.iter().map(String::as_str));
        let hint = meant.map(|meant| format!("did you mean '{meant}'?"));
        self.faults.value(node, FaultCode::UnknownWord, message, hint);
    }

    fn wrong_type(&mut self, rule: &'t Rule, node: &'t Node) {
        if self.hidden {
            let message = format!("it is {}; expected is {}", node.kind(), self.expected(rule));
            return self.faults.unshown(node, FaultCode::WrongType, message);
        }
        let written = node.written().map(shortened);
        if let Content::Text(text) = &node.content
            && has_placeholder(text)
        {
            return self.placeholder(node, text);
        }
        let found = match (&written, node.kind()) {
            (_, "nothing") => "it is empty".to_owned(),
            (Some(written), kind) => format!("'{written}' is {kind}"),
            (None, kind) => format!("it is {kind}"),
        };
        let wants = |wanted: Type| self.types_of(rule).contains(&wanted);
        // Too large for a whole number, it was read as another number.
        if let (Content::Number { .. }, Some(written)) = (&node.content, node.written())
            && wants(Type::Integer)
            && written
                .trim_start_matches(['-', '+'])
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        {
            let (end, bound) = match written.starts_with('-') {
                true => ("least", i128::from(i64::MIN)),
                false => ("greatest", i128::from(u64::MAX)),
            };
            let message = format!(
                "'{}' is beyond the {end} whole number there is, {bound}",
                shortened(written)
            );
            let hint = Some(format!("give it {}", self.expected(rule)));
            return self.faults.value(node, FaultCode::OutOfRange, message, hint);
        }
        let hint = match (&node.content, written.as_deref().unwrap_or_default()) {
            (Content::Text(_), word) if wants(Type::Boolean) && is_yes_or_no(word) => {
                Some("write true or false".to_owned())
            }
            (Content::Text(text), _) if wants(Type::List) => Some(format!("write it as a list: {}", as_list(text))),
            (Content::Text(text), _)
                if (wants(Type::Integer) || wants(Type::Number)) && text.trim().parse::<f64>().is_ok() =>
            {
                Some("leave the quotes out".to_owned())
            }
            (Content::Number { .. } | Content::Bool { .. }, word) if wants(Type::Text) => {
                Some(format!("put it in quotes: \"{word}\""))
            }
            (Content::Null, _) if wants(Type::Text) => Some("for an empty text write \"\"".to_owned()),
            (Content::Map(_), _) if wants(Type::List) => Some("begin each item with a dash: '- '".to_owned()),
            _ => None,
        };
        let message = format!("{found}; expected is {}", self.expected(rule));
        self.faults.value(node, FaultCode::WrongType, message, hint);
    }

    fn wrong_keys(&mut self, node: &'t Node, known: &[String], named: &[String]) {
        if !named.is_empty() {
            let message = format!("{} can't stand side by side", named.join(" and "));
            return self
                .faults
                .value(node, FaultCode::Conflict, message, Some("leave all but one out".into()));
        }
        let unknown = node.entries().first();
        let meant = unknown.and_then(|entry| nearest(&entry.key, known.iter().map(String::as_str)));
        let hint = meant.map(|meant| format!("did you mean '{meant}'?"));
        let expected = format!("expected is {}", one_of(known));
        match unknown {
            Some(entry) => {
                let message = format!("there is no field '{}' here; {expected}", shortened(&entry.key));
                self.faults.key(entry, FaultCode::UnknownField, message, hint);
            }
            None => self
                .faults
                .value(node, FaultCode::MissingField, format!("it is empty; {expected}"), None),
        }
    }

    fn types_of(&self, rule: &Rule) -> Vec<Type> {
        let branches = rule
            .branches
            .iter()
            .flat_map(|&branch| self.types_of(self.rules.settled(branch)));
        rule.types.iter().copied().chain(branches).collect()
    }

    /// What a rule wants, in words.
    fn expected(&self, rule: &Rule) -> String {
        if !rule.words.is_empty() {
            return one_of(&rule.words);
        }
        if let Some(title) = &rule.title {
            return title.clone();
        }
        let mut words: Vec<String> = Vec::new();
        let branches = rule.branches.iter().map(|&branch| self.rules.settled(branch));
        for branch in branches {
            let keyed = branch.types == [Type::Map] && rule.branches.len() > 1;
            words.push(match branch.required.first() {
                Some(key) if keyed => format!("a mapping with {key}"),
                _ => self.expected(branch),
            });
        }
        words.extend(rule.types.iter().filter(|&&kind| kind != Type::Null).map(|kind| {
            match kind {
                Type::Null => "nothing",
                Type::Boolean => "true or false",
                Type::Integer => "a whole number",
                Type::Number => "a number",
                Type::Text => "text",
                Type::List => "a list",
                Type::Map => "a mapping",
            }
            .to_owned()
        }));
        words.retain(|word| !word.is_empty());
        words.dedup();
        words.join(" or ")
    }
}

fn has_placeholder(text: &str) -> bool {
    PLACEHOLDER.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn one_of(words: &[String]) -> String {
    match words {
        [only] => only.clone(),
        [first, second] => format!("{first} or {second}"),
        _ => format!("one of {}", words.join(", ")),
    }
}

fn is_yes_or_no(word: &str) -> bool {
    matches!(
        word.to_lowercase().as_str(),
        "yes" | "no" | "on" | "off" | "y" | "n" | "true" | "false"
    )
}

fn as_list(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .take(8)
        .map(|word| format!("{:?}", shortened(word)))
        .collect();
    format!("[{}]", words.join(", "))
}

/// A doubled key hides one of its values from every reader that follows, so it is a fault wherever it stands.
fn doubled_keys<'t>(node: &'t Node, faults: &mut Faults<'t>) {
    for item in node.items() {
        doubled_keys(item, faults);
    }
    let entries = node.entries();
    if entries.len() > 1 {
        let mut first: HashMap<&str, &Entry> = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(before) = first.get(entry.key.as_str()) {
                let message = match before.key_at.line {
                    0 => format!("the key '{}' stands here twice", shortened(&entry.key)),
                    line => format!(
                        "the key '{}' stands here twice, first on line {line}",
                        shortened(&entry.key)
                    ),
                };
                faults.key(entry, FaultCode::DuplicateKey, message, Some("keep one of them".into()));
            } else {
                first.insert(&entry.key, entry);
            }
        }
    }
    for entry in entries {
        doubled_keys(&entry.value, faults);
    }
}
