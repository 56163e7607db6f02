//! Submitting a document from a file or standard input, with placeholders filled, and watching it until it ends.

use std::{collections::BTreeMap, io::Read, path::PathBuf};

use clap::Args;
use reqwest::{Method, header};
use serde_json::Value;

use super::{
    Done, answer, assignment, code,
    http::{ClientError, Server},
    jobs::JobView,
    logs, say,
    table::json_for_terminal,
    warnings,
};
use crate::{
    config::{ClientArgs, Output},
    web::BODY_LIMIT,
};

#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The job document, YAML or JSON; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Fill a placeholder of the document, written PLACEHOLDER_NAME, ${NAME} or $NAME
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Send this file, or all that lies in this folder but hidden files, along as code.inline; may be given several times
    #[arg(long, value_name = "PATH")]
    pub code: Vec<PathBuf>,
    /// Only check it, and tell what would be submitted
    #[arg(long)]
    pub dry_run: bool,
    /// Print its output until it ends; the exit code is 0 if it succeeded
    #[arg(long, visible_alias = "follow", conflicts_with = "dry_run")]
    pub watch: bool,
    /// Sent twice with the same key, it is submitted once [default: a new key]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

pub async fn submit(server: &Server, args: &SubmitArgs, output: Output) -> Result<Done, ClientError> {
    // The code is added last: a `$NAME` in a program is the program's.
    let text = code::attach(fill(&read(&args.file)?, &args.set)?, &args.code)?;
    let kind = if text.trim_start().starts_with('{') {
        "application/json"
    } else {
        "application/yaml"
    };
    let key = args
        .idempotency_key
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let mut request = server
        .request(Method::POST, "/jobs")
        .header(header::CONTENT_TYPE, kind)
        .header("Idempotency-Key", key)
        .body(text);
    if args.dry_run {
        request = request.query(&[("dry_run", "true")]);
    }
    let created = server.json(request).await?;
    if args.dry_run {
        answer(output, &created, || {
            "The document is sound. Nothing was submitted.\n".to_owned() + &warnings(&created)
        })?;
        return Ok(Done::Well);
    }
    let job: JobView = server.read(&created)?;
    if !args.watch {
        answer(output, &created, || {
            format!(
                "Submitted {} ({})\n  Output: trainyard logs -f {}\n  Page:   {}/jobs/{}\n",
                job.name,
                job.id,
                job.id,
                server.address(),
                job.id
            ) + &warnings(&created)
        })?;
        return Ok(Done::Well);
    }
    if output == Output::Table {
        say(&format!(
            "Submitted {} ({}), {}/jobs/{}\n{}",
            job.name,
            job.id,
            server.address(),
            job.id,
            warnings(&created)
        ))?;
    }
    logs::follow_to_the_end(server, job.id, output).await
}

/// The document. One that no server takes is refused here, since a server hangs up before it was sent.
fn read(path: &PathBuf) -> Result<String, ClientError> {
    let text = read_whole(path)?;
    if text.len() > BODY_LIMIT {
        return Err(ClientError::Usage(format!(
            "{}: {} bytes are too much for a document, which has at most {BODY_LIMIT}; files go along with --code, data lies in a volume",
            path.display(),
            text.len()
        )));
    }
    Ok(text)
}

fn read_whole(path: &PathBuf) -> Result<String, ClientError> {
    let fault = |source| ClientError::File {
        path: path.display().to_string(),
        source,
    };
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map_err(fault)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(fault)
}

/// Puts values in the place of `PLACEHOLDER_NAME`, `${NAME}` and `$NAME`, for the given names alone: a shell's own
/// `$PATH` is left as it is. A value that was given and is nowhere wanted is a slip of the hand, and refused.
fn fill(text: &str, values: &[(String, String)]) -> Result<String, ClientError> {
    let values: BTreeMap<&str, &str> = values
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut used: BTreeMap<&str, bool> = values.keys().map(|name| (*name, false)).collect();
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', 'P']) {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let word = |from: usize| {
            let tail = &rest[from..];
            let end = tail.find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
            &tail[..end.unwrap_or(tail.len())]
        };
        let (name, length) = if rest.starts_with("${") {
            let name = word(2);
            (
                name,
                if rest[2 + name.len()..].starts_with('}') {
                    name.len() + 3
                } else {
                    0
                },
            )
        } else if rest.starts_with('$') {
            (word(1), word(1).len() + 1)
        } else if rest.starts_with("PLACEHOLDER_") {
            // The whole word is a name too: `--set PLACEHOLDER_IMAGE=...` is what a reader of the file may type.
            let whole = word(0);
            let short = &whole["PLACEHOLDER_".len()..];
            (if values.contains_key(whole) { whole } else { short }, whole.len())
        } else {
            ("", 0)
        };
        match values.get_key_value(name).filter(|_| length > 0) {
            Some((name, value)) => {
                used.insert(name, true);
                filled.push_str(value);
                rest = &rest[length..];
            }
            None => {
                // Both signs that are looked for are one byte long.
                filled.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    let unused: Vec<&str> = used
        .into_iter()
        .filter(|(_, used)| !used)
        .map(|(name, _)| name)
        .collect();
    if unused.is_empty() {
        Ok(filled)
    } else {
        Err(ClientError::Usage(format!(
            "the document has no placeholder named {}",
            unused.join(", ")
        )))
    }
}

/// The answer of a watched job, once it ended.
pub fn ended(job: &JobView, output: Output, value: &Value) -> Result<Done, ClientError> {
    // After lines of JSON, one more.
    match output {
        Output::Json => say(&(json_for_terminal(&value.to_string()) + "\n"))?,
        Output::Table => say(&format!("{}\n", job.sentence()))?,
    }
    Ok(if job.phase == trainyard_core::model::Phase::Succeeded {
        Done::Well
    } else {
        Done::Badly
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn placeholders_are_filled_where_they_are_named_and_nothing_else_is_touched() {
        let text =
            "image: PLACEHOLDER_IMAGE\ncommand: [sh, -c, \"echo $PATH ${N}x $N $NODES Pier PLACEHOLDER_OTHER\"]\n";
        let filled = fill(text, &set(&[("IMAGE", "a:1"), ("N", "4")])).unwrap();
        assert_eq!(
            filled,
            "image: a:1\ncommand: [sh, -c, \"echo $PATH 4x 4 $NODES Pier PLACEHOLDER_OTHER\"]\n"
        );
        assert_eq!(fill("PLACEHOLDER_A", &set(&[("PLACEHOLDER_A", "x")])).unwrap(), "x");
        assert_eq!(fill("é$N${N", &set(&[("N", "ü")])).unwrap(), "éü${N");
    }

    #[test]
    fn a_value_that_is_nowhere_wanted_is_a_slip() {
        let error = fill("a: $B", &set(&[("C", "1")])).unwrap_err();
        assert_eq!(error.to_string(), "the document has no placeholder named C");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_value_is_not_filled_again() {
        assert_eq!(fill("$A", &set(&[("A", "$A ${A}")])).unwrap(), "$A ${A}");
    }
}
