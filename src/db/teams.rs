//! Teams and who is in them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::{TeamId, TeamRole, UserId};
use utoipa::ToSchema;

use super::{Db, DbError, Scope, word};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Team {
    pub id: TeamId,
    pub name: String,
    pub created_at: DateTime<Utc>,
    pub members: i64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Member {
    pub user: UserId,
    pub name: String,
    pub role: TeamRole,
    pub created_at: DateTime<Utc>,
}

/// A page of teams by name.
pub async fn list(db: &Db, scope: &Scope, after: Option<&str>, limit: i64) -> Result<Vec<Team>, DbError> {
    let teams = scope.teams();
    Ok(sqlx::query_as!(
        Team,
        r#"/* teams::list */
        select t.id, t.name, t.created_at, (select count(*) from team_members m where m.team_id = t.id) as "members!"
        from teams t where ($1::uuid[] is null or t.id = any($1)) and ($2::text is null or t.name > $2)
        order by t.name limit $3"#,
        teams.as_deref(),
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}

pub async fn get(db: &Db, scope: &Scope, id: TeamId) -> Result<Team, DbError> {
    let teams = scope.teams();
    Ok(sqlx::query_as!(
        Team,
        r#"/* teams::get */
        select t.id, t.name, t.created_at, (select count(*) from team_members m where m.team_id = t.id) as "members!"
        from teams t where t.id = $1 and ($2::uuid[] is null or t.id = any($2))"#,
        id.0,
        teams.as_deref()
    )
    .fetch_one(&db.pool)
    .await?)
}

pub async fn by_name(db: &Db, scope: &Scope, name: &str) -> Result<Option<TeamId>, DbError> {
    let teams = scope.teams();
    let id = sqlx::query_scalar!(
        r#"/* teams::by_name */
        select id from teams where name = $1 and ($2::uuid[] is null or id = any($2))"#,
        name,
        teams.as_deref()
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(id.map(TeamId))
}

/// A name that is taken fails with the constraint `teams_name_key`.
pub async fn insert(tx: &mut PgConnection, id: TeamId, name: &str, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* teams::insert */ insert into teams (id, name, created_at) values ($1, $2, $3)"#,
        id.0,
        name,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn members(db: &Db, scope: &Scope, team: TeamId) -> Result<Vec<Member>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* teams::members */
        select m.user_id, u.name, m.role, m.created_at from team_members m join users u on u.id = m.user_id
        where m.team_id = $1 and ($2::uuid[] is null or m.team_id = any($2)) order by u.name, m.user_id"#,
        team.0,
        teams.as_deref()
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Member {
                user: row.user_id.into(),
                name: row.name,
                role: word("team_members", team, &row.role)?,
                created_at: row.created_at,
            })
        })
        .collect()
}

pub async fn put_member(
    tx: &mut PgConnection,
    team: TeamId,
    user: UserId,
    role: TeamRole,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* teams::put_member */
        insert into team_members (team_id, user_id, role, created_at) values ($1, $2, $3, $4)
        on conflict (team_id, user_id) do update set role = excluded.role"#,
        team.0,
        user.0,
        role.as_str(),
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn remove_member(tx: &mut PgConnection, team: TeamId, user: UserId) -> Result<(), DbError> {
    let done = sqlx::query!(
        r#"/* teams::remove_member */ delete from team_members where team_id = $1 and user_id = $2"#,
        team.0,
        user.0
    )
    .execute(tx)
    .await?;
    if done.rows_affected() == 0 {
        Err(DbError::NotFound)
    } else {
        Ok(())
    }
}
