//! Local files as a document's `code.inline`, so that a script need not be pasted into YAML.
//!
//! The document's own lines stay as they are and where they are: faults that a server finds still name the lines of the
//! file that a person has open.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use trainyard_core::plan::words;

use super::http::ClientError;

/// What a document may carry, as the server checks it.
const MOST: usize = 900 * 1024;
const MOST_FILES: usize = 256;

/// The document with these files, and all that lies in these folders, in the job's working folder.
pub fn attach(document: String, paths: &[PathBuf]) -> Result<String, ClientError> {
    if paths.is_empty() {
        return Ok(document);
    }
    let mut files = BTreeMap::new();
    for path in paths {
        match path.is_dir() {
            true => folder(path, "", &mut files)?,
            false => {
                let name = path.file_name().and_then(|name| name.to_str());
                let name = name.ok_or_else(|| usage(format!("{} names no file", path.display())))?;
                file(path, name.to_owned(), &mut files)?;
            }
        }
    }
    within_bounds(paths, &files)?;
    match document.trim_start().starts_with('{') {
        true => into_json(&document, files),
        false => into_yaml(document, &files),
    }
}

/// Hidden files and Python's caches are nobody's code. Links are not followed: what they lead to lies elsewhere, and
/// was not meant by who named this folder.
fn folder(path: &Path, below: &str, files: &mut BTreeMap<String, String>) -> Result<(), ClientError> {
    let entries = fs::read_dir(path).map_err(|source| unreadable(path, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| unreadable(path, source))?;
        let name = entry.file_name();
        let name = name
            .to_str()
            .ok_or_else(|| usage(format!("{}: the name is not UTF-8", entry.path().display())))?;
        if name.starts_with('.') || name == "__pycache__" {
            continue;
        }
        let kind = entry.file_type().map_err(|source| unreadable(&entry.path(), source))?;
        if kind.is_dir() {
            folder(&entry.path(), &format!("{below}{name}/"), files)?;
        } else if kind.is_symlink() {
            return Err(usage(format!(
                "{} is a link, which is not followed; name what it leads to with another --code, or remove it",
                entry.path().display()
            )));
        } else if kind.is_file() {
            file(&entry.path(), format!("{below}{name}"), files)?;
        }
    }
    Ok(())
}

fn file(path: &Path, name: String, files: &mut BTreeMap<String, String>) -> Result<(), ClientError> {
    let bytes = fs::read(path).map_err(|source| unreadable(path, source))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        usage(format!(
            "{} is not text, and a document carries text alone. Leave it out, or put it where the job can read it",
            path.display()
        ))
    })?;
    match files.insert(name.clone(), text) {
        Some(_) => Err(usage(format!("two of the files would be {name} in the working folder"))),
        None => Ok(()),
    }
}

fn within_bounds(paths: &[PathBuf], files: &BTreeMap<String, String>) -> Result<(), ClientError> {
    let Some((largest, text)) = files.iter().max_by_key(|(_, text)| text.len()) else {
        let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(usage(format!("there is no file in {}", named.join(", "))));
    };
    if files.len() > MOST_FILES {
        return Err(usage(format!(
            "--code names {} files, and a document carries at most {MOST_FILES}; upload an archive instead: POST /api/v1/code",
            files.len()
        )));
    }
    let all: usize = files.values().map(String::len).sum();
    if all <= MOST {
        return Ok(());
    }
    Err(usage(format!(
        "the files of --code are {} together, and a document carries at most {}. The largest is {largest} with {}",
        words::bytes(all as u64),
        words::bytes(MOST as u64),
        words::bytes(text.len() as u64)
    )))
}

fn into_json(document: &str, files: BTreeMap<String, String>) -> Result<String, ClientError> {
    let mut tree: Value = serde_json::from_str(document).map_err(|error| {
        usage(format!(
            "the document is no JSON ({error}), so --code can't be added to it"
        ))
    })?;
    match tree.as_object_mut() {
        Some(root) if root.contains_key("code") => Err(has_code()),
        Some(root) => {
            root.insert("code".to_owned(), serde_json::json!({ "inline": files }));
            Ok(tree.to_string())
        }
        None => Err(usage(
            "the document is no mapping, so --code can't be added to it".into(),
        )),
    }
}

/// Behind the last line: a JSON string is a YAML string too.
fn into_yaml(mut document: String, files: &BTreeMap<String, String>) -> Result<String, ClientError> {
    let is_code = |line: &str| {
        let key = line.split_once(':').map_or("", |(key, _)| key.trim_end());
        matches!(key, "code" | "\"code\"" | "'code'")
    };
    if document.lines().any(is_code) {
        return Err(has_code());
    }
    if !document.ends_with('\n') {
        document.push('\n');
    }
    document.push_str("code:\n  inline:\n");
    for (name, text) in files {
        document.push_str(&format!(
            "    {}: {}\n",
            Value::from(name.as_str()),
            Value::from(text.as_str())
        ));
    }
    Ok(document)
}

fn has_code() -> ClientError {
    usage("the document has a field 'code' already; remove it, or leave --code out".into())
}

fn usage(words: String) -> ClientError {
    ClientError::Usage(words)
}

fn unreadable(path: &Path, source: std::io::Error) -> ClientError {
    ClientError::File {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::document::{check_job, job::Code};

    use super::*;

    const JOB: &str =
        "apiVersion: trainyard.dev/v1\nkind: Job\nname: a\nroles:\n  - name: main\n    command: [python3, train.py]";

    fn ground() -> tempfile::TempDir {
        let ground = tempfile::tempdir().unwrap();
        fs::create_dir_all(ground.path().join("src/deep")).unwrap();
        fs::create_dir_all(ground.path().join("src/.git")).unwrap();
        fs::write(ground.path().join("src/train.py"), "print(\"ä: \\n\")\n\t# end\n").unwrap();
        fs::write(ground.path().join("src/deep/model.py"), "").unwrap();
        fs::write(ground.path().join("src/.git/HEAD"), "x").unwrap();
        fs::write(ground.path().join("weights.bin"), [0xff, 0xfe]).unwrap();
        ground
    }

    #[test]
    fn a_folder_travels_in_the_document_byte_for_byte() {
        let ground = ground();
        let json =
            r#"{"apiVersion":"trainyard.dev/v1","kind":"Job","name":"a","roles":[{"name":"main","command":["x"]}]}"#;
        for document in [JOB, json] {
            let whole = attach(document.to_owned(), &[ground.path().join("src")]).unwrap();
            let job = check_job(&whole, None).unwrap();
            let Some(Code::Inline(files)) = job.code else {
                panic!("{whole}")
            };
            let names: Vec<&str> = files.keys().map(String::as_str).collect();
            assert_eq!(names, ["deep/model.py", "train.py"]);
            assert_eq!(files["train.py"], "print(\"ä: \\n\")\n\t# end\n");
        }
        let whole = attach(JOB.to_owned(), &[ground.path().join("src/train.py")]).unwrap();
        assert!(whole.starts_with(JOB), "its own lines stay where they are");
    }

    #[test]
    fn what_cannot_travel_is_named_with_the_way_out() {
        let ground = ground();
        let says = |document: &str, path: &str| {
            let error = attach(document.to_owned(), &[ground.path().join(path)]).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        let (code, words) = says(JOB, "weights.bin");
        assert!(code == 2 && words.contains("weights.bin is not text"), "{words}");
        let (code, words) = says(&format!("{JOB}\ncode:\n  upload: x\n"), "src/train.py");
        assert!(code == 2 && words.contains("'code' already"), "{words}");
        let (code, words) = says(JOB, "nowhere.py");
        assert!(code == 1 && words.contains("nowhere.py"), "{words}");
        fs::write(ground.path().join("big.txt"), "x".repeat(MOST + 1)).unwrap();
        let (code, words) = says(JOB, "big.txt");
        assert!(code == 2 && words.contains("The largest is big.txt"), "{words}");
        fs::create_dir(ground.path().join("empty")).unwrap();
        assert!(says(JOB, "empty").1.contains("there is no file in"));
    }
}
