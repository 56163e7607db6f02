//! Reads `versions`, the one file that decides what runs, and refuses Go modules that disagree with it.

use crate::error::{Doing, Error, Result};
use crate::layout;

/// One line of `versions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The binary's name in the cache.
    pub name: String,
    /// The folder under `modules` whose go.mod pins it.
    pub group: String,
    /// The upstream Go module.
    pub module: String,
    pub version: String,
    /// The package to build, as a path inside the upstream module; `.` is its root, and `main` a main of ours.
    pub package: String,
}

impl Component {
    /// What `go build` is told.
    pub fn import_path(&self) -> String {
        match self.package.as_str() {
            "main" => ".".into(),
            "." => self.module.clone(),
            inner => format!("{}/{inner}", self.module),
        }
    }
}

/// Every component, in the order of the file.
pub fn read() -> Result<Vec<Component>> {
    let path = layout::source().join("versions");
    let text = std::fs::read_to_string(&path).doing(format!("cannot read {}", path.display()))?;
    parse(&text)
}

pub fn parse(text: &str) -> Result<Vec<Component>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|(number, line)| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, group, module, version, package] => Ok(Component {
                name: name.into(),
                group: group.into(),
                module: module.into(),
                version: version.into(),
                package: package.into(),
            }),
            _ => Err(Error::Refused(format!(
                "versions, line {}: five words are wanted, not `{line}`",
                number + 1
            ))),
        })
        .collect()
}

/// The version of one upstream module, for labels and image names.
pub fn of(components: &[Component], name: &str) -> Result<Component> {
    components
        .iter()
        .find(|c| c.name == name)
        .cloned()
        .ok_or_else(|| Error::Refused(format!("versions does not name {name}")))
}

/// A go.mod that requires another version than `versions` says would build the wrong thing silently.
pub fn agree(component: &Component, go_mod: &str) -> Result<()> {
    let wanted = format!("{} {}", component.module, component.version);
    let found = go_mod.lines().any(|line| {
        let line = line.trim().trim_start_matches("require ");
        line == wanted || line.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with(' '))
    });
    if found {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "modules/{}/go.mod does not require {wanted}, as versions says; there: go get -tool {}@{}",
        component.group,
        component.import_path(),
        component.version
    )))
}
