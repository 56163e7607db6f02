//! Many small rows of a stream become one, and about 1 MiB of them a sealed, compressed chunk.
//!
//! Delete and insert are one transaction, and rows are found by the bytes they cover, so readers never notice.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trainyard_core::model::{ClusterId, StreamId};

use crate::{
    db::{
        Db, DbError,
        holdings::{self, Holding},
        logs::{
            Body, ChunkRow, JobKey,
            keep::{self, Lie},
        },
        metrics::{self, Owner},
    },
    logs::{
        LogsError,
        chunk::{self, CHUNK, Output, Piece},
        marks::Mark,
    },
    worker::ingest::Now,
};

/// So many small rows of a stream are worth merging.
const MANY: usize = 64;
/// Rows below this are small. Larger ones wait until there is a chunk's worth, so that no byte is copied often.
const SMALL: u64 = 32 << 10;

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealRequest {
    Stream(StreamToSeal),
    /// An attempt ended: few rows of each of its series are worth merging now.
    Metrics(JobKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamToSeal {
    pub key: JobKey,
    pub stream: StreamId,
    /// Nothing will be added: all that is left is sealed.
    pub ended: bool,
}

/// Should a stream with so many unsealed rows be looked at?
pub fn is_worth_it(rows: u64, bytes: u64) -> bool {
    rows >= MANY as u64 || bytes >= CHUNK as u64
}

/// Which rows to merge into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    pub from: u64,
    pub to: u64,
    pub sealed: bool,
}

/// What to merge, given a stream's unsealed rows in order. `None`: leave it. Rows that do not touch have a sealed chunk
/// or a gap between them, and what lies before it will not grow any more.
pub fn plan(rows: &[Lie], ended: bool) -> Option<Merge> {
    let end_of = |row: &Lie| row.byte_offset + row.bytes;
    let mut start = 0;
    while start < rows.len() {
        let mut stop = start + 1;
        let mut bytes = rows[start].bytes;
        while stop < rows.len()
            && rows[stop].byte_offset == end_of(&rows[stop - 1])
            && !rows[stop].behind_gap
            && bytes + rows[stop].bytes <= CHUNK as u64
        {
            bytes += rows[stop].bytes;
            stop += 1;
        }
        let whole = Merge {
            from: rows[start].byte_offset,
            to: end_of(&rows[stop - 1]),
            sealed: true,
        };
        // Small rows between large ones are never many in one place; their number is bounded all the same.
        if ended || stop < rows.len() || bytes >= CHUNK as u64 || stop - start >= 2 * MANY {
            return Some(whole);
        }
        // The last group may still grow: its small rows at the end are merged when they are many.
        let small = rows[start..stop]
            .iter()
            .rev()
            .take_while(|row| row.bytes < SMALL)
            .count();
        if small >= MANY {
            return Some(Merge {
                from: rows[stop - small].byte_offset,
                sealed: false,
                ..whole
            });
        }
        start = stop;
    }
    None
}

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Logs(#[from] LogsError),
}

/// Merges what is worth it in one stream. Answers how many rows went.
pub async fn seal(db: &Db, holding: &Holding, now: &Now, request: StreamToSeal) -> Result<usize, SealError> {
    let mut gone = 0;
    loop {
        let rows = keep::unsealed(db, request.key, request.stream).await?;
        let Some(merge) = plan(&rows, request.ended) else {
            return Ok(gone);
        };
        let mut tx = db.begin().await?;
        holdings::check(&mut tx, holding, now()).await?;
        let taken = Arc::new(keep::take(&mut tx, request.key, request.stream, merge.from, merge.to).await?);
        let before: i64 = taken.iter().map(size).sum();
        let rows = taken.clone();
        let merged = match tokio::task::spawn_blocking(move || join(&rows, merge)).await {
            Ok(merged) => merged?,
            // The program is stopping; another worker will look.
            Err(_) => return Ok(gone),
        };
        let Some(merged) = merged else {
            // Another worker merged them first.
            return Ok(gone);
        };
        let delta = size(&merged) - before;
        keep::replace(&mut tx, request.key, &taken, merged, delta).await?;
        tx.commit().await.map_err(DbError::from)?;
        gone += taken.len() - 1;
    }
}

fn size(row: &ChunkRow) -> i64 {
    match &row.body {
        Body::Output { data: Some(data), .. } => data.len() as i64,
        _ => 0,
    }
}

/// One row from several that follow each other. `None`: they are not what was planned.
fn join(rows: &[ChunkRow], merge: Merge) -> Result<Option<ChunkRow>, LogsError> {
    let mut whole: Option<Output> = None;
    let mut data = BytesMut::new();
    for row in rows {
        let Piece::Output(output) = chunk::open(row.clone())? else {
            return Ok(None);
        };
        let base = data.len() as u64;
        data.extend_from_slice(&output.data);
        match &mut whole {
            None => whole = Some(output),
            Some(whole) => {
                if output.offset != whole.offset + base {
                    return Ok(None);
                }
                whole.marks.extend(output.marks.iter().map(|mark| Mark {
                    byte: base + mark.byte,
                    at: mark.at,
                }));
            }
        }
    }
    let Some((mut whole, row)) = whole.zip(rows.first()) else {
        return Ok(None);
    };
    // A flush that was cut into several rows has one mark.
    whole.marks.dedup_by_key(|mark| mark.at);
    whole.data = data.freeze();
    if whole.offset != merge.from || whole.end() != merge.to {
        return Ok(None);
    }
    Ok(Some(chunk::close(row.stream, &whole, merge.sealed)))
}

/// Seals what ingest asks for, and once a minute what was left by workers that are gone; and merges metrics.
pub async fn run(
    db: Db,
    holding: Holding,
    cluster: ClusterId,
    now: Now,
    mut requests: mpsc::Receiver<SealRequest>,
    stop: CancellationToken,
) -> Result<(), SealError> {
    let mut minute = tokio::time::interval(std::time::Duration::from_secs(60));
    minute.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let result = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            request = requests.recv() => match request {
                Some(SealRequest::Stream(request)) => seal(&db, &holding, &now, request).await.map(|_| ()),
                Some(SealRequest::Metrics(key)) => {
                    metrics::compact(&db, Owner::Job(key), true).await.map(|_| ()).map_err(SealError::from)
                }
                None => return Ok(()),
            },
            _ = minute.tick() => sweep(&db, &holding, cluster, &now).await,
        };
        match result {
            Ok(()) => {}
            Err(SealError::Db(DbError::Fenced)) => return Err(DbError::Fenced.into()),
            // Small rows can be read as well as large ones; the next sweep tries again.
            Err(error) => tracing::warn!(%error, "small rows of output could not be merged"),
        }
    }
}

/// Looks at every stream with small rows, and at the metrics of every open attempt.
async fn sweep(db: &Db, holding: &Holding, cluster: ClusterId, now: &Now) -> Result<(), SealError> {
    for ended in [true, false] {
        for (key, stream) in keep::with_unsealed(db, cluster, ended, 10_000).await? {
            seal(db, holding, now, StreamToSeal { key, stream, ended }).await?;
        }
    }
    for attempt in crate::db::logs::write::open_attempts(db, cluster).await? {
        metrics::compact(db, Owner::Job(attempt.key), false).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lengths: &[u64]) -> Vec<Lie> {
        let mut at = 0;
        lengths
            .iter()
            .map(|&bytes| {
                let lie = Lie {
                    byte_offset: at,
                    bytes,
                    behind_gap: false,
                };
                at += bytes;
                lie
            })
            .collect()
    }

    #[test]
    fn few_small_rows_are_left_and_many_are_merged() {
        assert_eq!(plan(&rows(&[100; 63]), false), None);
        let merge = plan(&rows(&[100; 64]), false).unwrap();
        assert_eq!((merge.from, merge.to, merge.sealed), (0, 6400, false));
    }

    #[test]
    fn a_chunks_worth_is_sealed_and_the_rest_waits() {
        let merge = plan(&rows(&[300 << 10; 5]), false).unwrap();
        assert_eq!((merge.from, merge.to, merge.sealed), (0, 900 << 10, true));
        assert_eq!(plan(&rows(&[300 << 10; 3]), false), None);
    }

    #[test]
    fn large_rows_are_not_copied_for_the_sake_of_small_ones() {
        let mut lengths = vec![40 << 10];
        lengths.extend([100; 64]);
        assert_eq!(plan(&rows(&lengths), false).unwrap().from, 40 << 10);
    }

    #[test]
    fn what_lies_before_a_sealed_chunk_and_what_ended_is_sealed() {
        let mut apart = rows(&[10, 10]);
        apart[1].byte_offset = 5000;
        assert_eq!(
            plan(&apart, false).unwrap(),
            Merge {
                from: 0,
                to: 10,
                sealed: true
            }
        );
        assert_eq!(
            plan(&rows(&[10, 10]), true).unwrap(),
            Merge {
                from: 0,
                to: 20,
                sealed: true
            }
        );
        assert_eq!(plan(&[], true), None);
        let mut torn = rows(&[10, 10]);
        torn[1].behind_gap = true;
        assert_eq!(
            plan(&torn, false).unwrap(),
            Merge {
                from: 0,
                to: 10,
                sealed: true
            }
        );
    }
}
