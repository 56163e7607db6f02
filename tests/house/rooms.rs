//! Walls of the house that Cargo can't guard, guarded by reading the source.

use std::{fs, path::Path};

/// Every source file of the program with its path below `src`, tests in it cut off.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, root, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.push((name, text));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    assert!(found.len() > 10, "the sources are where this test looks");
    found
}

fn outside(allowed: &[&str], words: &[&str]) -> Vec<String> {
    let inside = |name: &str| {
        allowed
            .iter()
            .any(|room| name == *room || (room.ends_with('/') && name.starts_with(room)))
    };
    let mut found = Vec::new();
    for (name, text) in sources().into_iter().filter(|(name, _)| !inside(name)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = words.iter().find(|word| code.contains(**word)) {
                found.push(format!("src/{name}:{}: {word}", number + 1));
            }
        }
    }
    found
}

#[test]
fn the_environment_is_read_by_config_alone() {
    let readers = ["env::var", "env::vars", "env = \"", "env::home_dir", "env::args"];
    assert_eq!(outside(&["config/"], &readers), Vec::<String>::new());
}

#[test]
fn no_file_grows_beyond_proofreading() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > 500)
        .map(|(name, text)| format!("src/{name} has {} lines", text.lines().count()))
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn nothing_but_db_speaks_to_the_database_in_statements() {
    let words = ["sqlx::query", "query!(", "query_as!(", "query_scalar!(", "raw_sql("];
    assert_eq!(outside(&["db/"], &words), Vec::<String>::new());
}
