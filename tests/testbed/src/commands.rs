//! The commands for people, each a few calls of the library.

use clap::Subcommand;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trainyard_testbed::cluster::{Options, Testbed};
use trainyard_testbed::faults::proxy::{Fault as ProxyFault, FaultProxy, Rule};
use trainyard_testbed::faults::{api, nodes, quota, token, webhook::Refusal};
use trainyard_testbed::layout::{Layout, MAX_INSTANCES};
use trainyard_testbed::load::record::Recording;
use trainyard_testbed::{Error, Result, build as building, guard, leftovers as left, load, machine};

#[derive(Subcommand)]
pub enum Fault {
    /// The kubelet stops, its containers go on
    StopKubelet {
        node: String,
    },
    StartKubelet {
        node: String,
    },
    /// The node dies with everything on it
    KillNode {
        node: String,
    },
    /// A killed node comes back empty
    ReviveNode {
        node: String,
    },
    RestartApi,
    /// Compacts etcd and restarts the API server: watches from before get 410
    ForgetHistory,
    /// Prints a kubeconfig whose token expires
    ExpiringToken {
        #[arg(long, default_value = "default")]
        namespace: String,
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
    ClearCondition {
        node: String,
        kind: String,
    },
    /// Gives a node devices, e.g. nvidia.com/gpu 8
    SetDevices {
        node: String,
        resource: String,
        count: u32,
    },
    /// Leaves so many allocatable; capacity stays
    LoseDevices {
        node: String,
        resource: String,
        left: u32,
    },
    /// Allows so much of a resource in a namespace, e.g. pods 0
    Quota {
        namespace: String,
        resource: String,
        hard: String,
    },
    LiftQuota {
        namespace: String,
    },
    /// Refuses a resource's creation in a namespace by webhook, until interrupted
    Refuse {
        namespace: String,
        resource: String,
        #[arg(default_value = "")]
        group: String,
    },
    /// A proxy in front of the API server, until interrupted. Kinds: delay:MS, cut, cut-after:BYTES, before:CODE, after:CODE
    Proxy {
        kind: String,
        #[arg(long, default_value = "")]
        method: String,
        #[arg(long, default_value = "/")]
        path: String,
        #[arg(long)]
        times: Option<u32>,
    },
}

#[derive(Subcommand)]
pub enum Watch {
    /// Records the list and the watch of a path, e.g. /api/v1/pods
    Record {
        #[arg(long, default_value_t = 0, value_parser = crate::number)]
        instance: u8,
        path: String,
        file: PathBuf,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Serves a recording until interrupted
    Replay {
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
                    Err(error) => say(&format!("cannot be mended ({error}), so it is replaced")),
                }
                options = testbed.options.clone();
                guard::end(layout)?;
            }
            Err(_) => {
                say("a start that was not finished is replaced");
                guard::end(layout)?;
            }
        }
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
        if guard::runs(layout)? || layout.dir().exists() {
            guard::end(layout)?;
            println!("instance {number} is down");
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
    for number in left::running()? {
        println!("instance {number}");
        if !Layout::new(number).dir().join("testbed.json").exists() {
            println!("is starting, or its start was broken off: `up` waits for the one and replaces the other");
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
    let testbed = Testbed::attach(instance)?;
    let space = if space == guard::CONTROL {
        testbed.control()
    } else {
        testbed.node(space)
    };
    let mut line = space.enter()?;
    line.extend_from_slice(command);
    let error = trainyard_testbed::command::command(line).exec();
    Err(Error::Io {
        doing: "cannot run nsenter".into(),
        source: error,
    })
}

pub async fn fault(instance: u8, fault: Fault) -> Result<ExitCode> {
    let testbed = Testbed::attach(instance)?;
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
            let refusal = Refusal::start(
                &testbed,
                &client,
                &namespace,
                &group,
                &resource,
                "refused by the testbed",
            )
            .await?;
            println!("refusing; Ctrl-C ends it");
            interrupted().await?;
            refusal.lift().await?;
        }
        Fault::Proxy {
            kind,
            method,
            path,
            times,
        } => {
            let proxy = FaultProxy::start(&testbed).await?;
            proxy.add(Rule {
                times,
                ..Rule::new(&method, &path, parse(&kind)?)
            });
            println!("kubectl --server={} ...; Ctrl-C ends it", proxy.url);
            interrupted().await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(kind: &str) -> Result<ProxyFault> {
    let (name, value) = kind.split_once(':').unwrap_or((kind, "0"));
    let bad = |_| Error::Refused(format!("{kind}: a number is wanted after the colon"));
    Ok(match name {
        "delay" => ProxyFault::Delay(Duration::from_millis(value.parse().map_err(bad)?)),
        "cut" => ProxyFault::Cut,
        "cut-after" => ProxyFault::CutAfter(value.parse().map_err(bad)?),
        "before" => ProxyFault::AnswerBefore(value.parse().map_err(bad)?),
        "after" => ProxyFault::AnswerAfter(value.parse().map_err(bad)?),
        _ => return Err(Error::Refused(format!("{kind}: no such fault"))),
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
            let client = Testbed::attach(instance)?.client().await?;
            let recording = Recording::take(&client, &path, usize::MAX, Duration::from_secs(seconds), || {
                say("recording")
            })
            .await?;
            recording.save(&file)?;
            println!("{} events in {}", recording.len(), file.display());
        }
        Watch::Replay { file, pace } => {
            let replay = Recording::load(&file)?.replay(pace).await?;
            println!("serving on {}; Ctrl-C ends it", replay.url);
            interrupted().await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn hold(number: u8) -> Result<ExitCode> {
    let options = Options {
        instance: Some(number),
        ..Options::new(trainyard_testbed::Profile::Bare)
    };
    let _testbed = Testbed::start(options).await?;
    println!("held");
    interrupted().await?;
    Ok(ExitCode::SUCCESS)
}

async fn interrupted() -> Result<()> {
    tokio::signal::ctrl_c().await.map_err(|source| Error::Io {
        doing: "cannot wait for Ctrl-C".into(),
        source,
    })
}
