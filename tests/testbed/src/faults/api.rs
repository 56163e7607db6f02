//! The API server and its store: restart, loss of history, and what the audit log saw.

use crate::cluster::Testbed;
use crate::error::{Doing, Error, Result};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Kills the API server. Every watch and every request under way breaks.
pub fn kill_api_server(testbed: &Testbed) -> Result<()> {
    testbed.control().stop("kube-apiserver", 9)
}

/// Kills and starts it, and returns when it is ready.
pub async fn restart_api_server(testbed: &Testbed) -> Result<()> {
    kill_api_server(testbed)?;
    testbed.start_api_server().await
}

/// Forgets all history: etcd up to now, and the API server's own memory of recent changes, which would answer in etcd's place, by a
/// restart. After this, going on from an old resource version gets 410.
pub async fn forget_history(testbed: &Testbed) -> Result<()> {
    kill_api_server(testbed)?;
    compact(testbed)?;
    testbed.start_api_server().await
}

/// Compacts etcd up to its present revision, which is returned. List continuations that are older get 410 at once.
pub fn compact(testbed: &Testbed) -> Result<i64> {
    let answer = etcd_call(testbed, "/v3/kv/range", &json!({"key": "AA=="}))?;
    let revision = answer["header"]["revision"]
        .as_str()
        .and_then(|r| r.parse::<i64>().ok());
    let revision = revision.ok_or_else(|| Error::Refused(format!("etcd told no revision: {answer}")))?;
    etcd_call(
        testbed,
        "/v3/kv/compaction",
        &json!({"revision": revision.to_string(), "physical": true}),
    )?;
    Ok(revision)
}

/// Asks etcd through its JSON gateway. It listens on the control plane's own loopback, so the call is made from in there.
pub fn etcd_call(testbed: &Testbed, path: &str, body: &Value) -> Result<Value> {
    let program = crate::program()?.to_string_lossy().into_owned();
    let text = testbed
        .control()
        .run([program.as_str(), "etcd-call", path, &body.to_string()])?;
    let answer: Value =
        serde_json::from_str(&text).map_err(|e| Error::Refused(format!("etcd answered {text}: {e}")))?;
    if answer.get("error").is_some() {
        return Err(Error::Refused(format!("etcd refused {path}: {answer}")));
    }
    Ok(answer)
}

/// The inner half of `etcd_call`. One request on one connection needs no HTTP library, and a subcommand should start at once.
pub fn etcd_call_here(path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect("127.0.0.1:2379").doing("cannot reach etcd")?;
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).doing("cannot ask etcd")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).doing("cannot hear etcd")?;
    Ok(answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_string())
        .unwrap_or_default())
}

/// Lines of the audit log that fit, e.g. requests of one user agent. The log is written before a request is answered.
pub fn audited(testbed: &Testbed, fits: impl Fn(&Value) -> bool) -> Result<usize> {
    let path = testbed.layout.audit_log();
    let text = std::fs::read_to_string(&path).doing(format!("cannot read {}", path.display()))?;
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(fits)
        .count())
}
