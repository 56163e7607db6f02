//! How fast one core checks documents and reads lines: `cargo run --release -p trainyard-core --example rates`.

use std::{hint::black_box, time::Instant};

use trainyard_core::{
    catch::Catcher,
    document::{Format, check_job, job::Metrics, to_json},
};

const DOCUMENT: &str = "\
apiVersion: trainyard.dev/v1
kind: Job
name: train
framework: pytorch
labels: { project: vision, owner: ada }
roles:
  - name: worker
    replicas: 8
    command: [torchrun, train.py, --epochs, 10]
    image: registry.example.com/vision/train:1.4
    resources: { cpu: 8, memory: 64Gi, gpus: 8 }
env: { DATA: /data, NCCL_DEBUG: INFO }
restart: { max: 3, backoff: 30s }
deadlines: { queue: 2h, run: 2d }
";

fn main() {
    let Ok(document) = check_job(DOCUMENT, None) else {
        return;
    };
    let json = to_json(&document);
    for (name, text, format) in [("YAML", DOCUMENT, Format::Yaml), ("JSON", json.as_str(), Format::Json)] {
        let start = Instant::now();
        let clean = (0..20_000)
            .filter(|_| check_job(black_box(text), Some(format)).is_ok())
            .count();
        let each = start.elapsed().as_secs_f64() * 1e6 / 20_000.0;
        println!(
            "{each:6.1} us a {name} document of {} bytes, {clean} of 20,000 clean",
            text.len()
        );
    }
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
