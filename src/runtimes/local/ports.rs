//! Ports that no two attempts of this machine share.
//!
//! A port is reserved by a file of its name, made exclusively, before it is written into the attempt's record. Ports
//! come from below the range that the kernel gives to outgoing connections, so that none is taken by chance between
//! the choice and the moment when rank 0 listens.

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    ops::Range,
    path::Path,
};

use trainyard_core::model::AttemptId;

/// Reserves `count` free ports for an attempt. The search starts at a place that derives from its id, so attempts of
/// other installations on this machine look elsewhere.
pub fn reserve(folder: &Path, attempt: AttemptId, count: usize) -> io::Result<Vec<u16>> {
    let range = range();
    let size = u128::from(range.end - range.start);
    // The low bits of the id are random.
    let first = (attempt.0.as_u128() & 0xffff_ffff) % size;
    let mut found = Vec::with_capacity(count);
    for step in 0..size {
        if found.len() == count {
            break;
        }
        let port = range.start + ((first + step) % size) as u16;
        if is_free(port) && take(folder, port, attempt)? {
            found.push(port);
        }
    }
    if found.len() == count {
        return Ok(found);
    }
    release(folder, attempt)?;
    Err(io::Error::other(format!(
        "no {count} free ports between {} and {}",
        range.start, range.end
    )))
}

/// Gives the ports of an attempt back.
pub fn release(folder: &Path, attempt: AttemptId) -> io::Result<()> {
    retain(folder, |holder| holder != Some(attempt))
}

/// Gives back the ports of attempts that are not there any more.
pub fn sweep(folder: &Path, present: &[AttemptId]) -> io::Result<()> {
    retain(folder, |holder| {
        holder.is_some_and(|attempt| present.contains(&attempt))
    })
}

fn retain(folder: &Path, keep: impl Fn(Option<AttemptId>) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let holder = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
        if !keep(holder) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// True if the port is now, or was already, this attempt's. The file appears whole, under its name, or not at all.
fn take(folder: &Path, port: u16, attempt: AttemptId) -> io::Result<bool> {
    let path = folder.join(port.to_string());
    let draft = folder.join(format!(".{attempt}"));
    fs::write(&draft, attempt.to_string())?;
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(fs::read_to_string(&path).is_ok_and(|holder| holder == attempt.to_string()))
        }
        Err(error) => Err(error),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && !matches!(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse)
}

fn range() -> Range<u16> {
    const LOWEST: u16 = 20_000;
    const ENOUGH: u16 = 2_000;
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse::<u16>().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), _) if low >= LOWEST + ENOUGH => LOWEST..low,
        (_, Some(high)) if high < u16::MAX - ENOUGH => high + 1..u16::MAX,
        _ => LOWEST..32_768,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trainyard_core::model::AttemptId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn attempts_that_start_at_the_same_place_still_get_different_ports() {
        let folder = tempfile::tempdir().expect("a folder");
        let attempts: Vec<_> = (0..8u128)
            .map(|high| AttemptId(Uuid::from_u128(high << 64 | 77)))
            .collect();
        let mut seen = BTreeSet::new();
        for &attempt in &attempts {
            let ports = reserve(folder.path(), attempt, 3).expect("ports");
            // A start that was killed before it wrote its record finds the same ones.
            assert_eq!(reserve(folder.path(), attempt, 3).expect("again"), ports);
            assert!(ports.into_iter().all(|port| seen.insert(port)));
        }
        release(folder.path(), attempts[0]).expect("released");
        sweep(folder.path(), &attempts[1..3]).expect("swept");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 6);
    }
}
