//! This machine as a node: what it has, how it is, and what its replicas use, looked at every few seconds.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trainyard_core::{
    model::{AttemptId, JobId, ReplicaKey, Retention},
    plan::node,
};
use uuid::Uuid;

use super::{WorkError, local::Local};
use crate::{
    db::{
        DbError, attempts,
        clusters::{self, NodeSight},
        conditions,
        events::Subject,
        holdings::{self, Holding},
        logs::JobKey,
        metrics::{self, Owner, Point, SeriesKey},
        notify,
        tasks::{self, TaskKind},
    },
    machine::{self, Machine, Sample},
    runtimes::Runtime,
};

const LOOK: Duration = Duration::from_secs(5);

/// Looks until the holding is over.
pub async fn look_often(local: Arc<Local>, holding: Holding, over: CancellationToken) {
    let mut machine = match tokio::task::spawn_blocking(Machine::open).await {
        Ok(Ok(machine)) => machine,
        Ok(Err(error)) => return tracing::error!(%error, "this machine can't be looked at"),
        Err(error) => return tracing::error!(%error, "this machine can't be looked at"),
    };
    let mut use_before = Use::default();
    loop {
        let started = Instant::now();
        // Disks and sensors block; the machine travels to a thread for that and comes back.
        let look = tokio::task::spawn_blocking(move || {
            let sample = machine.sample();
            (machine, sample)
        });
        let sample = match look.await {
            Ok((back, sample)) => {
                machine = back;
                sample
            }
            Err(error) => return tracing::error!(%error, "looking at this machine failed"),
        };
        if let Err(error) = see(&local, &holding, &machine, &sample).await {
            tracing::debug!(%error, "could not write down how this machine is");
        }
        if let Err(error) = count(&local, &holding, &mut use_before).await {
            tracing::debug!(%error, "could not write down what replicas use");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK.saturating_sub(started.elapsed())) => {}
            () = over.cancelled() => return,
        }
    }
}

/// Writes the node, its conditions and its series, and that the cluster was looked at.
async fn see(local: &Local, holding: &Holding, machine: &Machine, sample: &Sample) -> Result<(), WorkError> {
    let worker = &local.worker;
    let now = worker.clock.now();
    let judged = node::judge(&sample.look(machine.cores(), &local.data), now);
    let capacity = json!({
        "cpu_milli": machine.cores() as u64 * 1000,
        "memory_bytes": sample.memory_total,
        "gpus": machine.gpu_count(),
    });
    let facts = local.runtime.facts();
    let sight = NodeSight {
        name: &machine::host_name(),
        identity: &worker.machine_id,
        ready: true,
        reason: "looked_at",
        message: "Its worker looks at it every few seconds",
        labels: json!({}),
        capacity: capacity.clone(),
        allocatable: capacity,
        facts: machine.facts(),
        usage: json!(sample),
    };
    let mut tx = worker.db.begin().await?;
    holdings::check(&mut tx, holding, now).await?;
    let (node, appeared) = clusters::see_node(&mut tx, local.cluster, Uuid::now_v7(), &sight, now).await?;
    clusters::see_cluster(&mut tx, local.cluster, &json!(facts), now).await?;
    for condition in judged {
        let condition = conditions::Condition {
            kind: condition.kind.to_owned(),
            status: condition.status,
            severity: condition.severity,
            reason: condition.reason.to_owned(),
            message: condition.message,
            evidence: json!({}),
            since: now,
        };
        conditions::set(&mut tx, Subject::Node(node), &condition, now).await?;
    }
    metrics::append(&mut tx, Owner::Node(node), &node_series(sample, now)).await?;
    if appeared {
        // Jobs that waited for a node can be placed and started now.
        tasks::poke(&mut tx, TaskKind::Queue, local.cluster.0, None, now).await?;
        tasks::poke_placing(&mut tx, now).await?;
    }
    tx.commit().await.map_err(DbError::from)?;
    if appeared {
        notify::send(worker.db.pool(), notify::TASKS, "").await?;
    }
    Ok(())
}

fn node_series(sample: &Sample, now: DateTime<Utc>) -> BTreeMap<SeriesKey, Vec<Point>> {
    let mut values: Vec<(String, f64)> = vec![
        ("cpu_percent".into(), sample.cpu_percent),
        (
            "memory_used_bytes".into(),
            sample.memory_total.saturating_sub(sample.memory_available) as f64,
        ),
        ("network_received_bytes".into(), sample.network_received as f64),
        ("network_sent_bytes".into(), sample.network_sent as f64),
    ];
    values.extend(sample.load.map(|load| ("load_1m".to_owned(), load[0])));
    if let Some(disk) = sample.disks.iter().find(|disk| disk.mount == "/") {
        values.push(("disk_used_bytes".into(), disk.total.saturating_sub(disk.free) as f64));
    }
    if let Some(hottest) = sample
        .sensors
        .iter()
        .map(|sensor| sensor.celsius)
        .max_by(f64::total_cmp)
    {
        values.push(("celsius".into(), hottest));
    }
    for gpu in &sample.gpus {
        let of = |what: &str| format!("gpu{}_{what}", gpu.index);
        values.extend(
            gpu.utilisation_percent
                .map(|percent| (of("percent"), f64::from(percent))),
        );
        values.extend(gpu.memory_used.map(|bytes| (of("memory_bytes"), bytes as f64)));
        values.extend(gpu.celsius.map(|celsius| (of("celsius"), celsius)));
    }
    let at = now.timestamp_millis();
    values
        .into_iter()
        .map(|(name, value)| {
            (
                SeriesKey {
                    attempt: 0,
                    replica: None,
                    name,
                },
                vec![Point { step: None, at, value }],
            )
        })
        .collect()
}

/// Processor seconds of each replica at the last look, from which its rate is told.
#[derive(Default)]
struct Use {
    cpu: BTreeMap<(AttemptId, ReplicaKey), (f64, Instant)>,
}

/// Writes what each live replica uses: `cpu_cores` and `memory_bytes`.
async fn count(local: &Local, holding: &Holding, before: &mut Use) -> Result<(), WorkError> {
    let worker = &local.worker;
    let live = attempts::live_on(&worker.db, local.cluster).await?;
    let mut cpu = BTreeMap::new();
    for live in live {
        let mut series = BTreeMap::new();
        let now = worker.clock.now();
        for (key, usage) in local.runtime.usage(live.id).await? {
            let this = (live.id, key.clone());
            let at = Instant::now();
            if let Some((seconds, then)) = before.cpu.get(&this) {
                let elapsed = at.duration_since(*then).as_secs_f64();
                let cores = (usage.cpu_seconds - seconds).max(0.0) / elapsed.max(0.001);
                put(&mut series, live.number, &key, "cpu_cores", cores, now);
            }
            put(
                &mut series,
                live.number,
                &key,
                "memory_bytes",
                usage.memory_bytes as f64,
                now,
            );
            cpu.insert(this, (usage.cpu_seconds, at));
        }
        if !series.is_empty() {
            append(local, holding, live.job, live.class, &series, now).await?;
        }
    }
    before.cpu = cpu;
    Ok(())
}

fn put(
    series: &mut BTreeMap<SeriesKey, Vec<Point>>,
    attempt: i32,
    replica: &ReplicaKey,
    name: &str,
    value: f64,
    now: DateTime<Utc>,
) {
    let key = SeriesKey {
        attempt,
        replica: Some(replica.clone()),
        name: name.to_owned(),
    };
    series.entry(key).or_default().push(Point {
        step: None,
        at: now.timestamp_millis(),
        value,
    });
}

async fn append(
    local: &Local,
    holding: &Holding,
    job: JobId,
    class: Retention,
    series: &BTreeMap<SeriesKey, Vec<Point>>,
    now: DateTime<Utc>,
) -> Result<(), WorkError> {
    let mut tx = local.worker.db.begin().await?;
    holdings::check(&mut tx, holding, now).await?;
    metrics::append(&mut tx, Owner::Job(JobKey::of_worker(job, class)), series).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}
