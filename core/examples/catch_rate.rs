//! How many lines a second one core reads: `cargo run --release -p trainyard-core --example catch_rate`.

use std::{hint::black_box, time::Instant};

use trainyard_core::{catch::Catcher, document::job::Metrics};

fn main() {
    let Ok(catcher) = Catcher::new(&Metrics::default()) else {
        return;
    };
    for line in [
        "2026-11-30 12:00:00,123 INFO [rank0] loaded shard 17 of 256 from /data/shards/train-00017.bin in the usual way",
        "step=120 loss=0.31 lr=0.0001",
        r#"{"step": 120, "loss": 0.31, "lr": 0.0001}"#,
        " 24%|██▍       | 120/500 [00:12<00:38,  9.87it/s]",
    ] {
        let start = Instant::now();
        let held = (0..1_000_000)
            .filter(|_| catcher.catch(black_box(line.as_bytes())).metric.is_some())
            .count();
        let rate = 1.0 / start.elapsed().as_secs_f64();
        println!("{rate:6.2} M lines/s, {held} of 1,000,000 held metrics: {line}");
    }
}
