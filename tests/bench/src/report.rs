//! The order in which things are measured, and the table that is printed: each target, and whether it is reached.

use crate::{
    Fault, Part, Run, cpu,
    ground::{CONNECTIONS, Ground, Server},
    logs::{self, Reading},
    records::{Both, Deed, Line},
    start::{self, Idle},
    tails::{self, Tails},
};

const FEW: i64 = 10_000;

pub async fn all(run: &Run) -> Result<(), Fault> {
    let wants = |part: Part| run.only.is_empty() || run.only.contains(&part);
    let ground = Ground::make(run).await?;
    head(run, &ground).await?;
    let mut told = Told::default();

    if wants(Part::Start) {
        let (serve, up) = start::measure(run).await?;
        idle(&mut told, "serve", serve);
        idle(&mut told, "up", up);
    }
    if wants(Part::Records) {
        records(run, &ground, &mut told).await?;
    }
    if wants(Part::Logs) || wants(Part::Tails) {
        // The jobs of the part before have no processes to wait for: they are out of the way of the queue.
        sqlx::query("delete from tasks where kind = 'job'")
            .execute(&ground.pool)
            .await?;
        sqlx::query("update jobs set phase = 'cancelled', reason = 'bench', ended_at = now() where ended_at is null")
            .execute(&ground.pool)
            .await?;
        // What that leaves to clean up would be done by the database beside what is measured next.
        for statement in ["vacuum analyze", "checkpoint"] {
            sqlx::query(statement).execute(&ground.pool).await?;
        }
        let up = Server::trainyard(run, "up")?;
        up.ready("/readyz").await?;
        if wants(Part::Logs) {
            println!("\nStored log read");
            for reading in logs::measure(run, &ground, &up).await? {
                read(&mut told, &reading);
            }
        }
        if wants(Part::Tails) {
            println!("\nTails: one stream of 100 lines/s");
            for readers in [1, 100, 1000] {
                tail(&mut told, &tails::measure(run, &ground, &up, readers).await?);
            }
        }
        up.stop().await?;
    }
    told.end();
    Ok(())
}

async fn head(run: &Run, ground: &Ground) -> Result<(), Fault> {
    let version: String = sqlx::query_scalar("show server_version")
        .fetch_one(&ground.pool)
        .await?;
    let fsync: String = sqlx::query_scalar("show fsync").fetch_one(&ground.pool).await?;
    let processors = std::thread::available_parallelism().map_or(0, |count| count.get());
    println!(
        "{}  {processors} processors, load average {:.1} before; PostgreSQL {version}, fsync {fsync}, {CONNECTIONS} connections each{}",
        chrono::Utc::now().format("%Y-%m-%d %H:%M UTC"),
        cpu::load_average(),
        if run.quick { "; short rounds" } else { "" },
    );
    println!("Load, both servers and Postgres share this machine. CPU is milliseconds of processor per good answer.\n");
    Ok(())
}

async fn records(run: &Run, ground: &Ground, told: &mut Told) -> Result<(), Fault> {
    let both = Both {
        run,
        ground,
        bare: Server::baseline(run)?,
        ours: Server::trainyard(run, "serve")?,
    };
    both.ours.ready("/readyz").await?;
    ground.fill(FEW).await?;
    both.bare.ready("/jobs").await?;

    println!("\n{HEAD}");
    for connections in [1, 16, 64, 256] {
        let line = both.compare(Deed::Newest, FEW, connections).await?;
        target(told, &line);
        if connections == 16 {
            told.few = Some(line);
        }
    }
    for deed in [Deed::Get, Deed::Create] {
        for connections in [1, 16, 64, 256] {
            target(told, &both.compare(deed, FEW, connections).await?);
        }
    }
    let many = if run.quick { 100_000 } else { 1_000_000 };
    // What the rounds of creating left is newer than what is filled in, and is not what is measured.
    sqlx::query("truncate tasks").execute(&ground.pool).await?;
    ground.fill(many).await?;
    for connections in [1, 16, 64, 256] {
        let line = both.compare(Deed::Newest, many, connections).await?;
        target(told, &line);
        if connections == 16
            && let Some(few) = &told.few
        {
            // The machine may be slower by now: what counts is the ratio to the bare server, then and now.
            let flat = line.ratio() / few.ratio();
            let words =
                format!("newest 50 at {many} jobs against {FEW}, both by their ratio: {flat:.2}, flat is >= 0.90");
            told.target(words, flat >= 0.9);
        }
    }
    let (kib, most) = cpu::memory(both.ours.pid());
    println!(
        "server after the load: {:.0} MiB resident, {:.0} MiB at most",
        kib as f64 / 1024.0,
        most as f64 / 1024.0
    );
    both.ours.stop().await?;
    both.bare.stop().await
}

const HEAD: &str = "                                 bare axum + sqlx                            Trainyard\n\
    deed            jobs    c |    rate     p50     p99  CPU srv   pg |    rate     p50     p99  CPU srv   pg | ratio  refused failed";

pub fn line(line: &Line) -> String {
    let side = |one: &crate::records::Measured| {
        format!(
            "{:7.0}/s {:6.2} {:7.2}    {:5.3} {:5.3}",
            one.rate, one.p50, one.p99, one.server, one.postgres
        )
    };
    format!(
        "{:<11} {:>8} {:>4} | {} | {} | {:5.2} {:8} {:6}",
        line.deed.words(),
        line.jobs,
        line.connections,
        side(&line.bare),
        side(&line.ours),
        line.ratio(),
        line.ours.refused,
        line.ours.failed
    )
}

fn target(told: &mut Told, line: &Line) {
    let least = match (line.deed, line.connections) {
        (Deed::Create, 16) => 1.0,
        (Deed::Create, 64) => 1.2,
        (Deed::Get, 16) => 0.8,
        (Deed::Newest, 16) => 0.9,
        (_, 256) => {
            let words = format!(
                "{} with {} jobs at c = 256: p99 {:.0} ms, {} refused early, {} failed: no cliff is p99 <= 2000 ms and none failed",
                line.deed.words(),
                line.jobs,
                line.ours.p99,
                line.ours.refused,
                line.ours.failed
            );
            told.target(words, line.ours.p99 <= 2000.0 && line.ours.failed == 0);
            return;
        }
        _ => return,
    };
    let words = format!(
        "{} with {} jobs at c = {}: {:.2} of the bare server, to reach: {least:.1}",
        line.deed.words(),
        line.jobs,
        line.connections,
        line.ratio()
    );
    told.target(words, line.ratio() >= least);
}

fn idle(told: &mut Told, command: &str, idle: Idle) {
    let mib = idle.kib as f64 / 1024.0;
    println!(
        "{command}: {:.3} s from exec to /readyz; idle {mib:.1} MiB, {:.2} % of a processor",
        idle.seconds_to_ready,
        idle.processor * 100.0
    );
    told.target(
        format!(
            "{command}: exec to /readyz {:.3} s, to reach: 0.2",
            idle.seconds_to_ready
        ),
        idle.seconds_to_ready <= 0.2,
    );
    told.target(format!("{command}: idle {mib:.1} MiB, to reach: 30"), mib <= 30.0);
    told.target(
        format!("{command}: idle {:.2} % CPU, to reach: 1", idle.processor * 100.0),
        idle.processor <= 0.01,
    );
}

fn read(told: &mut Told, reading: &Reading) {
    println!(
        "{:<26} {} lines, {:.0} MiB: {:.2} M lines/s, {:.0} ms of processor per million",
        reading.how,
        reading.lines,
        reading.mib,
        reading.lines_per_second / 1e6,
        reading.server
    );
    told.target(
        format!(
            "stored log read, {}: {:.2} M lines/s, to reach: 1",
            reading.how,
            reading.lines_per_second / 1e6
        ),
        reading.lines_per_second >= 1e6,
    );
}

fn tail(told: &mut Told, tails: &Tails) {
    println!(
        "{:>5} readers: {} lines, delay p50 {:.1} p99 {:.1} most {:.0} ms, {} lost, {} broken; {:.0} MiB, {:.0} % of a processor",
        tails.readers,
        tails.lines,
        tails.p50,
        tails.p99,
        tails.most,
        tails.lost,
        tails.broken,
        tails.kib as f64 / 1024.0,
        tails.processor * 100.0
    );
    told.target(
        format!(
            "{} tails: p99 {:.0} ms, {} lost, {} broken, to reach: 100 ms and none",
            tails.readers, tails.p99, tails.lost, tails.broken
        ),
        tails.p99 <= 100.0 && tails.lost == 0 && tails.broken == 0,
    );
}

/// Targets with what came of them.
#[derive(Default)]
struct Told {
    targets: Vec<(String, bool)>,
    few: Option<Line>,
}

impl Told {
    fn target(&mut self, words: String, reached: bool) {
        self.targets.push((words, reached));
    }

    fn end(&self) {
        println!("\nTargets");
        for (words, reached) in &self.targets {
            println!("{}  {words}", if *reached { "reached    " } else { "NOT REACHED" });
        }
        let reached = self.targets.iter().filter(|(_, reached)| *reached).count();
        println!(
            "{reached} of {} targets reached; load average {:.1} at the end",
            self.targets.len(),
            cpu::load_average()
        );
    }
}
