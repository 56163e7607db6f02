//! Secrets: put and forgotten here, opened by workers alone.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use trainyard_core::model::{SecretId, TeamId, TeamRole};
use uuid::Uuid;

use super::{Actions, Ask, FieldFault, Refusal, found, people::check_name};
use crate::db::{
    DbError, audit, secret_values,
    secrets::{self, NewVersion, Secret},
    teams::{self, Team},
};

const MAX_KEYS: usize = 64;
/// All values of one secret together.
const MAX_BYTES: usize = 256 * 1024;

impl Actions {
    pub async fn put_secret(
        &self,
        ask: Ask<'_>,
        team: TeamId,
        name: &str,
        values: &BTreeMap<String, SecretString>,
    ) -> Result<Secret, Refusal> {
        self.may_in(ask, team, TeamRole::Member).await?;
        check_name("name", name)?;
        check(values)?;
        let now = self.now();
        let id = SecretId(Uuid::now_v7());
        let plain: BTreeMap<&str, &str> = values
            .iter()
            .map(|(key, value)| (key.as_str(), value.expose_secret()))
            .collect();
        // A map of texts is always JSON.
        let plain: SecretString = serde_json::to_string(&plain).unwrap_or_default().into();
        let mut tx = self.db.begin().await?;
        // Before the ring is read: a rotation waits for whoever seals with the key that was first until now.
        secret_values::begin_sealing(&mut tx).await?;
        let sealed = self
            .keys
            .ring()
            .encrypt(id.0, plain.expose_secret().as_bytes(), &mut rand::rng())?;
        let new = NewVersion {
            id,
            team,
            name,
            keys: values.keys().cloned().collect(),
            sealed: &sealed,
            by: ask.caller.actor.user,
        };
        let version = secrets::put(&mut tx, &new, now).await?;
        let detail = json!({ "name": name, "version": version, "keys": new.keys });
        audit::write(
            &mut tx,
            ask.entry("secret.put", "secret", id.0, Some(team), detail),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(Secret {
            name: name.to_owned(),
            version,
            keys: new.keys,
            created_by: ask.caller.actor.user,
            created_at: now,
        })
    }

    pub async fn delete_secret(&self, ask: Ask<'_>, team: TeamId, name: &str) -> Result<(), Refusal> {
        self.may_in(ask, team, TeamRole::Member).await?;
        let now = self.now();
        let mut tx = self.db.begin().await?;
        found("secret", name, secrets::delete(&mut tx, team, name, now).await)?;
        let detail = json!({ "name": name });
        audit::write(
            &mut tx,
            ask.entry("secret.delete", "team", team.0, Some(team), detail),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(())
    }

    /// The team, if the caller may see it and has the role in it.
    pub(crate) async fn may_in(&self, ask: Ask<'_>, team: TeamId, role: TeamRole) -> Result<Team, Refusal> {
        let known = found(
            "team",
            team,
            teams::get(&self.db, &ask.caller.actor.scope(), team).await,
        )?;
        if ask.caller.actor.may(team, role) {
            Ok(known)
        } else {
            Err(Refusal::role(role, &known.name))
        }
    }
}

fn check(values: &BTreeMap<String, SecretString>) -> Result<(), Refusal> {
    let mut faults = Vec::new();
    if values.is_empty() || values.len() > MAX_KEYS {
        faults.push(
            FieldFault::new("values", "out_of_range", format!("a secret has 1 to {MAX_KEYS} keys"))
                .value(values.len().to_string())
                .hint("to remove a secret, delete it"),
        );
    }
    for key in values.keys() {
        let fits = (1..=253).contains(&key.len())
            && key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !fits {
            faults.push(
                FieldFault::new(
                    format!("values.{key}"),
                    "wrong_form",
                    "a key has 1 to 253 letters, digits, '-', '_' and '.'",
                )
                .value(key),
            );
        }
    }
    let bytes: usize = values.values().map(|value| value.expose_secret().len()).sum();
    if bytes > MAX_BYTES {
        faults.push(
            FieldFault::new(
                "values",
                "too_large",
                format!("the values of a secret have at most {MAX_BYTES} bytes together"),
            )
            .value(bytes.to_string()),
        );
    }
    if values.values().any(|value| value.expose_secret().contains('\0')) {
        faults.push(FieldFault::new(
            "values",
            "wrong_form",
            "a value can't contain a NUL byte, since no environment can",
        ));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Faults(faults))
    }
}
