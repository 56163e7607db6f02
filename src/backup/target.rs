//! The database as PostgreSQL's own programs are told of it.

use std::process::Stdio;

use secrecy::ExposeSecret;
use tokio::process::Command;

use super::BackupError;
use crate::{
    config::{self, Config, Database},
    postgres::{PostgresError, Reached, binaries},
};

/// The database and how Postgres's own programs reach it.
pub(super) struct Target {
    pub options: sqlx::postgres::PgConnectOptions,
    environment: Vec<(&'static str, String)>,
    /// Names the database on the command line, without its password.
    url: Option<String>,
}

impl Target {
    pub fn of(config: &Config, reached: Option<&Reached>) -> Result<Self, BackupError> {
        match (&config.database, reached) {
            (Database::Private(_), Some(reached)) => {
                let options = reached.connect_options();
                let socket = options
                    .get_socket()
                    .map(|folder| folder.display().to_string())
                    .unwrap_or_default();
                Ok(Self {
                    environment: vec![
                        ("PGHOST", socket),
                        ("PGPORT", options.get_port().to_string()),
                        ("PGUSER", options.get_username().to_owned()),
                        ("PGDATABASE", options.get_database().unwrap_or_default().to_owned()),
                    ],
                    options,
                    url: None,
                })
            }
            (Database::Private(_), None) => Err(PostgresError::NoBinaries.into()),
            (Database::Given(url), _) => {
                let (plain, password) = apart(url.expose_secret());
                Ok(Self {
                    options: config::database_options(url)?,
                    environment: password.map(|password| ("PGPASSWORD", password)).into_iter().collect(),
                    url: Some(plain),
                })
            }
        }
    }

    pub fn tool(&self, config: &Config, name: &'static str, major: u32) -> Result<Command, BackupError> {
        let path = binaries::tool(&config.search, name, major).ok_or(BackupError::NoTool { name, major })?;
        let mut command = Command::new(path);
        command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", &config.path);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(url) = self.url.as_ref().filter(|_| name != "pg_restore") {
            command.arg("--dbname").arg(url);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// The URL without its password, which the list of processes would show, and without what only sqlx understands.
fn apart(url: &str) -> (String, Option<String>) {
    let Ok(mut parsed) = url::Url::parse(url) else {
        return (String::new(), None);
    };
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let mut password = parsed.password().map(decode);
    let _ = parsed.set_password(None);
    let mut kept = Vec::new();
    for (name, value) in parsed.query_pairs() {
        match name.as_ref() {
            "password" => password = Some(value.into_owned()),
            "statement-cache-capacity" => {}
            _ => kept.push((name.into_owned(), value.into_owned())),
        }
    }
    parsed.set_query(None);
    if !kept.is_empty() {
        parsed.query_pairs_mut().extend_pairs(kept);
    }
    (parsed.into(), password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_the_url_and_arrives_whole() {
        let (url, password) = apart("postgres://yard:p%40ss+w@db:5433/yard?sslmode=require&statement-cache-capacity=5");
        assert_eq!(url, "postgres://yard@db:5433/yard?sslmode=require");
        assert_eq!(password.as_deref(), Some("p@ss+w"));
        assert_eq!(apart("postgres://db/yard"), ("postgres://db/yard".to_owned(), None));
    }
}
