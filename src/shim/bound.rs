//! The bound on output that nobody has stored yet, and the return of space whose bytes were stored.
//!
//! Both punch holes into the output files: offsets stay, blocks go. Only the holder of the replica's lock does it.
//! What is given up unread is recorded durably before it goes, so that a reader who sees zeros can tell.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    ops::Range,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    time::Duration,
};

use nix::fcntl::{FallocateFlags, fallocate};
use trainyard_core::model::LogStream;

use super::folder::{Folder, STREAMS};

/// Holes are cut in blocks of this size.
const BLOCK: u64 = 4096;

/// Nobody may open an output file for writing, its owner included: a program that opens `/dev/stdout` anew would
/// truncate it and lose lines. Opening anew is refused; writing to the descriptor that it was given is not.
const MODE: u32 = 0o400;

pub struct Bound {
    folder: Folder,
    limit: u64,
    outputs: Vec<Output>,
    /// The lengths at which everything was stored and returned; until one changes there is nothing to do.
    settled: Option<Vec<u64>>,
}

struct Output {
    stream: LogStream,
    file: File,
    dropped: Vec<Range<u64>>,
    /// Everything before is a hole already.
    punched: u64,
}

/// Makes the output file that the replica writes to. It is there only once.
pub fn create_output(folder: &Folder, stream: LogStream) -> io::Result<File> {
    let path = folder.output(stream);
    match OpenOptions::new().append(true).create_new(true).mode(MODE).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_output(folder, stream),
        made => made,
    }
}

/// Opens an output file for appending and punching. Its owner must allow itself that for a moment.
fn open_output(folder: &Folder, stream: LogStream) -> io::Result<File> {
    let path = folder.output(stream);
    fs::set_permissions(&path, Permissions::from_mode(MODE | 0o200))?;
    let file = OpenOptions::new().append(true).open(&path);
    fs::set_permissions(&path, Permissions::from_mode(MODE))?;
    file
}

impl Bound {
    /// The outputs of a replica whose lock we hold.
    pub fn open(folder: &Folder, limit: u64) -> io::Result<Self> {
        let outputs = STREAMS
            .into_iter()
            .map(|stream| {
                Ok(Output {
                    stream,
                    file: open_output(folder, stream)?,
                    dropped: folder.dropped(stream)?,
                    punched: 0,
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            folder: folder.clone(),
            limit,
            outputs,
            settled: None,
        })
    }

    /// Returns stored space, and drops the oldest unstored output beyond the bound. Says when to look again: sooner
    /// the closer the bound is.
    pub fn hold(&mut self) -> io::Result<Duration> {
        let lengths: Vec<u64> = self.outputs.iter().map(Output::length).collect::<io::Result<_>>()?;
        if self.settled.as_ref() == Some(&lengths) {
            return Ok(until_full(self.limit));
        }
        let mut unstored = Vec::new();
        for (output, &length) in self.outputs.iter_mut().zip(&lengths) {
            let given = self.folder.given_back(output.stream)?;
            output.return_space(given.min(length))?;
            let kept = output
                .dropped
                .last()
                .map_or(given, |last| given.max(last.end))
                .min(length);
            unstored.push(kept..length);
        }
        let mut excess = unstored.iter().map(size).sum::<u64>().saturating_sub(self.limit);
        if excess > 0 {
            // A little more than needed, so that a flood does not cost a record per look.
            excess += self.limit / 8;
            // The larger backlog gives first.
            let mut order: Vec<usize> = (0..unstored.len()).collect();
            order.sort_by_key(|&index| std::cmp::Reverse(size(&unstored[index])));
            for index in order {
                let range = &unstored[index];
                let end = (range.start + excess.min(size(range))) / BLOCK * BLOCK;
                if end > range.start {
                    self.outputs[index].drop_unread(&self.folder, range.start..end)?;
                    excess = excess.saturating_sub(end - range.start);
                }
            }
        }
        let backlog: u64 = unstored.iter().map(size).sum();
        self.settled = (backlog == 0).then_some(lengths);
        Ok(until_full(self.limit.saturating_sub(backlog)))
    }
}

/// How soon a flood could fill this much.
fn until_full(room: u64) -> Duration {
    const FASTEST: u64 = 2 << 30;
    let seconds = room as f64 / FASTEST as f64;
    Duration::from_secs_f64(seconds.clamp(0.05, 2.0))
}

impl Output {
    fn return_space(&mut self, before: u64) -> io::Result<()> {
        let end = before / BLOCK * BLOCK;
        if end > self.punched {
            punch(&self.file, self.punched..end)?;
            self.punched = end;
        }
        Ok(())
    }

    fn drop_unread(&mut self, folder: &Folder, range: Range<u64>) -> io::Result<()> {
        let given = folder.given_back(self.stream)?;
        // Whoever stored past a range was told of it.
        let mut dropped: Vec<_> = self.dropped.iter().filter(|old| old.end > given).cloned().collect();
        match dropped.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => dropped.push(range.clone()),
        }
        folder.write_dropped(self.stream, &dropped)?;
        // Only what is on record is gone, also to ourselves.
        self.dropped = dropped;
        punch(&self.file, range.start / BLOCK * BLOCK..range.end)?;
        folder.reserve_dropped(self.stream)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

fn size(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file, flags, range.start as i64, size(&range) as i64) {
        // A file system without holes keeps the bytes; the record still holds, and readers obey it.
        Err(nix::errno::Errno::EOPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn the_oldest_unstored_output_goes_and_its_range_is_written_down() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(place.path());
        let mut stdout = create_output(&folder, LogStream::Stdout).expect("stdout");
        create_output(&folder, LogStream::Stderr).expect("stderr");
        stdout.write_all(&vec![b'x'; 1 << 20]).expect("written");
        let mut bound = Bound::open(&folder, 256 << 10).expect("opened");

        bound.hold().expect("held");
        let dropped = folder.dropped(LogStream::Stdout).expect("read");
        assert_eq!(dropped, vec![0..(1 << 20) - (256 << 10) + (32 << 10)]);
        let meta = fs::metadata(folder.output(LogStream::Stdout)).expect("there");
        assert_eq!(meta.len(), 1 << 20);
        assert!(meta.blocks() * 512 <= 256 << 10, "{} blocks are left", meta.blocks());

        // Nothing more goes while nothing more comes, and later drops extend or follow the first.
        bound.hold().expect("held");
        assert_eq!(folder.dropped(LogStream::Stdout).expect("read"), dropped);
        folder
            .write_given_back(LogStream::Stdout, (1 << 20) - 5)
            .expect("given");
        stdout.write_all(&vec![b'y'; 1 << 20]).expect("written");
        bound.hold().expect("held");
        let later = folder.dropped(LogStream::Stdout).expect("read");
        assert_eq!(later.len(), 1, "the range that was stored past is forgotten: {later:?}");
        assert_eq!(later[0].start, (1 << 20) - 5);
    }
}
