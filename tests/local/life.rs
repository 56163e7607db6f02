//! Starting, what a program finds around it, and how its end is told.

use std::collections::BTreeSet;

use serde_json::json;
use trainyard::runtimes::{Runtime, RuntimeError};
use trainyard_core::model::{LogStream, ReplicaState, SecretValue};

use crate::world::{World, launch, script};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exits_are_told_by_code_and_signal_and_nothing_is_left() {
    let world = World::new();
    let launch = launch(json!({ "roles": [
        { "name": "good", "command": ["sh", "-c", "echo out; echo err >&2"] },
        { "name": "bad", "command": ["sh", "-c", "exit 7"] },
        { "name": "dead", "command": ["sh", "-c", "kill -9 $$"] },
    ]}));
    assert!(
        world.observe(launch.attempt).await.replicas.is_empty(),
        "never started, so no replicas"
    );
    world.runtime.start(&launch).await.expect("started");
    let exits = world.ends(launch.attempt).await;
    assert_eq!(
        exits.iter().map(|exit| (exit.code, exit.signal)).collect::<Vec<_>>(),
        [(Some(0), None), (Some(7), None), (None, Some(9)),]
    );
    assert!(
        exits
            .iter()
            .all(|exit| !exit.oom && !exit.unknown && !exit.stop_requested),
        "{exits:?}"
    );
    assert_eq!(world.stdout(launch.attempt, "good-0").await, "out\n");
    assert_eq!(world.output(launch.attempt, "good-0", LogStream::Stderr).await, "err\n");
    assert!(
        world
            .output_states(launch.attempt)
            .await
            .iter()
            .all(|state| state.ended)
    );

    assert_eq!(world.runtime.attempts().await.expect("listed"), [launch.attempt]);
    world.runtime.release(launch.attempt).await.expect("released");
    world.runtime.release(launch.attempt).await.expect("released twice");
    assert!(world.runtime.attempts().await.expect("listed").is_empty());
    assert!(world.observe(launch.attempt).await.replicas.is_empty());
    world.assert_nothing_runs();
    for place in ["attempts", "ports", "t"] {
        let left: Vec<_> = std::fs::read_dir(world.data().join("local").join(place))
            .expect("there")
            .collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_twice_is_starting_once() {
    let mut world = World::new();
    let launch = script(2, "echo started; exec sleep 600");
    let (one, two) = tokio::join!(world.runtime.start(&launch), world.runtime.start(&launch));
    one.expect("started");
    two.expect("started");
    world.runtime.start(&launch).await.expect("started again");
    let identities = |observed: &trainyard_core::model::Observed| -> Vec<_> {
        observed
            .replicas
            .iter()
            .map(|replica| replica.identity.clone())
            .collect()
    };
    let before = identities(&world.observe(launch.attempt).await);
    world.restart();
    world.runtime.start(&launch).await.expect("started by another worker");
    assert_eq!(identities(&world.observe(launch.attempt).await), before);
    for replica in ["worker-0", "worker-1"] {
        world.says(launch.attempt, replica, "started").await;
        assert_eq!(world.stdout(launch.attempt, replica).await, "started\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_run_says_why() {
    let world = World::new();
    let launch = launch(json!({
        "code": { "inline": { "plain.txt": "text", "odd.sh": "#!/no/such/interpreter\n" } },
        "roles": [
            { "name": "a", "command": ["no-such-program-anywhere"] },
            { "name": "b", "command": ["./plain.txt"] },
            { "name": "c", "command": ["./odd.sh"] },
            { "name": "d", "command": ["true"], "workingDir": "/no/such/folder" },
            { "name": "e", "command": ["./plain.txt"], "workingDir": "inner" },
        ],
    }));
    world
        .runtime
        .start(&launch)
        .await
        .expect("the failures are the replicas' own");
    let observed = world.observe(launch.attempt).await;
    let reasons: Vec<_> = observed
        .replicas
        .iter()
        .map(|replica| match &replica.state {
            ReplicaState::StartFailed { reason, message, .. } => (reason.as_str(), message.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "command_not_found",
        "not_executable",
        "interpreter_not_found",
        "working_folder",
        "command_not_found",
    ];
    assert_eq!(
        reasons.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(),
        expected,
        "{reasons:?}"
    );
    assert!(
        reasons[0].1.contains("'no-such-program-anywhere' in PATH (/"),
        "{}",
        reasons[0].1
    );
    // A failed start is final: another start changes nothing.
    world.runtime.start(&launch).await.expect("nothing to do");
    assert_eq!(world.observe(launch.attempt).await.replicas, observed.replicas);
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_finds_its_environment_and_nothing_of_ours() {
    let world = World::new();
    let mut launch = launch(json!({
        "labels": { "a": "b" },
        "env": { "GREETING": "job", "TOKEN": { "secretRef": { "name": "keys", "key": "hub" } } },
        "roles": [{
            "name": "worker",
            "command": ["sh", "-c", "env; id -un; pwd; cat sub/note.txt; echo x > $TMPDIR/t && echo tmp-ok; cat /proc/$PPID/comm"],
            "env": { "GREETING": "role", "CUDA_VISIBLE_DEVICES": "0,1,2,3" },
        }],
        "code": { "inline": { "sub/note.txt": "a note\n" } },
    }));
    launch
        .secrets
        .insert(("keys".into(), "hub".into()), SecretValue("s3cr3t-value".into()));
    world.runtime.start(&launch).await.expect("started");
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(0));
    let said = world.stdout(launch.attempt, "worker-0").await;
    let names: BTreeSet<&str> = said.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let known = [
        "PATH",
        "HOME",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "LANG",
        "PYTHONUNBUFFERED",
        "OMP_NUM_THREADS",
        "GREETING",
        "TOKEN",
        "CUDA_VISIBLE_DEVICES",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    let strangers: Vec<_> = names
        .iter()
        .filter(|name| !name.starts_with("TRAINYARD_") && !known.contains(name))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    for line in [
        "GREETING=role",
        "TOKEN=s3cr3t-value",
        "CUDA_VISIBLE_DEVICES=",
        "PYTHONUNBUFFERED=1",
        "a note",
        "tmp-ok",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} is missing in {said}");
    }
    if nix::unistd::geteuid().is_root() {
        assert!(
            said.contains("\ntrainyard\n"),
            "as root replicas run as their own account: {said}"
        );
        assert!(!world.runtime.facts().one_trust_domain);
    } else {
        assert!(world.runtime.facts().one_trust_domain);
    }
    // The secret is in no file of ours but the program's own output.
    let folder = world.replica(launch.attempt, "worker-0");
    for entry in std::fs::read_dir(folder.path()).expect("there").flatten() {
        if entry.file_type().expect("known").is_file() && entry.file_name() != "stdout" {
            let text = String::from_utf8_lossy(&std::fs::read(entry.path()).expect("read")).into_owned();
            assert!(!text.contains("s3cr3t-value"), "{:?}", entry.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_shared_by_a_jobs_attempts_and_go_with_the_job() {
    let world = World::new();
    let document = json!({ "roles": [{
        "name": "worker",
        "command": ["sh", "-c", "cat data/kept 2>/dev/null; echo kept > $TRAINYARD_VOLUME_CHECK_POINTS/kept; ls $TRAINYARD_VOLUME_HOST"],
        "volumes": [
            { "name": "check-points", "mountPath": "data", "source": { "job": {} } },
            { "name": "host", "mountPath": "/anywhere", "source": { "hostPath": { "path": "/proc/sys" } } },
        ],
    }]});
    let first = launch(document.clone());
    world.runtime.start(&first).await.expect("started");
    assert_eq!(world.ends(first.attempt).await[0].code, Some(0));
    let mut second = launch(document);
    second.job = first.job;
    world.runtime.start(&second).await.expect("started");
    assert_eq!(world.ends(second.attempt).await[0].code, Some(0));
    let said = world.stdout(second.attempt, "worker-0").await;
    assert!(said.starts_with("kept\n") && said.contains("kernel"), "{said}");
    // Releasing an attempt follows no link.
    world.runtime.release(first.attempt).await.expect("released");
    world.runtime.release(second.attempt).await.expect("released");
    let volumes = world.data().join("local/volumes");
    assert!(volumes.join(first.job.to_string()).join("check-points/kept").exists());
    world.runtime.release_job(first.job).await.expect("released");
    assert_eq!(std::fs::read_dir(volumes).expect("there").count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_this_machine_cannot_do_is_refused_in_words() {
    let world = World::new();
    let role = |extra: serde_json::Value| {
        let mut role = json!({ "name": "worker", "command": ["true"] });
        role.as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        json!([role])
    };
    let claim = json!({ "volumes": [{ "name": "v", "mountPath": "x", "source": { "claim": { "name": "pvc" } } }] });
    let host =
        json!({ "volumes": [{ "name": "v", "mountPath": "x", "source": { "hostPath": { "path": "/no/where" } } }] });
    let secret = json!({ "env": { "A": { "secretRef": { "name": "gone", "key": "k" } } } });
    let cases = [
        (
            json!({ "roles": role(claim) }),
            "roles[0].volumes[0].source.claim: 'pvc'",
        ),
        (
            json!({ "roles": role(host) }),
            "'/no/where' is no folder of this machine",
        ),
        (json!({ "roles": role(secret) }), "the secret 'gone' has no key 'k'"),
        (
            json!({ "roles": role(json!({})), "code": { "inline": { "../out": "x" } } }),
            "'../out' must be a relative path",
        ),
    ];
    for (document, words) in cases {
        let launch = launch(document);
        match world.runtime.start(&launch).await {
            Err(RuntimeError::Refused { message, .. }) => assert!(message.contains(words), "{message}"),
            other => panic!("{words}: {other:?}"),
        }
        world.runtime.release(launch.attempt).await.expect("released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_short_attempts_at_once_all_end_once_and_share_no_port() {
    let world = World::new();
    let launches: Vec<_> = (0..200).map(|_| script(1, "echo $TRAINYARD_MASTER; exit 3")).collect();
    let starts = launches.iter().map(|launch| world.runtime.start(launch));
    for outcome in futures::future::join_all(starts).await {
        outcome.expect("started");
    }
    let mut masters = BTreeSet::new();
    for launch in &launches {
        assert_eq!(world.ends(launch.attempt).await[0].code, Some(3));
        let said = world.stdout(launch.attempt, "worker-0").await;
        assert_eq!(said.lines().count(), 1, "it ran once: {said}");
        assert!(masters.insert(said.clone()), "{said} twice");
    }
    for launch in &launches {
        world.runtime.release(launch.attempt).await.expect("released");
    }
    world.assert_nothing_runs();
    assert_eq!(world.cgroups(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_the_server_raised_for_itself_is_not_handed_on() {
    let world = World::with(|options| options.open_files = Some(321));
    let launch = script(1, "ulimit -Sn; ulimit -Hn");
    world.runtime.start(&launch).await.expect("started");
    world.ends(launch.attempt).await;
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("a limit");
    let most = match most {
        u64::MAX => "unlimited".to_owned(),
        most => most.to_string(),
    };
    assert_eq!(world.stdout(launch.attempt, "worker-0").await, format!("321\n{most}\n"));
}
