//! Who is behind a token or a session: one statement each, asked once per some seconds and caller.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use trainyard_core::model::{JobId, TeamId, TeamRole, TokenId, UserId};
use uuid::Uuid;

use super::{Actor, Db, DbError, word};

/// Somebody who was recognised, and by what.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    pub actor: Actor,
    /// Names of the actor's teams.
    pub team_names: BTreeMap<TeamId, String>,
    pub via: Via,
    /// The records were restored then, and nobody has confirmed yet: every page says so.
    pub restored_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Via {
    Token {
        id: TokenId,
        /// The only team that it reaches.
        team: Option<TeamId>,
        /// At most this much: `viewer`, `member`, `owner` or `admin`.
        role: String,
        expires_at: Option<DateTime<Utc>>,
    },
    /// A browser. Its unsafe requests must carry `csrf`.
    Session { csrf: [u8; 32], expires_at: DateTime<Utc> },
    /// A job's own processes; they may report about this job and do nothing else.
    Job(JobId),
}

impl Caller {
    pub fn expired(&self, now: DateTime<Utc>) -> bool {
        match &self.via {
            Via::Token { expires_at, .. } => expires_at.is_some_and(|at| at <= now),
            Via::Session { expires_at, .. } => *expires_at <= now,
            Via::Job(_) => false,
        }
    }
}

/// What a token may at most do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ceiling {
    Admin,
    Team(TeamRole),
}

pub async fn by_token(db: &Db, hash: &[u8; 32], now: DateTime<Utc>) -> Result<Option<Caller>, DbError> {
    let Some(row) = sqlx::query!(
        r#"/* access::by_token */
        select t.id, t.user_id, t.team_id, t.role, t.expires_at, u.name, u.admin,
            (select restored_at from installation) as restored_at,
            array(select m.team_id from team_members m where m.user_id = u.id order by m.team_id) as "teams!",
            array(select m.role from team_members m where m.user_id = u.id order by m.team_id) as "roles!",
            array(select n.name from team_members m join teams n on n.id = m.team_id
                where m.user_id = u.id order by m.team_id) as "names!",
            (select name from teams where id = t.team_id) as only_team
        from tokens t join users u on u.id = t.user_id
        where t.hash = $1 and t.revoked_at is null and (t.expires_at is null or t.expires_at > $2)
            and u.disabled_at is null"#,
        &hash[..],
        now
    )
    .fetch_optional(&db.pool)
    .await?
    else {
        return Ok(None);
    };
    let ceiling = if row.role == "admin" {
        Ceiling::Admin
    } else {
        Ceiling::Team(word("tokens", TokenId(row.id), &row.role)?)
    };
    let mut memberships = memberships(row.user_id, row.teams, row.roles, row.names)?;
    let admin = row.admin && ceiling == Ceiling::Admin;
    if let (Some(team), Some(name)) = (row.team_id, row.only_team) {
        let team = TeamId(team);
        // An admin acts in every team, so a token of theirs for one team reaches it without a membership.
        if row.admin {
            memberships.entry(team).or_insert((TeamRole::Owner, name)).0 = TeamRole::Owner;
        }
        memberships.retain(|known, _| *known == team);
    }
    if let Ceiling::Team(most) = ceiling {
        for (role, _) in memberships.values_mut() {
            *role = (*role).min(most);
        }
    }
    let id = TokenId(row.id);
    let via = Via::Token {
        id,
        team: row.team_id.map(TeamId),
        role: row.role,
        expires_at: row.expires_at,
    };
    let caller = caller(row.user_id, row.name, Some(id), admin, memberships, via);
    Ok(Some(Caller {
        restored_at: row.restored_at,
        ..caller
    }))
}

pub async fn by_session(db: &Db, hash: &[u8; 32], now: DateTime<Utc>) -> Result<Option<Caller>, DbError> {
    let Some(row) = sqlx::query!(
        r#"/* access::by_session */
        select s.user_id, s.csrf, s.expires_at, u.name, u.admin,
            (select restored_at from installation) as restored_at,
            array(select m.team_id from team_members m where m.user_id = u.id order by m.team_id) as "teams!",
            array(select m.role from team_members m where m.user_id = u.id order by m.team_id) as "roles!",
            array(select n.name from team_members m join teams n on n.id = m.team_id
                where m.user_id = u.id order by m.team_id) as "names!"
        from sessions s join users u on u.id = s.user_id
        where s.hash = $1 and s.expires_at > $2 and u.disabled_at is null"#,
        &hash[..],
        now
    )
    .fetch_optional(&db.pool)
    .await?
    else {
        return Ok(None);
    };
    let memberships = memberships(row.user_id, row.teams, row.roles, row.names)?;
    let csrf = row.csrf.try_into().map_err(|_| DbError::Inconsistent {
        table: "sessions",
        key: UserId(row.user_id).to_string(),
        what: "csrf is not 32 bytes".into(),
    })?;
    let via = Via::Session {
        csrf,
        expires_at: row.expires_at,
    };
    let caller = caller(row.user_id, row.name, None, row.admin, memberships, via);
    Ok(Some(Caller {
        restored_at: row.restored_at,
        ..caller
    }))
}

/// The actor for a job's own token: its owner, with nothing but the right to report. `None`: the job is over or gone.
pub async fn by_job(db: &Db, job: JobId) -> Result<Option<Caller>, DbError> {
    let row = sqlx::query!(
        r#"/* access::by_job */
        select j.team_id, t.name as team_name, u.id, u.name
        from jobs j join users u on u.id = j.owner_id join teams t on t.id = j.team_id
        where j.id = $1 and j.deleted_at is null and j.ended_at is null"#,
        job.0
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(row.map(|row| {
        let memberships = BTreeMap::from([(TeamId(row.team_id), (TeamRole::Viewer, row.team_name))]);
        caller(row.id, row.name, None, false, memberships, Via::Job(job))
    }))
}

type Memberships = BTreeMap<TeamId, (TeamRole, String)>;

fn memberships(user: Uuid, teams: Vec<Uuid>, roles: Vec<String>, names: Vec<String>) -> Result<Memberships, DbError> {
    teams
        .into_iter()
        .zip(roles.iter().zip(names))
        .map(|(team, (role, name))| Ok((TeamId(team), (word("team_members", UserId(user), role)?, name))))
        .collect()
}

fn caller(user: Uuid, name: String, token: Option<TokenId>, admin: bool, memberships: Memberships, via: Via) -> Caller {
    let mut teams = BTreeMap::new();
    let mut team_names = BTreeMap::new();
    for (team, (role, name)) in memberships {
        teams.insert(team, role);
        team_names.insert(team, name);
    }
    Caller {
        actor: Actor {
            user: user.into(),
            name,
            token,
            admin,
            teams,
        },
        team_names,
        via,
        restored_at: None,
    }
}

/// Remembers when tokens and sessions were last used; called now and then with what gathered meanwhile.
pub async fn touch(
    db: &Db,
    tokens: &[(TokenId, DateTime<Utc>)],
    sessions: &[([u8; 32], DateTime<Utc>)],
) -> Result<(), DbError> {
    if !tokens.is_empty() {
        let (ids, times): (Vec<Uuid>, Vec<DateTime<Utc>>) = tokens.iter().map(|(id, at)| (id.0, *at)).unzip();
        sqlx::query!(
            r#"/* access::touch tokens */
            update tokens set last_used_at = greatest(last_used_at, used.at)
            from unnest($1::uuid[], $2::timestamptz[]) as used (id, at) where tokens.id = used.id"#,
            &ids,
            &times
        )
        .execute(&db.pool)
        .await?;
    }
    if !sessions.is_empty() {
        let (hashes, times): (Vec<Vec<u8>>, Vec<DateTime<Utc>>) =
            sessions.iter().map(|(hash, at)| (hash.to_vec(), *at)).unzip();
        sqlx::query!(
            r#"/* access::touch sessions */
            update sessions set last_seen_at = greatest(last_seen_at, used.at)
            from unnest($1::bytea[], $2::timestamptz[]) as used (hash, at) where sessions.hash = used.hash"#,
            &hashes,
            &times
        )
        .execute(&db.pool)
        .await?;
    }
    Ok(())
}
