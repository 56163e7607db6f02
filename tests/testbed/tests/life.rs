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
    let _down = Down(14);
    let up = ["up", "--instance", "14", "--no-real-nodes", "--nodes", "12"];
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
    let other = Command::new(program).args(&up[..3]).output().unwrap();
    let words = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && words.contains("12 fake nodes") && words.contains("down --instance 14"),
        "{words}"
    );
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
    assert!(run(&up).starts_with("profile "), "a new one is shown");
    assert!(run(&["down", "--instance", "14"]).contains("instance 14 is down\n"));
    assert_nothing_left(&before);
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
    let text = told(Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "--", program, "up"]));
    assert!(text.contains("root is missing; run it with sudo"), "{text}");
}
