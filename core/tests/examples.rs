//! The documents in `examples/`: each passes the checker, and their scripts are run by hand, that is with nothing but
//! the environment that a runtime gives to replicas.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use trainyard_core::{
    catch::Catcher,
    document::{
        FaultCode, check_job,
        job::{Code, EnvValue, JobDocument},
        to_yaml,
    },
};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn text_of(name: &str) -> String {
    fs::read_to_string(examples().join(name).join("job.yaml")).unwrap()
}

fn document(name: &str) -> JobDocument {
    check_job(&text_of(name), None).unwrap_or_else(|faults| panic!("{name}: {faults:#?}"))
}

#[test]
fn every_example_passes_the_checker_and_says_what_it_is() {
    let mut seen = 0;
    for folder in fs::read_dir(examples()).unwrap() {
        let folder = folder.unwrap();
        if !folder.path().join("job.yaml").exists() {
            continue;
        }
        let name = folder.file_name().into_string().unwrap();
        let text = text_of(&name);
        assert!(text.starts_with("# "), "{name}: its first lines say what it is for");
        if name == "sweep" {
            let faults = check_job(&text, None).unwrap_err();
            assert!(
                faults.iter().all(|fault| fault.code == FaultCode::Placeholder),
                "{faults:#?}"
            );
            let filled = text
                .replace("PLACEHOLDER_NUMBER", "1")
                .replace("PLACEHOLDER_RATE", "0.1");
            check_job(&filled, None).unwrap();
        } else {
            let document = document(&name);
            assert_eq!(document.name, name);
            assert_eq!(document.labels["example"], name);
            assert_eq!(check_job(&to_yaml(&document), None), Ok(document));
        }
        seen += 1;
    }
    assert!(seen >= 12, "{seen} examples");
}

/// The replicas of one attempt. Whatever still runs is killed when the test is over, however it ends.
struct Attempt {
    replicas: Vec<Option<Child>>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        for mut replica in self.replicas.drain(..).flatten() {
            let _ = replica.kill();
            let _ = replica.wait();
        }
    }
}

struct Ended {
    succeeded: bool,
    lines: Vec<String>,
    errors: String,
}

/// A folder of its own for each run, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trainyard-example-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(document: &JobDocument, world: u32, folder: &Path, more: &[(&str, &str)]) -> Attempt {
    let Some(Code::Inline(files)) = &document.code else {
        panic!("{} has no inline code", document.name)
    };
    for (path, text) in files {
        fs::write(folder.join(path), text).unwrap();
    }
    // Free a moment ago; only this test's own processes ask for it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let role = &document.roles[0];
    let replicas = (0..world).map(|rank| {
        let mut command = Command::new(&role.command[0]);
        command.args(&role.command[1..]).args(&role.args).current_dir(folder);
        for (name, value) in document.env.iter().chain(&role.env) {
            if let EnvValue::Value(value) = value {
                command.env(name, value);
            }
        }
        command
            .env("PACE", "0")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Some(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{}: {error}", role.command[0])),
        )
    });
    Attempt {
        replicas: replicas.collect(),
    }
}

impl Attempt {
    fn wait_for(&mut self, rank: usize) -> Ended {
        let output = self.replicas[rank].take().unwrap().wait_with_output().unwrap();
        Ended {
            succeeded: output.status.success(),
            lines: String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn run(name: &str, world: u32, more: &[(&str, &str)]) -> Vec<Ended> {
    let folder = Folder::new(&format!("{name}-{world}"));
    let mut attempt = start(&document(name), world, &folder.0, more);
    (0..world as usize).map(|rank| attempt.wait_for(rank)).collect()
}

/// The steps that a replica printed, as they are caught.
fn steps(ended: &Ended) -> Vec<i64> {
    let catcher = Catcher::new(&Default::default()).unwrap();
    let metric = |line: &String| catcher.catch(line.as_bytes()).metric;
    ended
        .lines
        .iter()
        .filter_map(metric)
        .filter_map(|metric| metric.step)
        .collect()
}

fn weights(ended: &Ended) -> String {
    let last = ended
        .lines
        .last()
        .unwrap_or_else(|| panic!("nothing printed; {}", ended.errors));
    assert!(last.starts_with("weights sha256="), "{last}");
    last.clone()
}

#[test]
fn train_averages_its_gradients_over_all_ranks() {
    let alone = run("train", 1, &[]);
    let two = run("train", 2, &[]);
    let four = run("train", 4, &[]);
    for ended in alone.iter().chain(&two).chain(&four) {
        assert!(ended.succeeded, "{}", ended.errors);
        assert_eq!(steps(ended), (1..=200).collect::<Vec<_>>());
    }
    assert_eq!(weights(&two[0]), weights(&two[1]));
    assert!(four.iter().all(|ended| weights(ended) == weights(&four[0])));
    assert_ne!(weights(&alone[0]), weights(&two[0]));
    assert_ne!(weights(&two[0]), weights(&four[0]));
    // The ranks saw data of their own: their losses differ.
    assert_ne!(two[0].lines[1], two[1].lines[1]);
    assert_eq!(
        weights(&run("train", 2, &[])[0]),
        weights(&two[0]),
        "the same run gives the same weights"
    );
}

#[test]
fn single_fits_its_line() {
    let ended = run("single", 1, &[]).remove(0);
    assert!(ended.succeeded, "{}", ended.errors);
    assert_eq!(steps(&ended).len(), 50);
    assert_eq!(ended.lines.last().map(String::as_str), Some("y = 2.994 x + 0.996"));
}

#[test]
fn fails_ends_with_a_traceback_on_one_rank_only() {
    let folder = Folder::new("fails");
    let mut attempt = start(&document("fails"), 4, &folder.0, &[]);
    let ended = attempt.wait_for(2);
    assert!(!ended.succeeded);
    assert!(
        ended.errors.contains("Traceback") && ended.errors.contains("KeyError"),
        "{}",
        ended.errors
    );
    assert_eq!(steps(&ended), (1..12).collect::<Vec<_>>());
    for rank in [0, 1, 3] {
        let replica = attempt.replicas[rank].as_mut().unwrap();
        assert!(replica.try_wait().unwrap().is_none(), "rank {rank} waits to be stopped");
    }
}

#[test]
fn checkpoint_goes_on_where_it_was() {
    let folder = Folder::new("checkpoint");
    let at = folder.0.to_str().unwrap();
    let volume = ("TRAINYARD_VOLUME_CHECKPOINTS", at);
    let document = document("checkpoint");

    let mut first = start(&document, 2, &folder.0, &[volume, ("TRAINYARD_ATTEMPT", "1")]);
    let ended = first.wait_for(1);
    assert!(
        !ended.succeeded && ended.errors.contains("a simulated fault at step 27"),
        "{}",
        ended.errors
    );
    drop(first);

    let resume = folder.0.join("step-20.json");
    let resume = ("TRAINYARD_RESUME_FROM", resume.to_str().unwrap());
    let mut second = start(&document, 2, &folder.0, &[volume, resume, ("TRAINYARD_ATTEMPT", "2")]);
    let resumed = second.wait_for(0);
    assert!(resumed.succeeded, "{}", resumed.errors);
    assert_eq!(steps(&resumed).first(), Some(&21));
    let catcher = Catcher::new(&document.metrics).unwrap();
    let caught: Vec<_> = resumed
        .lines
        .iter()
        .filter_map(|line| catcher.catch(line.as_bytes()).checkpoint)
        .collect();
    assert_eq!(
        caught.iter().map(|checkpoint| checkpoint.step).collect::<Vec<_>>(),
        [30, 40, 50, 60]
    );
    assert_eq!(caught[0].path, format!("{at}/step-30.json"));

    let mut unbroken = start(&document, 2, &folder.0, &[volume, ("FAIL_AT", "0")]);
    assert_eq!(
        unbroken.wait_for(0).lines.last(),
        resumed.lines.last(),
        "nothing was lost on the way"
    );
}
