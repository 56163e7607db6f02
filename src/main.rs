//! Parse, run, exit code: 0 done, 1 failed, 2 not understood.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use trainyard::{
    actions::rotate::{self, RotateError},
    app::{self, AppError},
    backup::{self, BackupError},
    cli::{self, BackupArgs, Cli, Command, KeysArgs, KeysCommand, RestoreArgs, TokenArgs, UpArgs},
    client::{self, ClientCommand},
    config::{self, Config, ConfigError, Database, Environment, Output, ServerArgs},
    db::Db,
    doctor,
    keys::{KeyError, KeyFile},
    postgres::{self, PostgresError},
    telemetry::{self, TelemetryError},
    way_in::{self, WayInError},
};

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| cli::exit(&error));
    match run(cli.command) {
        Ok(code) => code,
        // The reader of our output went away, as `head` does: no failure of ours.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "trainyard: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error("the schema can't be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error("{0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    WayIn(#[from] WayInError),
    #[error(transparent)]
    Rotate(#[from] RotateError),
    #[error("there is no Trainyard in {} yet: `trainyard up` starts one, --data names the folder of another", .0.display())]
    NothingThere(PathBuf),
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(args) => up(args),
        Command::Serve(args) => serve(args),
        Command::Work(args) => work(args),
        Command::Migrate(args) => migrate(args),
        Command::Doctor(args) => {
            let config = settle(&args.settings)?;
            let checks = wait_for(doctor::examine(&config))?;
            print(&match args.output {
                Output::Table => doctor::table(&checks),
                Output::Json => serde_json::to_string_pretty(&checks).map_err(io::Error::other)? + "\n",
            })?;
            Ok(if doctor::is_fit(&checks) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Openapi => openapi(),
        Command::Token(args) => token(args),
        Command::Keys(args) => keys(args),
        Command::Backup(args) => backup(args),
        Command::Restore(args) => restore(args),
        Command::Client(command) => client(command),
        Command::Shim { args } => shim(args),
    }
}

fn up(args: UpArgs) -> Result<ExitCode, Failure> {
    let config = settle(&args.settings)?;
    run_app(app::up(config, args.examples))
}

fn serve(args: ServerArgs) -> Result<ExitCode, Failure> {
    run_app(app::serve(settle(&args)?))
}

fn work(args: ServerArgs) -> Result<ExitCode, Failure> {
    run_app(app::work(settle(&args)?))
}

fn openapi() -> Result<ExitCode, Failure> {
    print(&(trainyard::web::openapi().to_pretty_json().map_err(io::Error::other)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn token(args: TokenArgs) -> Result<ExitCode, Failure> {
    let config = settle_there(&args.settings)?;
    let told = wait_for(with_database(&config, async |db| {
        Ok(way_in::act(&config, &db, args.command, chrono::Utc::now()).await?)
    }))??;
    print(&told)?;
    Ok(ExitCode::SUCCESS)
}

fn client(command: ClientCommand) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(client::run(command, &Environment::read())))
}

fn shim(args: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    Ok(trainyard::shim::run(args))
}

/// The program as a server: on all cores, until it is told to stop.
fn run_app(app: impl Future<Output = Result<(), AppError>>) -> Result<ExitCode, Failure> {
    // Each follower of a log takes a file. A limit that can't be raised is what `doctor` tells about.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app)?;
    // What is left are waits on other processes and reads that nobody waits for.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

// The commands of this house.

fn migrate(args: ServerArgs) -> Result<ExitCode, Failure> {
    let config = settle(&args)?;
    wait_for(with_database(&config, async |db| Ok(db.migrate().await?)))??;
    print("The schema is up to date.\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Work on the database for a moment: the one that was named, the private one that runs, or one started for this.
async fn with_database<T>(config: &Config, work: impl AsyncFnOnce(Db) -> Result<T, Failure>) -> Result<T, Failure> {
    match &config.database {
        Database::Given(url) => work(Db::lazy(config::database_options(url)?, 2)).await,
        Database::Private(settings) => {
            let reached = postgres::reach(settings).await?;
            let db = Db::lazy(reached.connect_options(), 2);
            let done = work(db.clone()).await;
            db.close().await;
            reached.leave().await?;
            done
        }
    }
}

fn keys(args: KeysArgs) -> Result<ExitCode, Failure> {
    let config = settle(&args.settings)?;
    let file = KeyFile::open(&config.keys_file)?;
    if let KeysCommand::Rotate(how) = args.command {
        let told = wait_for(with_database(&config, async |db| {
            let now = chrono::Utc::now();
            Ok(rotate::on_this_machine(&db, &file, &config.data, how.go_on, &mut rand::rng(), now).await?)
        }))??;
        print(&told)?;
    }
    let ids: Vec<String> = file.ring().ids().map(ToString::to_string).collect();
    let mut text = String::new();
    for (index, id) in ids.iter().enumerate() {
        text += &format!(
            "{id}  {}\n",
            if index == 0 {
                "encrypts and decrypts"
            } else {
                "decrypts"
            }
        );
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn backup(args: BackupArgs) -> Result<ExitCode, Failure> {
    let config = settle_there(&args.settings)?;
    let done = wait_for(backup::backup(&config, args.file.as_deref(), chrono::Utc::now()))??;
    print(&done)?;
    Ok(ExitCode::SUCCESS)
}

fn restore(args: RestoreArgs) -> Result<ExitCode, Failure> {
    let config = match args.file {
        Some(_) => settle(&args.settings)?,
        None => settle_there(&args.settings)?,
    };
    let done = match args.file {
        Some(file) => wait_for(backup::restore(&config, &file, args.replace, chrono::Utc::now()))??,
        None => wait_for(backup::confirm(&config, chrono::Utc::now()))??,
    };
    print(&done)?;
    Ok(ExitCode::SUCCESS)
}

/// As [`settle`], for what works on records that are there: making a database here would only hide that the folder is not the
/// one that was meant.
fn settle_there(args: &ServerArgs) -> Result<Config, Failure> {
    let config = settle(args)?;
    match &config.database {
        Database::Private(settings) if !settings.is_made() => Err(Failure::NothingThere(config.data)),
        _ => Ok(config),
    }
}

/// Settings and log lines, before anything else is done.
fn settle(args: &ServerArgs) -> Result<Config, Failure> {
    let config = args.resolve(&Environment::read())?;
    if matches!(config.database, Database::Private(_)) {
        config::shed_pgoptions()?;
    }
    telemetry::start_logs(&config.log, config.log_format)?;
    Ok(config)
}

/// The runtime is made here and not around `main`, since a shim must stay as small as a shell.
fn wait_for<F: Future>(work: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
