//! Names of teams, people and clusters by id. Lists show them in every row and they hardly ever change, so they are
//! kept in memory, and a list is one statement without a join. A notification that access changed drops them.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use uuid::Uuid;

use super::{Db, DbError};

/// Names that are kept; beyond, all are dropped and asked for again.
const KEPT: usize = 100_000;

#[derive(Clone, Default)]
pub struct Names {
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    /// Grows whenever names may have changed; what was asked for before must not be kept after.
    generation: u64,
    names: HashMap<Uuid, Arc<str>>,
}

impl Names {
    /// The names of these ids. An id of nothing has none.
    pub async fn of(&self, db: &Db, ids: &[Uuid]) -> Result<HashMap<Uuid, Arc<str>>, DbError> {
        let mut found = HashMap::with_capacity(ids.len());
        let mut missing = Vec::new();
        let generation = {
            // A panic elsewhere leaves the map whole: no change of it is in two steps.
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            for id in ids {
                match known.names.get(id) {
                    Some(name) => drop(found.insert(*id, name.clone())),
                    None => missing.push(*id),
                }
            }
            known.generation
        };
        if missing.is_empty() {
            return Ok(found);
        }
        missing.sort_unstable();
        missing.dedup();
        let rows = sqlx::query!(
            r#"/* names::of */
            select id as "id!", name as "name!" from teams where id = any($1)
            union all select id, name from users where id = any($1)
            union all select id, name from clusters where id = any($1)"#,
            &missing
        )
        .fetch_all(&db.pool)
        .await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.names.len() >= KEPT {
            known.names.clear();
        }
        for row in rows {
            let name: Arc<str> = row.name.into();
            if known.generation == generation {
                known.names.insert(row.id, name.clone());
            }
            found.insert(row.id, name);
        }
        Ok(found)
    }

    pub fn drop_all(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.generation += 1;
        known.names.clear();
    }
}
