//! People and teams. What changes here changes what cached callers may do, so every deed drops them everywhere.

use serde_json::json;
use trainyard_core::model::{TeamId, TeamRole, UserId};
use uuid::Uuid;

use super::{Actions, Ask, FieldFault, Refusal, found};
use crate::db::{
    DbError, audit,
    teams::{self, Member, Team},
    users::{self, User, UserChange},
};

impl Actions {
    pub async fn create_user(&self, ask: Ask<'_>, name: &str, admin: bool) -> Result<User, Refusal> {
        ask.admin()?;
        check_person(name)?;
        let id = UserId(Uuid::now_v7());
        let now = self.now();
        let mut tx = self.db.begin().await?;
        users::insert(&mut tx, id, name, admin, now).await?;
        let detail = json!({ "name": name, "admin": admin });
        audit::write(&mut tx, ask.entry("user.create", "user", id.0, None, detail), now).await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(users::get(&self.db, id).await?)
    }

    pub async fn update_user(&self, ask: Ask<'_>, id: UserId, change: UserChange) -> Result<User, Refusal> {
        ask.admin()?;
        if let Some(name) = &change.name {
            check_person(name)?;
        }
        let now = self.now();
        let mut tx = self.db.begin().await?;
        match users::update(&mut tx, id, &change, now).await {
            Err(DbError::Stale) => return Err(Refusal::LastOne { what: "admin" }),
            other => found("user", id, other)?,
        }
        let detail = json!({ "name": change.name, "admin": change.admin, "disabled": change.disabled });
        audit::write(&mut tx, ask.entry("user.update", "user", id.0, None, detail), now).await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.access();
        Ok(users::get(&self.db, id).await?)
    }

    pub async fn create_team(&self, ask: Ask<'_>, name: &str) -> Result<Team, Refusal> {
        ask.admin()?;
        check_name("name", name)?;
        let id = TeamId(Uuid::now_v7());
        let now = self.now();
        let mut tx = self.db.begin().await?;
        match teams::insert(&mut tx, id, name, now).await {
            Err(DbError::Constraint { constraint, .. }) if constraint == "teams_name_key" => {
                return Err(Refusal::Taken {
                    what: "team",
                    name: name.to_owned(),
                });
            }
            other => other?,
        }
        audit::write(
            &mut tx,
            ask.entry("team.create", "team", id.0, Some(id), json!({ "name": name })),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(teams::get(&self.db, &ask.caller.actor.scope(), id).await?)
    }

    /// Adds a person to a team, or changes their role in it.
    pub async fn put_member(
        &self,
        ask: Ask<'_>,
        team: TeamId,
        user: UserId,
        role: TeamRole,
    ) -> Result<Member, Refusal> {
        self.owner_of(ask, team).await?;
        found("user", user, users::get(&self.db, user).await)?;
        let now = self.now();
        let mut tx = self.db.begin().await?;
        teams::put_member(&mut tx, team, user, role, now).await?;
        let detail = json!({ "user": user, "role": role });
        audit::write(
            &mut tx,
            ask.entry("team.member", "team", team.0, Some(team), detail),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.access();
        let members = teams::members(&self.db, &ask.caller.actor.scope(), team).await?;
        (members.into_iter().find(|member| member.user == user)).ok_or(Refusal::Stale)
    }

    pub async fn remove_member(&self, ask: Ask<'_>, team: TeamId, user: UserId) -> Result<(), Refusal> {
        self.owner_of(ask, team).await?;
        let now = self.now();
        let mut tx = self.db.begin().await?;
        found("member", user, teams::remove_member(&mut tx, team, user).await)?;
        let detail = json!({ "user": user });
        audit::write(
            &mut tx,
            ask.entry("team.member.remove", "team", team.0, Some(team), detail),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.access();
        Ok(())
    }

    /// The team, if the caller may see it and owns it.
    async fn owner_of(&self, ask: Ask<'_>, team: TeamId) -> Result<Team, Refusal> {
        let found_team = found(
            "team",
            team,
            teams::get(&self.db, &ask.caller.actor.scope(), team).await,
        )?;
        if ask.caller.actor.may(team, TeamRole::Owner) {
            Ok(found_team)
        } else {
            Err(Refusal::role(TeamRole::Owner, &found_team.name))
        }
    }
}

/// A person's name: anything that can be shown on one line.
fn check_person(name: &str) -> Result<(), Refusal> {
    let fits = (1..=128).contains(&name.chars().count()) && !name.chars().any(char::is_control) && name.trim() == name;
    if fits {
        return Ok(());
    }
    Err(Refusal::fault(
        FieldFault::new(
            "name",
            "wrong_form",
            "a name has 1 to 128 characters, none of them a control character",
        )
        .value(name)
        .hint("spaces go between words only"),
    ))
}

/// A name that goes into URLs and documents.
pub(super) fn check_name(path: &str, name: &str) -> Result<(), Refusal> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let fits = (1..=63).contains(&bytes.len())
        && bytes.iter().all(|&byte| plain(byte) || byte == b'-')
        && plain(bytes[0])
        && plain(bytes[bytes.len() - 1]);
    if fits {
        return Ok(());
    }
    Err(Refusal::fault(
        FieldFault::new(
            path,
            "wrong_form",
            "a name has 1 to 63 lower-case letters, digits and dashes, no dash at an end",
        )
        .value(name)
        .hint("for example vision-research"),
    ))
}
