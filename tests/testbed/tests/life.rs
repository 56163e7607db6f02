//! An instance's life: side by side with another, half dead and mended, ended, and killed in every way. Nothing may stay.

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{in_namespace, on, pod, tell};
use tokio::sync::Mutex;
use trainyard_testbed::layout::{Layout, NODES};
use trainyard_testbed::{Options, Profile, Testbed, guard, leftovers};

/// The machine takes the instances of one test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// What an instance could change about the machine itself, looked at without knowing how instances name things.
fn machine() -> BTreeSet<String> {
    let looks = [
        "cut -d' ' -f5 /proc/self/mountinfo",
        "ip -o link show | cut -d: -f2 | cut -d@ -f1",
        "ip -4 route show table all | grep -v ^broadcast",
        "ip netns list",
        "iptables-save | grep -E '^[:-]' | sed 's/ \\[.*//'",
        "ipset list -name",
        "find /sys/fs/cgroup -maxdepth 2 -type d -name '*testbed*' -o -maxdepth 2 -type d -name '*trainyard*' -o -maxdepth 2 -type d -name 'kube*'",
        "ls -d /var/lib/kubelet /var/lib/cni /run/containerd/io.containerd.* /var/log/pods",
        "ls -A /var/lib/trainyard-testbed | grep -v '[.]lock$'",
    ];
    let look = |line: &&str| {
        let out = Command::new("sh").args(["-c", line]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.lines().map(|found| format!("{line}: {found}")).collect::<Vec<_>>()
    };
    looks.iter().flat_map(look).collect()
}

/// Waits until what is left is nothing, by the testbed's own account and by the machine's; the kernel takes a moment to end a namespace.
fn assert_nothing_left(before: &BTreeSet<String>) {
    let started = Instant::now();
    loop {
        let mut found = leftovers::find().unwrap();
        found.extend(machine().difference(before).cloned());
        if found.is_empty() {
            println!("left: nothing, and the machine's mounts, links, routes, chains, sets and cgroups are as before");
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "left: {found:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_side_by_side_do_not_meet() {
    let _turn = TURN.lock().await;
    let before = machine();
    let (one, two) = tokio::join!(
        Testbed::start(Options::new(Profile::Bare)),
        Testbed::start(Options::new(Profile::Bare))
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.layout.number, two.layout.number);
    for testbed in [&one, &two] {
        in_namespace(testbed, "same", |place| async move {
            for node in NODES {
                let number = testbed.layout.number.to_string();
                place
                    .create(on(pod(&format!("on-{node}"), &["echo", &number]), node))
                    .await;
            }
            for node in NODES {
                place.phase(&format!("on-{node}"), "Succeeded").await;
                assert_eq!(
                    place.log(&format!("on-{node}")).await.trim(),
                    testbed.layout.number.to_string()
                );
            }
        })
        .await;
    }
    let started = Instant::now();
    one.down().unwrap();
    tell("down of one of two", started.elapsed());
    // The other does not notice.
    assert!(two.missing().is_empty() && two.api_ready().await);
    two.down().unwrap();
    assert_nothing_left(&before);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_component_killed_in_turn_is_missed_and_mended_and_nothing_is_left() {
    let _turn = TURN.lock().await;
    let before = machine();
    let testbed = Testbed::start(Options::new(Profile::Bare)).await.unwrap();
    let mut killed = 0;
    for space in [testbed.control(), testbed.node("node-1"), testbed.node("node-2")] {
        for program in space.programs().unwrap() {
            space.stop(&program.name, 9).unwrap();
            let expected = (space.name.clone(), program.name.clone());
            // kube-proxy beside the API server is the one that nothing looks for.
            let missed = testbed.missing().contains(&expected);
            assert!(
                missed || expected == ("control".into(), "kube-proxy".into()),
                "{expected:?} is not missed"
            );
            println!(
                "killed {} on {}: {}",
                program.name,
                space.name,
                if missed { "missed" } else { "nobody looks for it" }
            );
            killed += 1;
        }
        testbed.mend().await.unwrap();
        assert_eq!(testbed.missing(), []);
        println!("{} is mended", space.name);
    }
    assert_eq!(killed, 7 + 4 + 4);
    testbed.down().unwrap();
    assert_nothing_left(&before);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_inits_and_a_killed_guard_leave_no_process_and_down_clears_the_rest() {
    let _turn = TURN.lock().await;
    let before = machine();
    let testbed = Testbed::start(Options::new(Profile::Bare)).await.unwrap();
    let layout = testbed.layout;
    in_namespace(&testbed, "running", |place| async move {
        for node in NODES {
            place
                .create(on(pod(&format!("on-{node}"), &["sleep", "7777"]), node))
                .await;
            place.phase(&format!("on-{node}"), "Running").await;
        }
    })
    .await;
    kill(Pid::from_raw(testbed.node("node-1").pid().unwrap()), Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(testbed.control().pid().unwrap()), Signal::SIGKILL).unwrap();
    let guard_pid = std::fs::read_to_string(layout.dir().join("guard.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(Pid::from_raw(guard_pid), Signal::SIGKILL).unwrap();
    let started = Instant::now();
    while guard::runs(layout).unwrap() || leftovers::find().unwrap().iter().any(|l| l.starts_with("process")) {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{:#?}",
            leftovers::find().unwrap()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tell("guard killed, every process gone after", started.elapsed());
    assert!(
        !leftovers::find().unwrap().is_empty(),
        "folder and cgroups are left for down to clear"
    );
    testbed.down().unwrap();
    assert_nothing_left(&before);
}

#[test]
fn an_owner_that_is_killed_takes_everything_along() {
    let _turn = TURN.blocking_lock();
    let before = machine();
    let program = env!("CARGO_BIN_EXE_testbed");
    let mut owner = Command::new(program)
        .args(["hold", "15"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "held\n");
    let layout = Layout::new(15);
    assert!(guard::runs(layout).unwrap());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let started = Instant::now();
    while guard::runs(layout).unwrap() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the instance outlives its owner"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    tell("owner killed, instance gone after", started.elapsed());
    assert_nothing_left(&before);
}

/// An instance that people start outlives the command, so a failing test must end it.
struct Down(u8);

impl Drop for Down {
    fn drop(&mut self) {
        let _ = guard::end(Layout::new(self.0));
    }
}

#[test]
fn commands_for_people_say_what_they_did() {
    let _turn = TURN.blocking_lock();
    let before = machine();
    let program = env!("CARGO_BIN_EXE_testbed");
    let run = |words: &[&str]| {
        let out = Command::new(program).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success(),
            "{words:?}: {text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        text
    };
    let refused = |command: &mut Command, sentences: &[&str]| {
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
        assert!(!out.status.success(), "{command:?}: {text}");
        for sentence in sentences {
            assert!(text.contains(sentence), "{command:?}: {sentence}: {text}");
        }
    };
    let _down = Down(14);
    let up = ["up", "--instance", "14", "--no-real-nodes", "--nodes", "12"];
    // A start that nobody will finish is left over, and said.
    let mut broken_off = Command::new(program).args(up).spawn().unwrap();
    while !Layout::new(14).built().exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    broken_off.kill().unwrap();
    broken_off.wait().unwrap();
    refused(
        Command::new(program).arg("leftovers"),
        &["left: unfinished start of instance 14"],
    );
    assert!(run(&["status"]).contains("its start was broken off"));
    // Two at the same moment: one starts it, the other waits and finds it there.
    let mut told = std::thread::scope(|scope| [(), ()].map(|()| scope.spawn(|| run(&up))).map(|up| up.join().unwrap()));
    told.sort();
    let [again, first] = told;
    assert!(
        first.starts_with("profile ") && first.contains("export KUBECONFIG=") && first.contains("0 real, 12 fake"),
        "{first}"
    );
    assert!(again.starts_with("instance 14 runs already\n"), "{again}");
    // What runs is not what is asked for now: said, and not passed off as done.
    refused(
        Command::new(program).args(&up[..3]),
        &["12 fake nodes", "down --instance 14"],
    );
    // Nor can another state folder have the number: refused before anything is touched, by `down` too.
    let folder = format!("/tmp/testbed-elsewhere-{}", std::process::id());
    let elsewhere = |words: &[&str], sentences: &[&str]| {
        refused(
            Command::new(program)
                .args(words)
                .env("TRAINYARD_TESTBED_STATE", &folder),
            sentences,
        );
    };
    let way_out = [
        "under another state folder, /var/lib/trainyard-testbed ",
        "down --instance 14`",
    ];
    elsewhere(&up, &way_out);
    elsewhere(&["down", "--instance", "14"], &way_out);
    elsewhere(&["fault", "restart-api", "--instance", "14"], &way_out);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(run(&up).starts_with(
        "instance 14 runs already
"
    ));
    faults_are_refused_in_words(&|words, sentences| {
        refused(
            Command::new(program)
                .arg("fault")
                .args(words)
                .args(["--instance", "14"]),
            sentences,
        );
    });
    what_waits_for_an_end_leaves_nothing(program);
    let inside = |words: &str| run(&["enter", "--instance", "14", "control", "sh", "-c", words]);
    assert!(inside("ip -brief address show host").contains("10.134.128.1/30"));
    // Half dead: mended, and said.
    let pid = inside("pgrep -x kube-scheduler");
    // A kill is asked for in an instant and takes longer on a busy machine.
    inside(&format!(
        "kill -9 {0}; while kill -0 {0} 2>/dev/null; do sleep 0.02; done",
        pid.trim()
    ));
    let second = run(&up);
    assert!(second.starts_with("instance 14 is mended\n"), "{second}");
    assert!(run(&["status"]).contains("instance 14\n"));
    // The whole control plane gone: replaced.
    kill(
        Pid::from_raw(
            trainyard_testbed::space::Space::new("control", Layout::new(14).space_dir("control"))
                .pid()
                .unwrap(),
        ),
        Signal::SIGKILL,
    )
    .unwrap();
    refused(
        Command::new(program).args(["fault", "restart-api", "--instance", "14"]),
        &["control plane of instance 14 is killed", "up --instance 14"],
    );
    // `down` during that `up` waits for it.
    std::thread::scope(|scope| {
        let replaced = scope.spawn(|| run(&up));
        while guard::try_starting(Layout::new(14)).unwrap().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(run(&["down", "--instance", "14"]).contains("instance 14 is down\n"));
        assert!(replaced.join().unwrap().starts_with("profile "), "a new one is shown");
    });
    refused(
        Command::new(program).args(["fault", "--instance", "14", "restart-api"]),
        &["instance 14 does not run; `tests/testbed/up --instance 14` starts it"],
    );
    assert_nothing_left(&before);
}

/// On an instance of fake nodes alone.
fn faults_are_refused_in_words(refused: &dyn Fn(&[&str], &[&str])) {
    refused(&["kill-node", "node-3"], &["possible values: node-1, node-2"]);
    refused(&["start-kubelet", "node-1"], &["instance 14 has no real nodes"]);
    let nodes = [
        "nodes \"node-3\" not found; there are fake-00000, fake-00001",
        ", 8 more",
    ];
    refused(&["set-condition", "node-3", "Ready", "False", "Reason"], &nodes);
    refused(&["set-devices", "node-3", "nvidia.com/gpu", "8"], &nodes);
    refused(
        &["quota", "nowhere", "pods", "0"],
        &["cannot set a quota: namespaces \"nowhere\" not found\n"],
    );
    refused(
        &["refuse", "default", "pod"],
        &["there is no resource pod; there are", " pods"],
    );
    refused(&["proxy", "before:99"], &["a code from 400 to 599"]);
    refused(&["proxy", "nonsense"], &["delay:MILLISECONDS, cut"]);
}

/// A webhook that outlives whoever serves it would refuse everything from then on; a recording that is cut short is still one.
fn what_waits_for_an_end_leaves_nothing(program: &str) {
    let start = |words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .args(["--instance", "14"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let terminate = |child: std::process::Child| {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let kubectl = |words: &[&str]| Testbed::attach(14).unwrap().kubectl(words).map_err(|e| e.to_string());
    let said = |from: &mut dyn std::io::Read, what: &str| {
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line).unwrap();
        assert!(line.contains(what), "{line}");
    };
    let refuse = || {
        let mut child = start(&["fault", "refuse", "default", "configmaps"]);
        said(child.stdout.as_mut().unwrap(), "refusing new configmaps in default");
        child
    };
    // Every namespace gets this one from the control plane, which would be refused as well.
    kubectl(&["wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=60s"]).unwrap();
    // One that was killed is replaced by the next, and that one ends as it should.
    let mut killed = refuse();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let second = refuse();
    let answer = kubectl(&["create", "configmap", "refused"]).unwrap_err();
    assert!(answer.contains("refused by the testbed"), "{answer}");
    assert_eq!(terminate(second), "refused 1\n");

    let file = std::env::temp_dir().join(format!("testbed-{}.jsonl", std::process::id()));
    let path = "/api/v1/namespaces/default/configmaps";
    kubectl(&["create", "configmap", "taken"]).unwrap();
    let mut record = start(&["watch", "record", path, file.to_str().unwrap()]);
    said(record.stderr.as_mut().unwrap(), "recording for 60 s");
    let told = terminate(record);
    assert!(told.contains(" events in "), "{told}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"taken\""));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_is_missing_is_told_with_the_line_that_helps() {
    let program = env!("CARGO_BIN_EXE_testbed");
    let told = |command: &mut Command| String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    // An empty PATH has none of the programs; the two folders that are looked in besides are hidden by a mount namespace.
    let hidden = "mount -t tmpfs tmpfs /usr/sbin; exec env PATH=/nowhere \"$0\" up --instance 14";
    let text = told(Command::new("unshare").args(["--mount", "sh", "-c", hidden, program]));
    assert!(
        text.contains("apt-get install -y --no-install-recommends containerd runc"),
        "{text}"
    );
    // A state folder without room, and in it what is left of an instance whose guard was killed.
    let small = "mount -t tmpfs -o size=20m tmpfs /mnt; mkdir /mnt/14; touch /mnt/14/testbed.json
                 exec env TRAINYARD_TESTBED_STATE=/mnt \"$0\" up --instance 14";
    let text = told(Command::new("unshare").args(["--mount", "sh", "-c", small, program]));
    assert!(
        text.contains("instance 14 was killed") && text.contains("its pods, and all that was stored in it, are lost"),
        "{text}"
    );
    assert!(text.contains("300 MB are needed in /mnt, and 20 MB are free"), "{text}");
    let small = "mount -t tmpfs -o size=20m tmpfs /mnt; TRAINYARD_TESTBED_CACHE=/mnt exec \"$0\" build";
    let text = told(Command::new("unshare").args(["--mount", "sh", "-c", small, program]));
    assert!(text.contains("18000 MB are needed in /mnt"), "{text}");
    let text = told(Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "--", program, "up"]));
    assert!(text.contains("root is missing; run it with sudo"), "{text}");
}

#[test]
fn every_command_says_what_it_does() {
    for group in [&[] as &[&str], &["fault"], &["watch"]] {
        let out = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .args(group)
            .arg("--help")
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let commands = text
            .split("Commands:\n")
            .nth(1)
            .and_then(|rest| rest.split("\n\n").next())
            .unwrap();
        assert!(commands.lines().count() > 2, "{text}");
        for line in commands.lines() {
            assert!(line.split_whitespace().count() > 2, "{group:?}: {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_its_logs() {
    let _turn = TURN.lock().await;
    let before = machine();
    let _down = Down(13);
    let snapshot = std::env::temp_dir().join(format!("testbed-broken-{}", std::process::id()));
    // A store that cannot be opened: etcd ends at once.
    std::fs::create_dir_all(snapshot.join("member")).unwrap();
    std::fs::write(snapshot.join("member/snap"), "no folder").unwrap();
    let options = Options {
        instance: Some(13),
        snapshot: Some(snapshot.clone()),
        ..Options::new(Profile::Bare)
    };
    let error = Testbed::start(options).await.err().unwrap().to_string();
    std::fs::remove_dir_all(&snapshot).unwrap();
    assert!(
        error.contains("etcd ended") && error.contains("down --instance 13"),
        "{error}"
    );
    let layout = Layout::new(13);
    let log = layout.space_dir("control").join("log/etcd.log");
    assert!(
        error.contains(&format!("{}/*/log", layout.dir().display())) && log.exists(),
        "{error}"
    );
    assert!(!guard::runs(layout).unwrap());
    guard::end(layout).unwrap();
    assert_nothing_left(&before);
}
