//! What this machine says of itself.

use trainyard::machine::{self, Machine};

#[test]
fn the_machine_is_known_by_a_digest_that_stays() {
    let data = tempfile::tempdir().expect("a folder");
    let id = machine::id(data.path()).expect("an id");
    assert_eq!(machine::id(data.path()).expect("again"), id);
    assert_eq!(id.len(), 32);
    if let Ok(raw) = std::fs::read_to_string("/etc/machine-id") {
        assert_ne!(raw.trim(), id, "the machine's own id is not for others to see");
    }
    assert_eq!(machine::boot_id(), trainyard::shim::process::boot_id().expect("read"));
}

#[test]
fn a_look_at_the_machine_is_plausible_and_serialises() {
    let mut machine = Machine::open().expect("opened");
    let sample = machine.sample();
    assert!(machine.cores() >= 1);
    assert!(
        sample.memory_total > 0 && sample.memory_available <= sample.memory_total,
        "{sample:?}"
    );
    assert!((0.0..=100.5).contains(&sample.cpu_percent), "{sample:?}");
    assert!(sample.disks.iter().all(|disk| disk.free <= disk.total), "{sample:?}");
    assert_eq!(sample.gpus.len(), machine.gpu_count() as usize);
    let text = serde_json::to_string(&sample).expect("JSON");
    let back: machine::Sample = serde_json::from_str(&text).expect("read back");
    assert_eq!((back.disks, back.memory_total), (sample.disks, sample.memory_total));
}
