//! The commands for people, each a few calls of the library.

use clap::Subcommand;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_testbed::cluster::{Options, Testbed};
use trainyard_testbed::error::Doing;
use trainyard_testbed::faults::proxy::{Fault as ProxyFault, FaultProxy, Rule};
use trainyard_testbed::faults::{api, nodes, quota, token, webhook::Refusal};
use trainyard_testbed::layout::{Layout, MAX_INSTANCES, NODES};
use trainyard_testbed::load::record::Recording;
use trainyard_testbed::{Error, Result, build as building, guard, leftovers as left, load, machine};

#[derive(Subcommand)]
pub enum Fault {
    /// The kubelet stops, its containers go on
    StopKubelet {
        #[arg(value_parser = NODES)]
        node: String,
    },
    /// Brings a stopped kubelet back
    StartKubelet {
        #[arg(value_parser = NODES)]
        node: String,
    },
    /// The node dies with everything on it
    KillNode {
        #[arg(value_parser = NODES)]
        node: String,
    },
    /// A killed node comes back empty
    ReviveNode {
        #[arg(value_parser = NODES)]
        node: String,
    },
    /// Kills the API server and waits until it is back: every watch and request breaks
    RestartApi,
    /// Compacts etcd and restarts the API server: watches from before get 410
    ForgetHistory,
    /// Prints a kubeconfig with a service account's token, which is answered 401 when its time is over (up to ten seconds later)
    ExpiringToken {
        #[arg(long, default_value = "default")]
        namespace: String,
        /// It may do what its role bindings say: until then, one without any is answered 403
        #[arg(long, default_value = "default")]
        account: String,
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Sets a node's condition, e.g. AcceleratedHardwareReady False NvidiaXID79Error
    SetCondition {
        node: String,
        kind: String,
        status: String,
        reason: String,
    },
    /// Takes a condition away again
    ClearCondition { node: String, kind: String },
    /// Gives a node devices, e.g. nvidia.com/gpu 8; 0 takes them away
    SetDevices { node: String, resource: String, count: u32 },
    /// Leaves so many allocatable; capacity stays
    LoseDevices { node: String, resource: String, left: u32 },
    /// Allows so much of one resource in a namespace, e.g. pods 0, in place of what this allowed before
    Quota {
        namespace: String,
        resource: String,
        hard: String,
    },
    /// Takes the namespace's quota away again
    LiftQuota { namespace: String },
    /// Refuses a resource's creation in a namespace by webhook, until interrupted
    Refuse {
        namespace: String,
        /// In the plural, e.g. pods
        resource: String,
        /// The resource's API group, e.g. apps
        #[arg(default_value = "*")]
        group: String,
    },
    /// A proxy in front of the API server that treats requests badly, until interrupted
    Proxy {
        /// delay:MILLISECONDS, cut (no answer), cut-after:BYTES, before:CODE (the API server never hears of it), after:CODE (it was done)
        #[arg(value_parser = parse)]
        kind: ProxyFault,
        /// Meets this method alone, e.g. POST
        #[arg(long, default_value = "")]
        method: String,
        /// Meets requests with this in their path or query, e.g. watch=true
        #[arg(long, default_value = "/")]
        path: String,
        /// Meets so many, and lets the rest pass
        #[arg(long)]
        times: Option<u32>,
    },
}

#[derive(Subcommand)]
pub enum Watch {
    /// Records the list and the watch of a path
    Record {
        #[arg(long, default_value_t = 0, value_parser = crate::number)]
        instance: u8,
        /// As the API server knows it, e.g. /api/v1/pods
        path: String,
        /// Where to keep the recording
        file: PathBuf,
        /// How long; an interruption ends it sooner
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Serves a recording, without an API server, until interrupted
    Replay {
        /// A recording
        file: PathBuf,
        /// 1 is the time it took, 0 without waiting
        #[arg(long, default_value_t = 1.0)]
        pace: f64,
    },
}

fn say(line: &str) {
    eprintln!("testbed: {line}");
}

pub fn build() -> Result<ExitCode> {
    machine::check()?;
    building::all(&say)?;
    Ok(ExitCode::SUCCESS)
}

/// What it means for an instance to be replaced.
const LOST: &str = "its pods, and all that was stored in it, are lost";

pub async fn up(mut options: Options, pods: usize) -> Result<ExitCode> {
    machine::check()?;
    let layout = Layout::new(options.instance.unwrap_or(0));
    // Whoever comes in the middle of a start would take it for one that was broken off.
    let _alone = guard::starting(layout, &say)?;
    if guard::runs(layout)? {
        match Testbed::attach(layout.number) {
            Ok(testbed) if !testbed.options.like(&options) => {
                return Err(Error::Refused(format!(
                    "instance {0} runs with other options ({1}), not with those that were asked for ({options}); end it with \
                     `tests/testbed/down --instance {0}`, or take another number",
                    layout.number, testbed.options
                )));
            }
            Ok(testbed) if testbed.missing().is_empty() && testbed.api_ready().await => {
                println!("instance {} runs already", layout.number);
                return show(&testbed);
            }
            Ok(testbed) => {
                for (space, program) in testbed.missing() {
                    say(&format!("{program} is missing on {space}"));
                }
                match testbed.mend().await {
                    Ok(()) => {
                        println!("instance {} is mended", layout.number);
                        return show(&testbed);
                    }
                    Err(error) => say(&format!("cannot be mended ({error}), so it is replaced: {LOST}")),
                }
                options = testbed.options.clone();
                guard::end(layout)?;
            }
            Err(_) => {
                say("a start that was not finished is replaced");
                guard::end(layout)?;
            }
        }
    } else if layout.options().exists() {
        say(&format!(
            "instance {} was killed together with its guard, so it is replaced: {LOST}",
            layout.number
        ));
    }
    if pods > 0 {
        let (testbed, filled) = load::snapshot::filled(options, pods, false, &say).await?;
        say(&filled.map_or("filled from a snapshot".into(), |filled| format!("filled: {filled:?}")));
        return show(&testbed);
    }
    show(&Testbed::start_with(options, false, &say).await?)
}

fn show(testbed: &Testbed) -> Result<ExitCode> {
    let options = &testbed.options;
    println!("profile     {:?}", options.profile);
    println!(
        "nodes       {} real, {} fake",
        testbed.nodes().len(),
        options.fake_nodes
    );
    println!("API server  {}", testbed.layout.api_url());
    println!("logs        {}/*/log", testbed.layout.dir().display());
    println!("export KUBECONFIG={}", testbed.kubeconfig().display());
    Ok(ExitCode::SUCCESS)
}

pub fn down(instance: Option<u8>, all: bool) -> Result<ExitCode> {
    machine::check()?;
    let numbers: Vec<u8> = if all {
        (0..MAX_INSTANCES).collect()
    } else {
        vec![instance.unwrap_or(0)]
    };
    for number in numbers {
        let layout = Layout::new(number);
        // An `up` may be at work that has nothing to show yet.
        let _alone = match layout.starting().exists() {
            true => Some(guard::starting(layout, &say)?),
            false => None,
        };
        if guard::runs(layout)? || layout.dir().exists() {
            guard::end(layout)?;
            println!("instance {number} is down");
        } else if !all {
            guard::only_here(layout)?;
        }
    }
    leftovers()
}

pub fn leftovers() -> Result<ExitCode> {
    let found = left::find()?;
    for line in &found {
        println!("left: {line}");
    }
    if found.is_empty() {
        println!("left: nothing");
    }
    Ok(if found.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

pub async fn status() -> Result<ExitCode> {
    let running = left::running()?;
    if running.is_empty() {
        println!("no instance runs");
    }
    for number in running {
        println!("instance {number}");
        let layout = Layout::new(number);
        if guard::unfinished(layout)? {
            println!("its start was broken off; `tests/testbed/up --instance {number}` starts it anew");
            continue;
        } else if !layout.options().exists() {
            println!("is starting");
            continue;
        }
        let testbed = Testbed::attach(number)?;
        show(&testbed)?;
        for (space, program) in testbed.missing() {
            println!("missing     {program} on {space}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn enter(instance: u8, space: &str, command: &[String]) -> Result<ExitCode> {
    let testbed = running(instance)?;
    let space = match space {
        guard::CONTROL => testbed.control(),
        node => testbed.living_node(node)?,
    };
    let mut line = space.enter()?;
    line.extend_from_slice(command);
    let error = trainyard_testbed::command::command(line).exec();
    Err(Error::Io {
        doing: "cannot run nsenter".into(),
        source: error,
    })
}

/// An instance with a control plane that can be asked for something.
fn running(instance: u8) -> Result<Testbed> {
    let testbed = Testbed::attach(instance)?;
    if !testbed.control().alive() {
        return Err(Error::Refused(format!(
            "the control plane of instance {instance} is killed; `tests/testbed/up --instance {instance}` replaces the instance: {LOST}"
        )));
    }
    Ok(testbed)
}

pub async fn fault(instance: u8, fault: Fault) -> Result<ExitCode> {
    let testbed = running(instance)?;
    let client = testbed.client().await?;
    match fault {
        Fault::StopKubelet { node } => nodes::stop_kubelet(&testbed, &node)?,
        Fault::StartKubelet { node } => nodes::start_kubelet(&testbed, &node)?,
        Fault::KillNode { node } => nodes::kill_node(&testbed, &node)?,
        Fault::ReviveNode { node } => nodes::revive_node(&testbed, &node)?,
        Fault::RestartApi => api::restart_api_server(&testbed).await?,
        Fault::ForgetHistory => api::forget_history(&testbed).await?,
        Fault::ExpiringToken {
            namespace,
            account,
            seconds,
        } => {
            let token = token::expiring(&testbed, &client, &namespace, &account, Duration::from_secs(seconds)).await?;
            println!(
                "{}",
                trainyard_testbed::certs::kubeconfig_with_token(testbed.layout, &testbed.layout.api_url(), &token)?
            );
        }
        Fault::SetCondition {
            node,
            kind,
            status,
            reason,
        } => nodes::set_condition(&client, &node, &kind, &status, &reason, "set by the testbed").await?,
        Fault::ClearCondition { node, kind } => nodes::clear_condition(&client, &node, &kind).await?,
        Fault::SetDevices { node, resource, count } => nodes::set_devices(&client, &node, &resource, count).await?,
        Fault::LoseDevices { node, resource, left } => nodes::lose_devices(&client, &node, &resource, left).await?,
        Fault::Quota {
            namespace,
            resource,
            hard,
        } => quota::limit(&client, &namespace, &resource, &hard).await?,
        Fault::LiftQuota { namespace } => quota::lift(&client, &namespace).await?,
        Fault::Refuse {
            namespace,
            resource,
            group,
        } => {
            // The API server takes a webhook for anything, and never asks it about what is not there.
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let found = namespaces.get(&namespace).await;
            found.doing("cannot refuse anything in that namespace")?;
            let there = testbed.kubectl(&["api-resources", "--no-headers", "--output=name"])?;
            let mut there: Vec<_> = there.lines().filter_map(|line| line.split('.').next()).collect();
            there.sort_unstable();
            there.dedup();
            if !there.contains(&resource.as_str()) {
                let there = there.join(", ");
                return Err(Error::Refused(format!(
                    "there is no resource {resource}; there are {there}"
                )));
            }
            let interrupted = interruption()?;
            let refusal = Refusal::start(
                &testbed,
                &client,
                &namespace,
                &group,
                &resource,
                "refused by the testbed",
            )
            .await?;
            println!("refusing new {resource} in {namespace}; Ctrl-C ends it");
            interrupted.await;
            println!("refused {}", refusal.asked());
            refusal.lift().await?;
        }
        Fault::Proxy {
            kind,
            method,
            path,
            times,
        } => {
            let interrupted = interruption()?;
            let proxy = FaultProxy::start(&testbed).await?;
            proxy.add(Rule {
                times,
                ..Rule::new(&method, &path, kind)
            });
            println!("kubectl --server={} ...; Ctrl-C ends it", proxy.url);
            interrupted.await;
            let log = proxy.log();
            let met = log.iter().filter(|(_, fault)| fault.is_some()).count();
            println!("{} requests, {met} of them met the fault", log.len());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(kind: &str) -> std::result::Result<ProxyFault, &'static str> {
    let (name, value) = kind.split_once(':').unwrap_or((kind, ""));
    let number = value.parse::<u32>().map_err(|_| "a number is wanted after a colon");
    let code = || {
        number
            .ok()
            .and_then(|n| u16::try_from(n).ok())
            .filter(|n| (400..600).contains(n))
    };
    let code = || code().ok_or("a code from 400 to 599 is wanted after a colon");
    Ok(match name {
        "delay" => ProxyFault::Delay(Duration::from_millis(number?.into())),
        "cut" if value.is_empty() => ProxyFault::Cut,
        "cut-after" => ProxyFault::CutAfter(number? as usize),
        "before" => ProxyFault::AnswerBefore(code()?),
        "after" => ProxyFault::AnswerAfter(code()?),
        _ => return Err("there are delay:MILLISECONDS, cut, cut-after:BYTES, before:CODE and after:CODE"),
    })
}

pub async fn watch(watch: Watch) -> Result<ExitCode> {
    match watch {
        Watch::Record {
            instance,
            path,
            file,
            seconds,
        } => {
            let client = running(instance)?.client().await?;
            // Better now than when there is something to lose.
            let open = std::fs::File::options().create(true).append(true).open(&file);
            open.doing(format!("cannot write {}", file.display()))?;
            let interrupted = interruption()?;
            let end = async {
                let _ = tokio::time::timeout(Duration::from_secs(seconds), interrupted).await;
            };
            let ready = || say(&format!("recording for {seconds} s; Ctrl-C ends it sooner"));
            let recording = Recording::take(&client, &path, usize::MAX, end, ready).await?;
            recording.save(&file)?;
            println!("{} events in {}", recording.len(), file.display());
        }
        Watch::Replay { file, pace } => {
            let interrupted = interruption()?;
            let replay = Recording::load(&file)?.replay(pace).await?;
            println!(
                "whatever is asked of {0} is answered with the recorded list, and `curl -N '{0}/?watch=1'` with what came after it; kubectl needs \
                 `get --raw`. Ctrl-C ends it",
                replay.url
            );
            interrupted.await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn hold(number: u8) -> Result<ExitCode> {
    let options = Options {
        instance: Some(number),
        ..Options::new(trainyard_testbed::Profile::Bare)
    };
    let interrupted = interruption()?;
    let _testbed = Testbed::start(options).await?;
    println!("held");
    interrupted.await;
    Ok(ExitCode::SUCCESS)
}

/// Ctrl-C, or whoever ends programs in an orderly way. Caught from this call on, so that what is set up after it is also taken down.
fn interruption() -> Result<impl Future<Output = ()>> {
    let on = |kind| signal(kind).doing("cannot wait for signals");
    let mut interrupt = on(SignalKind::interrupt())?;
    let mut terminate = on(SignalKind::terminate())?;
    let mut hangup = on(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
