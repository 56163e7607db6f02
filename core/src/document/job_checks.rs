//! What a job's schema can't say: names that must differ, fields that need each other, names that are taken.
//!
//! Every check walks the tree, not the types, so that a document which is wrong elsewhere still hears of these.

use std::collections::{HashMap, HashSet};

use super::{
    fault::{FaultCode, Faults, shortened},
    forms::LONGEST_HANDED,
    tree::{Content, Entry, Node},
};

const API_VERSION: &str = "trainyard.dev/v1";
const MAX_REPLICAS: u64 = 10_000;
/// A ConfigMap can hold this much, so a document runs alike everywhere.
const MAX_INLINE_BYTES: usize = 900 * 1024;
const LAUNCHER: &str = "launcher";

/// Tells a document of another kind by that alone: every further fault would only be noise.
pub fn is_another_kind<'t>(root: &'t Node, faults: &mut Faults<'t>) -> bool {
    if !matches!(root.content, Content::Map(_)) {
        let message = format!("a job document is a mapping, but this is {}", root.kind());
        faults.value(root, FaultCode::WrongType, message, Some(first_lines()));
        return true;
    }
    let version = root.get("apiVersion").filter(|node| node.written().is_some());
    let Some(version) = version.filter(|node| !node.written().unwrap_or_default().starts_with("trainyard.dev/")) else {
        return false;
    };
    let written = shortened(version.written().unwrap_or_default());
    let kind = root
        .get("kind")
        .and_then(Node::written)
        .map(shortened)
        .unwrap_or_default();
    let message = format!("this is a document of {written} {kind}, not a job document of {API_VERSION}");
    faults.value(version, FaultCode::WrongKind, message, Some(first_lines()));
    true
}

fn first_lines() -> String {
    format!("a job document begins with 'apiVersion: {API_VERSION}' and 'kind: Job'")
}

pub fn check<'t>(root: &'t Node, faults: &mut Faults<'t>) {
    let roles = root.get("roles").map(Node::items).unwrap_or_default();
    different_names(roles, "name", "role", faults);
    replicas(root, roles, faults);
    let framework = root.get("framework").and_then(Node::written).unwrap_or("plain");
    if framework == "mpi" {
        one_launcher(root, roles, faults);
    }
    let environments = std::iter::once(root).chain(roles).filter_map(|owner| owner.get("env"));
    for env in environments {
        environment(env, framework, faults);
    }
    for role in roles {
        let volumes = role.get("volumes").map(Node::items).unwrap_or_default();
        different_names(volumes, "name", "volume", faults);
        different_names(volumes, "mountPath", "mount path", faults);
        for volume in volumes {
            let host_path = volume.get("source").and_then(|source| source.get("hostPath"));
            let paths = [volume.get("mountPath"), host_path.and_then(|host| host.get("path"))];
            paths.into_iter().flatten().for_each(|path| no_way_up(path, faults));
            let secret = volume.get("source").and_then(|source| source.get("secretRef"));
            if let Some(key) = secret.and_then(|secret| secret.get("key"))
                && matches!(key.written(), Some("." | ".."))
            {
                let message = format!("'{}' can't be the name of a file", key.written().unwrap_or_default());
                faults.value(
                    key,
                    FaultCode::WrongForm,
                    message,
                    Some("store the value under another key".into()),
                );
            }
        }
        if let Some(program) = role.get("command").and_then(|command| command.items().first())
            && program.written() == Some("")
        {
            let message = "the program's name is empty".to_owned();
            let hint = "begin the command with a program, such as python3".to_owned();
            faults.value(program, FaultCode::WrongForm, message, Some(hint));
        }
        role.get("workingDir")
            .into_iter()
            .for_each(|path| no_way_up(path, faults));
        if let Some(other) = role.get("resources").and_then(|resources| resources.get("other")) {
            named_elsewhere(other, faults);
        }
    }
    if let Some(labels) = root.get("labels") {
        labels_of_ours(labels, faults);
    }
    if let Some(files) = root.get("code").and_then(|code| code.get("inline")) {
        inline_files(files, faults);
    }
    limits(root, faults);
}

fn different_names<'t>(list: &'t [Node], field: &str, what: &str, faults: &mut Faults<'t>) {
    let mut seen = HashSet::new();
    for node in list.iter().filter_map(|item| item.get(field)) {
        if let Some(name) = node.written()
            && !seen.insert(name)
        {
            let message = format!("there is another {what} '{}'", shortened(name));
            faults.value(
                node,
                FaultCode::DuplicateName,
                message,
                Some("give each its own".into()),
            );
        }
    }
}

fn replicas<'t>(root: &'t Node, roles: &'t [Node], faults: &mut Faults<'t>) {
    let of = |role: &Node| match role.get("replicas").map(|node| &node.content) {
        Some(Content::Number { value, .. }) => value.as_u64().unwrap_or(0),
        _ => 1,
    };
    let total = roles.iter().map(of).fold(0u64, u64::saturating_add);
    let each_fits = roles.iter().all(|role| of(role) <= MAX_REPLICAS);
    if total > MAX_REPLICAS
        && each_fits
        && let Some(node) = root.get("roles")
    {
        let message = format!("the roles have {total} replicas together; at most {MAX_REPLICAS} are allowed");
        faults.value(node, FaultCode::OutOfRange, message, None);
    }
}

fn one_launcher<'t>(root: &'t Node, roles: &'t [Node], faults: &mut Faults<'t>) {
    let is_launcher = |role: &&Node| role.get("name").and_then(Node::written) == Some(LAUNCHER);
    match roles.iter().find(is_launcher) {
        Some(launcher) => {
            let replicas = launcher.get("replicas");
            let several =
                |node: &&Node| matches!(&node.content, Content::Number { value, .. } if value.as_u64() != Some(1));
            if let Some(node) = replicas.filter(several) {
                let message = "exactly one launcher runs mpirun".to_owned();
                let hint = "write replicas: 1; the number of ranks is what mpirun is told (-np)".to_owned();
                faults.value(node, FaultCode::Conflict, message, Some(hint));
            }
        }
        None => {
            if let Some(framework) = root.get("framework") {
                let message =
                    format!("framework mpi needs a role named {LAUNCHER} with one replica, which runs mpirun");
                faults.value(
                    framework,
                    FaultCode::Conflict,
                    message,
                    Some(format!("name the role {LAUNCHER}")),
                );
            }
        }
    }
}

fn environment<'t>(env: &'t Node, framework: &str, faults: &mut Faults<'t>) {
    let rendezvous: &[&str] = match framework {
        "pytorch" => &["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"],
        "tensorflow" => &["TF_CONFIG"],
        "jax" => &["JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"],
        _ => &[],
    };
    for entry in env.entries() {
        if entry.key.starts_with("TRAINYARD_") {
            let message = format!(
                "'{}' is reserved: Trainyard sets the names that begin with TRAINYARD_",
                entry.key
            );
            faults.key(
                entry,
                FaultCode::ReservedName,
                message,
                Some("choose another name".into()),
            );
        } else if rendezvous.contains(&entry.key.as_str()) {
            let message = format!("'{}' is set for each replica by framework {framework}", entry.key);
            let hint = "leave it out, or write framework: plain and set all of it yourself".to_owned();
            faults.key(entry, FaultCode::ReservedName, message, Some(hint));
        }
        // As a program gets it: NAME=VALUE and a zero byte. A value that is too long alone is the schema's to tell.
        let value = entry.value.written().unwrap_or_default();
        let handed = entry.key.len() + value.len() + 2;
        if handed > LONGEST_HANDED && value.chars().count() <= LONGEST_HANDED {
            let message = format!(
                "'{}' is {handed} bytes as name=value, and programs take at most {LONGEST_HANDED}",
                entry.key
            );
            let hint = "put it in a file: code.inline, a volume, or a secret as a file".to_owned();
            faults.value(&entry.value, FaultCode::OutOfRange, message, Some(hint));
        }
    }
}

fn no_way_up<'t>(path: &'t Node, faults: &mut Faults<'t>) {
    if let Some(written) = path.written()
        && written.split('/').any(|part| part == "..")
    {
        let message = format!("'{}' leads up with '..'", shortened(written));
        faults.value(
            path,
            FaultCode::WrongForm,
            message,
            Some("write the path without '..'".into()),
        );
    }
}

/// A cpu that hides among the others would be asked for twice, or never counted.
fn named_elsewhere<'t>(other: &'t Node, faults: &mut Faults<'t>) {
    for entry in other.entries() {
        let field = match entry.key.as_str() {
            "cpu" => "cpu",
            "memory" => "memory",
            "gpu" | "gpus" | "nvidia.com/gpu" | "amd.com/gpu" => "gpus",
            _ => continue,
        };
        let message = format!("'{}' has a field of its own", entry.key);
        faults.key(
            entry,
            FaultCode::Conflict,
            message,
            Some(format!("write it as resources.{field}")),
        );
    }
}

fn labels_of_ours<'t>(labels: &'t Node, faults: &mut Faults<'t>) {
    let ours = |entry: &&'t Entry| {
        entry
            .key
            .split_once('/')
            .is_some_and(|(domain, _)| domain.ends_with("trainyard.dev"))
    };
    for entry in labels.entries().iter().filter(ours) {
        let message = format!(
            "'{}' is reserved: labels of trainyard.dev are Trainyard's own",
            entry.key
        );
        faults.key(
            entry,
            FaultCode::ReservedName,
            message,
            Some("choose another name".into()),
        );
    }
}

fn inline_files<'t>(files: &'t Node, faults: &mut Faults<'t>) {
    let mut total = 0;
    let mut folders: HashMap<&str, &str> = HashMap::new();
    for entry in files.entries() {
        total += entry.value.written().map_or(0, str::len);
        if let Err(reason) = inside_the_folder(&entry.key) {
            let message = format!("'{}' {reason}", shortened(&entry.key));
            let hint = "write a path inside the working folder, such as train.py or lib/data.py".to_owned();
            faults.key(entry, FaultCode::WrongForm, message, Some(hint));
        }
        for (slash, _) in entry.key.match_indices('/') {
            folders.insert(&entry.key[..slash], &entry.key);
        }
    }
    for entry in files.entries() {
        if let Some(inner) = folders.get(entry.key.as_str()) {
            let message = format!(
                "'{}' can't be a file and the folder of '{}'",
                shortened(&entry.key),
                shortened(inner)
            );
            faults.key(entry, FaultCode::Conflict, message, None);
        }
    }
    if total > MAX_INLINE_BYTES {
        let message =
            format!("the files have {total} bytes together; at most {MAX_INLINE_BYTES} travel inside a document");
        faults.value(
            files,
            FaultCode::OutOfRange,
            message,
            Some("upload the code, or name a git commit".into()),
        );
    }
}

fn inside_the_folder(path: &str) -> Result<(), &'static str> {
    let parts = || path.split('/');
    if path.starts_with('/') {
        Err("is an absolute path")
    } else if path.is_empty() || parts().any(|part| part.is_empty() || part == ".") {
        Err("has an empty part")
    } else if parts().any(|part| part == "..") {
        Err("leads up with '..'")
    } else if path.chars().any(char::is_control) || path.contains('\\') {
        Err("has a character that a file's name can't have everywhere")
    } else if path.len() > 512 || parts().any(|part| part.len() > 255) {
        Err("is too long")
    } else {
        Ok(())
    }
}

fn limits<'t>(root: &'t Node, faults: &mut Faults<'t>) {
    let deadlines = root.get("deadlines").map(Node::entries).unwrap_or_default();
    for entry in deadlines {
        let duration = entry
            .value
            .written()
            .and_then(|text| text.parse::<super::units::Duration>().ok());
        if duration.is_some_and(|duration| duration.as_seconds() == 0) {
            let message = format!("a {} deadline of nothing would end every job at once", entry.key);
            faults.value(
                &entry.value,
                FaultCode::OutOfRange,
                message,
                Some("leave it out for no limit".into()),
            );
        }
    }
    if let Some(checkpoints) = root.get("checkpoints")
        && let Some(wait) = checkpoints.get("wait").filter(|wait| wait.written().is_some())
        && checkpoints.get("signal").is_none()
    {
        let message = "nothing asks for the checkpoint that this waits for".to_owned();
        faults.value(
            wait,
            FaultCode::Conflict,
            message,
            Some("add checkpoints.signal, such as USR1".into()),
        );
    }
}
