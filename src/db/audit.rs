//! Who did what. Written in the transaction of the deed, so there is no deed without its line.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use trainyard_core::model::{AuditId, CheckId, ClusterId, JobId, NodeId, SecretId, TeamId, TokenId, UserId};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Db, DbError, Scope};

#[derive(Debug, Clone)]
pub struct NewEntry<'a> {
    pub id: AuditId,
    pub actor: Option<UserId>,
    pub token: Option<TokenId>,
    /// Dotted: `job.cancel`, `token.create`.
    pub action: &'a str,
    pub subject_kind: &'a str,
    pub subject: Option<Uuid>,
    pub team: Option<TeamId>,
    /// Never a secret, never a whole document.
    pub detail: Value,
    pub request: &'a str,
}

pub async fn write(tx: &mut PgConnection, entry: NewEntry<'_>, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* audit::write */
        insert into audit (class, id, at, actor_id, token_id, action, subject_kind, subject_id, team_id, detail, request_id)
        values ('installation', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"#,
        entry.id.0,
        now,
        entry.actor.map(|actor| actor.0),
        entry.token.map(|token| token.0),
        entry.action,
        entry.subject_kind,
        entry.subject,
        entry.team.map(|team| team.0),
        entry.detail,
        entry.request
    )
    .execute(tx)
    .await?;
    Ok(())
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AuditEntry {
    pub id: AuditId,
    pub at: DateTime<Utc>,
    pub actor: Option<UserId>,
    pub actor_name: Option<String>,
    pub token: Option<TokenId>,
    pub action: String,
    pub subject_kind: String,
    /// The subject's id in the form that its own endpoint uses.
    pub subject: Option<String>,
    pub team: Option<TeamId>,
    #[schema(value_type = Object)]
    pub detail: Value,
    pub request_id: Option<String>,
}

/// Which lines of the audit log. The default: all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Which {
    pub team: Option<TeamId>,
    pub action: Option<String>,
    pub actor: Option<UserId>,
    pub subject: Option<Uuid>,
    /// The line's own time, from here on.
    pub since: Option<DateTime<Utc>>,
    /// And before this.
    pub until: Option<DateTime<Utc>>,
}

/// How many lines one look at the audit log covers, however few of them are wanted.
pub const WINDOW: i64 = 10_000;

/// A page of the audit log, newest first. A scope of teams sees what happened in these teams. No more than [`WINDOW`]
/// lines are looked at: a short page may have a next one, behind [`horizon`].
pub async fn list(
    db: &Db,
    scope: &Scope,
    which: &Which,
    before: Option<AuditId>,
    limit: i64,
) -> Result<Vec<AuditEntry>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* audit::list */
        select a.id, a.at, a.actor_id, u.name as "actor_name?", a.token_id, a.action, a.subject_kind, a.subject_id,
            a.team_id, a.detail, a.request_id
        from (select * from audit where class = 'installation' and ($4::uuid is null or id < $4)
            order by id desc limit $10) a left join users u on u.id = a.actor_id
        where a.class = 'installation' and ($1::uuid[] is null or a.team_id = any($1))
            and ($2::uuid is null or a.team_id = $2) and ($3::text is null or a.action = $3)
            and ($6::uuid is null or a.actor_id = $6)
            and ($7::uuid is null or a.subject_id = $7) and ($8::timestamptz is null or a.at >= $8)
            and ($9::timestamptz is null or a.at < $9)
        order by a.id desc limit $5"#,
        teams.as_deref(),
        which.team.map(|team| team.0),
        which.action,
        before.map(|before| before.0),
        limit,
        which.actor.map(|actor| actor.0),
        which.subject,
        which.since,
        which.until,
        WINDOW
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| AuditEntry {
            id: row.id.into(),
            at: row.at,
            actor: row.actor_id.map(UserId),
            actor_name: row.actor_name,
            token: row.token_id.map(TokenId),
            subject: row.subject_id.map(|id| named(&row.subject_kind, id)),
            action: row.action,
            subject_kind: row.subject_kind,
            team: row.team_id.map(TeamId),
            detail: row.detail,
            request_id: row.request_id,
        })
        .collect())
}

/// The last line that a page looks at. `None`: the log ends before, or what is wanted does.
pub async fn horizon(
    db: &Db,
    before: Option<AuditId>,
    since: Option<DateTime<Utc>>,
) -> Result<Option<AuditId>, DbError> {
    let id = sqlx::query_scalar!(
        r#"/* audit::horizon */
        select id from (
            select id, at from audit where class = 'installation' and ($1::uuid is null or id < $1)
            order by id desc offset $2 limit 1
        ) last where $3::timestamptz is null or at >= $3"#,
        before.map(|before| before.0),
        WINDOW - 1,
        since
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(id.map(AuditId))
}

macro_rules! subjects {
    ($($kind:literal $id:ident,)+) => {
        /// An id in its outside form, by what it is of.
        fn named(kind: &str, id: Uuid) -> String {
            match kind {
                $($kind => $id(id).to_string(),)+
                _ => id.to_string(),
            }
        }

        /// The id inside, of whatever may be a subject.
        pub fn subject(text: &str) -> Option<Uuid> {
            None$(.or(text.parse::<$id>().ok().map(|id| id.0)))+.or(text.parse().ok())
        }
    };
}

subjects! {
    "job" JobId,
    "team" TeamId,
    "user" UserId,
    "token" TokenId,
    "secret" SecretId,
    "cluster" ClusterId,
    "node" NodeId,
    "check" CheckId,
}
