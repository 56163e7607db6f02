//! What holds for every queue, and the simulation that holds the head's promise: no stream of small jobs starves it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Duration, Utc};

use super::{
    stories::{holder, job, node, start},
    *,
};
use crate::plan::chance::Chance;

#[test]
fn nothing_is_given_out_twice_and_every_job_is_answered_once() {
    for seed in 1..=1_500 {
        let mut chance = Chance::of(seed);
        let nodes: Vec<Node> = (1..=chance.between(0, 5))
            .map(|number| any_node(&mut chance, number))
            .collect();
        let queue: Vec<Waiting> = (100..100 + chance.between(0, 30))
            .map(|number| any_job(&mut chance, number))
            .collect();
        let mut holders: Vec<Holder> = Vec::new();
        let mut waiting = queue.clone();
        // Three calls, so that holders and reservations of a life's middle occur too.
        for call in 0..3 {
            let now = start() + Duration::minutes(500 + call);
            let admissions = admit(&waiting, &holders, &nodes, now, LookAhead::default());
            check(seed, &waiting, &holders, &nodes, &admissions, now);

            let mut shuffled = (waiting.clone(), holders.clone(), nodes.clone());
            shuffle(&mut chance, &mut shuffled.0);
            shuffle(&mut chance, &mut shuffled.1);
            shuffle(&mut chance, &mut shuffled.2);
            let again = admit(&shuffled.0, &shuffled.1, &shuffled.2, now, LookAhead::default());
            assert_eq!(admissions, again, "seed {seed}: the order of the input matters");

            for admitted in &admissions.admitted {
                let place = waiting.iter().position(|job| job.job == admitted.job).unwrap();
                holders.push(holder(&waiting.remove(place), &admitted.replicas, now));
            }
            holders.retain(|_| !chance.one_in(3));
        }
    }
}

/// The times are printed, not judged.
#[test]
fn large_queues_and_clusters_are_decided_whole() {
    for (jobs, nodes, shapes) in [(1_000, 1, 6), (100_000, 1, 6), (1_000, 1, 1_000), (2_000, 5_000, 30)] {
        let mut chance = Chance::of(jobs);
        let nodes: Vec<Node> = (1..=nodes).map(|number| node(number, 64, 8)).collect();
        let any = |number, chance: &mut Chance| match shapes {
            1_000 => job(number, 1 + (number % 2) as u32, 1 + number % 40, number % 9),
            _ => job(number, chance.between(1, shapes) as u32, 8, chance.between(1, 8)),
        };
        let queue: Vec<Waiting> = (0..jobs).map(|number| any(number, &mut chance)).collect();
        let began = std::time::Instant::now();
        let now = start() + Duration::days(3_000);
        let admissions = admit(&queue, &[], &nodes, now, LookAhead::default());
        println!("{jobs} jobs, {} nodes: {:?}", nodes.len(), began.elapsed());
        let answered = admissions.admitted.len() + admissions.waiting.len() + admissions.beyond;
        assert_eq!(answered as u64, jobs);
        assert!(!admissions.admitted.is_empty());
    }
}

fn check(
    seed: u64,
    queue: &[Waiting],
    holders: &[Holder],
    nodes: &[Node],
    admissions: &Admissions,
    now: DateTime<Utc>,
) {
    let answered: BTreeSet<JobId> = admissions
        .admitted
        .iter()
        .map(|admitted| admitted.job)
        .chain(admissions.waiting.iter().map(|waiting| waiting.job))
        .collect();
    assert_eq!(answered.len(), queue.len(), "seed {seed}");
    assert_eq!(
        admissions.admitted.len() + admissions.waiting.len(),
        queue.len(),
        "seed {seed}"
    );

    let mut held: BTreeMap<NodeId, (Amount, Vec<u32>)> = BTreeMap::new();
    let mut hold = |node: NodeId, amount: &Amount, gpus: &[u32]| {
        let (sum, indices) = held.entry(node).or_default();
        sum.cpu_milli += amount.cpu_milli;
        sum.memory_bytes += amount.memory_bytes;
        sum.gpus += amount.gpus;
        indices.extend(gpus);
    };
    for part in holders.iter().flat_map(|holder| &holder.parts) {
        hold(part.node, &part.amount, &part.gpus);
    }
    for admitted in &admissions.admitted {
        let job = queue.iter().find(|job| job.job == admitted.job).unwrap();
        assert!(
            job.not_before.is_none_or(|due| due <= now),
            "seed {seed}: started in its backoff"
        );
        let replicas: u32 = job.roles.iter().map(|role| role.replicas).sum();
        assert_eq!(admitted.replicas.len() as u32, replicas, "seed {seed}: a gang in part");
        for (rank, placed) in admitted.replicas.iter().enumerate() {
            assert_eq!(placed.rank, rank as u32);
            let role = job.roles.iter().find(|role| role.role == placed.key.role).unwrap();
            assert_eq!(
                placed.gpus.len() as u64,
                role.each.gpus,
                "seed {seed}: GPUs without numbers"
            );
            hold(placed.node, &role.each, &placed.gpus);
        }
    }
    for (id, (sum, indices)) in held {
        let node = nodes.iter().find(|node| node.id == id).unwrap();
        let within = sum.cpu_milli <= node.capacity.cpu_milli
            && sum.memory_bytes <= node.capacity.memory_bytes
            && sum.gpus <= node.capacity.gpus;
        assert!(within, "seed {seed}: {sum:?} on {:?}", node.capacity);
        let once: BTreeSet<u32> = indices.iter().copied().collect();
        assert_eq!(once.len(), indices.len(), "seed {seed}: a GPU given twice");
        assert!(once.iter().all(|gpu| node.gpus.contains(gpu)), "seed {seed}");
    }
    let heads = admissions
        .waiting
        .iter()
        .filter(|waiting| matches!(waiting.hold, Hold::NoRoom { .. }))
        .count();
    let behind = admissions
        .waiting
        .iter()
        .filter(|waiting| matches!(waiting.hold, Hold::Behind { .. }))
        .count();
    assert!(
        heads <= 1 && (heads == 1 || behind == 0),
        "seed {seed}: {heads} heads, {behind} behind"
    );
    for waiting in &admissions.waiting {
        if let Hold::NoRoom { must_end, .. } = &waiting.hold {
            assert!(!must_end.is_empty(), "seed {seed}: a head that waits for nobody");
        }
    }
}

fn any_node(chance: &mut Chance, number: u64) -> Node {
    node(number, chance.between(1, 16), chance.between(0, 8) as u32)
}

fn any_job(chance: &mut Chance, number: u64) -> Waiting {
    let mut any = job(
        number,
        chance.between(1, 5) as u32,
        chance.between(1, 6),
        chance.between(0, 4),
    );
    any.priority = chance.between(0, 3) as i32;
    if chance.one_in(4) {
        let mut second = any.roles[0].clone();
        second.role = "ps".into();
        second.each = Amount {
            cpu_milli: chance.between(1, 4_000),
            memory_bytes: 1 << 30,
            ..Amount::default()
        };
        any.roles.push(second);
    }
    if chance.one_in(5) {
        any.not_before = Some(start() + Duration::minutes(chance.between(490, 510) as i64));
    }
    if chance.one_in(3) {
        any.longest_hold = Some(Duration::minutes(chance.between(1, 100) as i64));
    }
    any
}

fn shuffle<T>(chance: &mut Chance, items: &mut [T]) {
    for place in (1..items.len()).rev() {
        items.swap(place, chance.between(0, place as u64) as usize);
    }
}

#[test]
fn under_an_endless_stream_of_small_jobs_every_large_one_starts_within_its_bound() {
    let (mut passed_by, mut longest) = (0, 0);
    for seed in 1..=25 {
        let mut yard = Yard::open(seed);
        passed_by += yard.run();
        longest = longest.max(yard.longest);
    }
    println!("{passed_by} small jobs passed; the longest wait of a head was {longest} ends");
    // Backfill is worth something: small jobs do pass while the large ones wait.
    assert!(passed_by > 1_000, "only {passed_by} small jobs passed");
}

/// Since a large job is the head: how many jobs have ended, and how many may.
struct Head {
    ends: usize,
    bound: usize,
}

/// A cluster whose queue is never empty of small jobs, and into which large ones come. Every job is of one
/// priority. Each ends at a moment of its own, and those that promise an end keep it.
struct Yard {
    seed: u64,
    chance: Chance,
    nodes: Vec<Node>,
    now: DateTime<Utc>,
    queue: Vec<Waiting>,
    running: Vec<(Holder, DateTime<Utc>)>,
    head: Option<JobId>,
    /// The most ends that any head has waited for.
    longest: usize,
    next: u64,
}

impl Yard {
    fn open(seed: u64) -> Self {
        let mut chance = Chance::of(seed);
        let nodes = (1..=chance.between(1, 5)).map(|number| node(number, 64, 8)).collect();
        Self {
            seed,
            chance,
            nodes,
            now: start(),
            queue: Vec::new(),
            running: Vec::new(),
            head: None,
            longest: 0,
            next: 1,
        }
    }

    /// How many small jobs passed while a large one was the head.
    fn run(&mut self) -> u64 {
        let (mut waits, mut head): (Option<JobId>, Option<Head>) = (None, None);
        let (mut passed, mut served) = (0, 0);
        for _ in 0..1_500 {
            while self.queue.len() < 12 {
                let small = self.small();
                self.queue.push(small);
            }
            if waits.is_none() && self.chance.one_in(10) {
                let job = self.large();
                waits = Some(job.job);
                self.queue.push(job);
            }
            let admissions = self.admit();
            if admissions.iter().any(|&job| Some(job) == waits) {
                served += 1;
                (waits, head) = (None, None);
            } else if head.is_some() {
                passed += admissions.len() as u64;
            }
            if head.is_none() && waits.is_some() && waits == self.head {
                // At most all that runs are elders, and a job has at least one GPU.
                let at_once = self.nodes.len() * 8;
                head = Some(Head {
                    ends: 0,
                    bound: (self.running.len() + 1) * at_once,
                });
            }
            self.one_ends();
            if let Some(head) = &mut head {
                head.ends += 1;
                assert!(
                    head.ends <= head.bound,
                    "seed {}: {waits:?} still waits after {}",
                    self.seed,
                    head.ends
                );
                self.longest = self.longest.max(head.ends);
            }
        }
        assert!(served > 10, "seed {}: {served} large jobs", self.seed);
        passed
    }

    fn small(&mut self) -> Waiting {
        let gpus = self.chance.between(1, 2);
        let replicas = self.chance.between(1, 2) as u32;
        let mut small = self.numbered(replicas, gpus);
        if self.chance.one_in(3) {
            small.longest_hold = Some(Duration::minutes(self.chance.between(5, 60) as i64));
        }
        small
    }

    fn large(&mut self) -> Waiting {
        let nodes = self.chance.between(1, self.nodes.len() as u64) as u32;
        let gpus = self.chance.between(6, 8);
        self.numbered(nodes, gpus)
    }

    fn numbered(&mut self, replicas: u32, gpus: u64) -> Waiting {
        self.next += 1;
        let mut one = job(self.next, replicas, 1, gpus);
        one.queued_at = self.now;
        one
    }

    fn admit(&mut self) -> Vec<JobId> {
        let holders: Vec<Holder> = self.running.iter().map(|(holder, _)| holder.clone()).collect();
        let admissions = admit(&self.queue, &holders, &self.nodes, self.now, LookAhead::default());
        self.head = admissions
            .waiting
            .iter()
            .find(|waiting| matches!(waiting.hold, Hold::NoRoom { .. }))
            .map(|head| head.job);
        let mut started = Vec::new();
        for admitted in admissions.admitted {
            let place = self.queue.iter().position(|job| job.job == admitted.job).unwrap();
            let job = self.queue.remove(place);
            let longest = job.longest_hold.map_or(240, |hold| hold.num_minutes() as u64);
            let ends_at = self.now + Duration::minutes(self.chance.between(1, longest) as i64);
            self.running.push((holder(&job, &admitted.replicas, self.now), ends_at));
            started.push(admitted.job);
        }
        started
    }

    fn one_ends(&mut self) {
        if let Some(place) = (0..self.running.len()).min_by_key(|&place| self.running[place].1) {
            let (_, at) = self.running.swap_remove(place);
            self.now = self.now.max(at);
        }
        self.now += Duration::seconds(1);
    }
}
