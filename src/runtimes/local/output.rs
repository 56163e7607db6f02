//! Reading what replicas wrote, and giving the space back. Blocking.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use bytes::{Bytes, BytesMut};
use trainyard_core::model::AttemptId;

use super::{Inner, observe};
use crate::{
    runtimes::{OutputRef, OutputState},
    shim::{
        bound::Bound,
        folder::{Folder, STREAMS},
    },
};

pub fn outputs(inner: &Inner, attempt: AttemptId) -> io::Result<Vec<OutputState>> {
    let folder = inner.layout.attempt(attempt);
    let mut found = Vec::new();
    let Some(record) = folder.record()? else {
        return Ok(found);
    };
    for replica in record.replicas {
        let place = folder.replica(&replica.key);
        // Looked at before the length, so that the length of an ended stream is its last.
        let ended = matches!(
            observe::look(&place)?,
            observe::Known::Failed(_) | observe::Known::Ended(..) | observe::Known::Lost(_)
        );
        for stream in STREAMS {
            let Some(length) = length(&place.output(stream))? else {
                continue;
            };
            found.push(OutputState {
                output: OutputRef {
                    attempt,
                    key: replica.key.clone(),
                    incarnation: replica.incarnation,
                    stream,
                },
                length,
                ended,
                dropped: place.dropped(stream)?,
            });
        }
    }
    Ok(found)
}

fn length(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn read(inner: &Inner, output: &OutputRef, offset: u64, limit: usize) -> io::Result<Bytes> {
    let folder = replica(inner, output);
    let file = match File::open(folder.output(output.stream)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes::new()),
        Err(error) => return Err(error),
    };
    let there = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = BytesMut::zeroed(limit.min(usize::try_from(there).unwrap_or(usize::MAX)));
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // A range is recorded before its bytes go. So if none that we read is recorded now, all of them were real.
    let end = offset + filled as u64;
    for range in folder.dropped(output.stream)? {
        if range.start < end && range.end > offset {
            filled = filled.min(range.start.saturating_sub(offset) as usize);
        }
    }
    bytes.truncate(filled);
    Ok(bytes.freeze())
}

pub fn give_back(inner: &Inner, output: &OutputRef, offset: u64) -> io::Result<()> {
    let folder = replica(inner, output);
    if !folder.path().exists() || offset <= folder.given_back(output.stream)? {
        return Ok(());
    }
    folder.write_given_back(output.stream, offset)?;
    // While its shim lives, that returns the space. After the end nobody else wants the lock.
    let has_ended = folder.exited()?.is_some() || folder.failed()?.is_some();
    if has_ended
        && let Some(_lock) = folder.lock()?
        && let Some(spec) = folder.spec()?
    {
        Bound::open(&folder, spec.output_bound)?.hold()?;
    }
    Ok(())
}

fn replica(inner: &Inner, output: &OutputRef) -> Folder {
    inner.layout.attempt(output.attempt).replica(&output.key)
}
