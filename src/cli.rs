//! The command line: words, flags and help. What each command does is elsewhere; `main` leads there.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    client::{ClientCommand, http::ClientError},
    config::{self, Output, ServerArgs},
};

/// Trainyard: an open control plane for training clusters and jobs.
#[derive(Debug, Parser)]
#[command(
    name = "trainyard",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything: a private Postgres unless DATABASE_URL names one, the server, and a worker for this machine
    Up(UpArgs),
    /// Serve the pages and the API
    Serve(ServerArgs),
    /// Do the work in the background: start, watch and end what people asked for
    Work(ServerArgs),
    /// Bring the database's schema up to this program's
    Migrate(ServerArgs),
    /// Tell what this machine lacks, and the line that gets it
    Doctor(DoctorArgs),
    /// Print the OpenAPI document of the API
    Openapi,
    /// Make and revoke sign-in links and API tokens
    Token(TokenArgs),
    /// Look after the keys that secrets are encrypted with
    Keys(KeysArgs),
    /// Write the database into one file, without the keys
    Backup(BackupArgs),
    /// Bring a backup back
    Restore(RestoreArgs),
    #[command(flatten)]
    Client(ClientCommand),
    /// Watches over one replica on this machine; started by the worker and by nobody else
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Help goes to standard output. What was not understood goes to standard error, with `-o json` as one object like every
/// other error, and ends the program with 2.
pub fn exit(error: &clap::Error) -> ! {
    if !(config::asks_for_json() && error.use_stderr()) {
        error.exit();
    }
    let told = error.render().to_string();
    let title = told.trim().trim_start_matches("error: ");
    eprint!("{}", ClientError::Usage(title.to_owned()).in_json());
    std::process::exit(2)
}

#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    /// On the first start, submit three example jobs and show how the first one gets on
    #[arg(long)]
    pub examples: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    /// A table for people, or JSON
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// These act on the database itself, so they work for whoever can reach it, before anybody has signed in.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a link that signs a person in, once
    Link {
        /// Whom it signs in; made if there is no such user
        #[arg(long, default_value = "admin")]
        user: String,
    },
    /// Print a new API token, this one time
    Create {
        /// What it is for, as lists will show it
        name: String,
        /// Whose it is
        #[arg(long, default_value = "admin")]
        user: String,
        /// Only for this team
        #[arg(long)]
        team: Option<String>,
        /// At most this role in the team: viewer, member or owner
        #[arg(long, requires = "team")]
        role: Option<String>,
        /// Days until it expires
        #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
        expires: u32,
    },
    /// List tokens: whose, what for, until when, last used
    List,
    /// Make a token worthless, at once
    Revoke { id: String },
}

#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys' ids, the one that encrypts first
    List,
    /// Make a new key, seal every secret anew with it, and retire the old ones
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Make no further key: go on where a rotation stopped, or wait for other machines to have the new key
    #[arg(long = "continue")]
    pub go_on: bool,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    /// The file to write; it must not be there yet [default: trainyard-<time>.backup]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub settings: ServerArgs,
    /// The backup to bring back
    #[arg(required_unless_present = "confirm", conflicts_with = "confirm")]
    pub file: Option<PathBuf>,
    /// Drop what the database has now
    #[arg(long, requires = "file")]
    pub replace: bool,
    /// After a look at the restored records: let the workers act on them
    #[arg(long)]
    pub confirm: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_shim_gets_its_arguments_untouched() {
        let cli = Cli::try_parse_from(["trainyard", "shim", "--help", "-x", "--", "a"]).unwrap();
        let Command::Shim { args } = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(args, ["--help", "-x", "--", "a"]);
    }

    #[test]
    fn a_token_is_never_shown_by_a_debug_print() {
        let cli = Cli::try_parse_from(["trainyard", "jobs", "--token", "hunter2"]).unwrap();
        assert!(!format!("{cli:?}").contains("hunter2"));
    }
}
