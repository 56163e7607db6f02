//! `testbed`: the commands for people, and the two programs that an instance is made of (guard and init).

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use trainyard_testbed::cluster::Options;
use trainyard_testbed::layout::{self, Layout};
use trainyard_testbed::{Profile, Result, faults, guard, space};

mod commands;

#[derive(Parser)]
#[command(name = "testbed", about = "A real Kubernetes on this machine, for tests")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The numbers that instances may have.
fn number(text: &str) -> std::result::Result<u8, String> {
    let last = layout::MAX_INSTANCES - 1;
    let number = text.parse().ok().filter(|number| *number <= last);
    number.ok_or_else(|| format!("instances have the numbers 0 to {last}"))
}

#[derive(Subcommand)]
enum Command {
    /// Builds what is missing in the cache and starts nothing
    Build,
    /// Starts an instance and prints how to use it
    Up {
        #[arg(long, value_enum, default_value = "bare")]
        profile: Profile,
        /// How many fake nodes
        #[arg(long, default_value_t = 0)]
        nodes: usize,
        /// Several instances run side by side under different numbers
        #[arg(long, default_value_t = 0, value_parser = number)]
        instance: u8,
        /// No real nodes and no operators
        #[arg(long)]
        no_real_nodes: bool,
        /// Fill with this many fake pods. Such a cluster stands still: store and API server alone
        #[arg(long, default_value_t = 0)]
        pods: usize,
    },
    /// Ends an instance, or all, and says what is left
    Down {
        #[arg(long, conflicts_with = "all", value_parser = number)]
        instance: Option<u8>,
        #[arg(long)]
        all: bool,
    },
    /// Shows what runs
    Status,
    /// Says what instances that do not run have left behind; fails if anything
    Leftovers,
    /// Breaks something
    Fault {
        #[arg(long, global = true, default_value_t = 0, value_parser = number)]
        instance: u8,
        #[command(subcommand)]
        fault: commands::Fault,
    },
    /// Records a watch, or replays one
    Watch {
        #[command(subcommand)]
        watch: commands::Watch,
    },
    /// Runs a command inside of a space: control, node-1 or node-2
    Enter {
        #[arg(long, default_value_t = 0, value_parser = number)]
        instance: u8,
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(guard::spaces()))]
        space: String,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Starts a bare instance that lives as long as this process; for the test that kills it
    #[command(hide = true)]
    Hold { number: u8 },
    #[command(hide = true)]
    Guard {
        number: u8,
        #[arg(long)]
        forever: bool,
    },
    #[command(hide = true)]
    Init { dir: PathBuf },
    #[command(hide = true)]
    EtcdCall { path: String, body: String },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        // These three must not have a runtime's threads: they wait for signals, or start in an instant.
        Command::Guard { number, forever } => guard::main(Layout::new(number), forever).map(|()| ExitCode::SUCCESS),
        Command::Init { dir } => space::init::main(&dir).map(|()| ExitCode::SUCCESS),
        Command::EtcdCall { path, body } => {
            print!("{}", faults::api::etcd_call_here(&path, &body)?);
            Ok(ExitCode::SUCCESS)
        }
        other => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(|source| trainyard_testbed::Error::Io {
                doing: "cannot start a runtime".into(),
                source,
            })?;
            runtime.block_on(for_people(other))
        }
    }
}

async fn for_people(command: Command) -> Result<ExitCode> {
    match command {
        Command::Build => commands::build(),
        Command::Up {
            profile,
            nodes,
            instance,
            no_real_nodes,
            pods,
        } => {
            let still = pods > 0;
            let options = Options {
                fake_nodes: nodes,
                real_nodes: !no_real_nodes && !still,
                controllers: !still,
                instance: Some(instance),
                ..Options::new(profile)
            };
            commands::up(options, pods).await
        }
        Command::Down { instance, all } => commands::down(instance, all),
        Command::Status => commands::status().await,
        Command::Leftovers => commands::leftovers(),
        Command::Fault { instance, fault } => commands::fault(instance, fault).await,
        Command::Watch { watch } => commands::watch(watch).await,
        Command::Hold { number } => commands::hold(number).await,
        Command::Enter {
            instance,
            space,
            command,
        } => commands::enter(instance, &space, &command),
        Command::Guard { .. } | Command::Init { .. } | Command::EtcdCall { .. } => Ok(ExitCode::FAILURE),
    }
}
