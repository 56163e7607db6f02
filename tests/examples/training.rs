//! Ranks that train together.

use crate::yard::{Yard, example};

const WEIGHTS: &str = "weights sha256=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_that_train_do_so_together() {
    let yard = Yard::open().await;
    let alone = ("replicas: 2", "replicas: 1");
    let train = yard.submit(&example("train", &[("PACE: 0.22", "PACE: 0")]));
    let train_alone = yard.submit(&example("train", &[("PACE: 0.22", "PACE: 0"), alone]));
    let quick = [
        ("STEPS: 150", "STEPS: 40"),
        ("PACE: 0.1", "PACE: 0"),
        ("cpu: 1,", "cpu: 500m,"),
    ];
    let four = [&quick[..], &[("replicas: 2", "replicas: 4")]].concat();
    let one = [&quick[..], &[alone]].concat();
    let torch = yard.submit(&example("pytorch", &four));
    let torch_alone = yard.submit(&example("pytorch", &one));
    let sums = yard.submit(&example("allreduce", &[]));
    // In the committed one only rank 0 tells its steps.
    let mpi = yard.submit(&example("mpi", &[("if rank == 0:", "if rank >= 0:")]));

    yard.succeeded(&train).await;
    yard.succeeded(&train_alone).await;
    equal_weights(&yard, "train, standard library", &train, 2, &train_alone).await;

    yard.succeeded(&torch).await;
    yard.succeeded(&torch_alone).await;
    equal_weights(&yard, "pytorch, gloo", &torch, 4, &torch_alone).await;

    yard.succeeded(&sums).await;
    for rank in 0..4 {
        let said = yard.said(&sums, rank, &format!("rank {rank} of 4: ")).await;
        assert_eq!(said, "all-reduce of rank + 1 gave 10, as expected");
    }
    let fastest = yard.lines(&sums, 0).await;
    println!(
        "allreduce: 4 of 4 ranks got 10; rank 0 last said: {}",
        fastest.last().expect("a line")
    );

    yard.succeeded(&mpi).await;
    let mut last = String::new();
    for rank in 0..4 {
        // As mpirun mixes them, a line may hold what several ranks printed; whose it is, it has a tag of.
        let said = yard.run("logs", &[&mpi, "--rank", &rank.to_string()], "");
        let lines: Vec<&str> = said.lines().collect();
        let tag = format!(",{rank}]<stdout>:");
        assert!(lines.iter().all(|line| line.contains(&tag)), "{said}");
        for words in [format!("rank {rank} of 4 on"), "step=1 ".into(), "step=20 ".into()] {
            assert!(said.contains(&words), "no {words}: {said}");
        }
        let end = lines.last().expect("a line");
        let tail = yard.run("logs", &[&mpi, "--rank", &rank.to_string(), "--tail", "1"], "");
        assert_eq!(&tail.trim_end(), end);
        last = lines
            .iter()
            .rfind(|line| line.contains("step=20 "))
            .expect("the last round")
            .to_string();
        let found = yard
            .get(&mpi, &format!("logs/search?rank={rank}&pattern=step%3D20"))
            .await;
        let found = found["groups"][0]["lines"].as_array().expect("lines").len();
        assert!(
            (1..=4).contains(&found),
            "{found} lines have the last round of rank {rank}"
        );
    }
    let none = yard.get(&mpi, "logs?rank=4").await;
    assert_eq!(none["items"].as_array().map(Vec::len), Some(0), "{none:#}");
    println!("mpi: 4 ranks under mpirun; the last round: {last}");
    let metrics = yard.get(&mpi, "metrics?series=pi").await;
    let mut series: Vec<(String, usize)> = Vec::new();
    for item in metrics["items"].as_array().expect("items") {
        let place = format!("{}-{}", item["role"].as_str().unwrap_or_default(), item["index"]);
        series.push((place, item["values"].as_array().expect("values").len()));
    }
    series.sort();
    let wanted: Vec<_> = (0..4).map(|rank| (format!("rank-{rank}"), 20)).collect();
    assert_eq!(series, wanted, "{metrics:#}");
    println!("mpi: points of pi by rank: {series:?}");
    // The page of its output leads to what each rank says.
    let address = format!("/jobs/{mpi}/logs?attempt=1");
    let whole = yard.page(&address).await;
    assert!(whole.contains("Rank of mpirunall0123"), "{whole}");
    let third = yard.page(&format!("{address}&rank=3")).await;
    let said = yard.run("logs", &[&mpi], "");
    for line in said.lines().filter_map(|line| line.strip_prefix("launcher-0 | ")) {
        let wanted = line.contains(",3]<stdout>:");
        // What says no more than a tag may be the beginning of another line.
        assert!(line.len() < 20 || third.contains(line) == wanted, "{line}: {third}");
    }
}

/// Gradients crossed from rank to rank: all end with the same weights, which one rank alone does not reach.
async fn equal_weights(yard: &Yard, what: &str, job: &str, ranks: i64, alone: &str) {
    let first = yard.said(job, 0, WEIGHTS).await;
    for rank in 1..ranks {
        assert_eq!(
            yard.said(job, rank, WEIGHTS).await,
            first,
            "{what}: rank {rank} has other weights"
        );
    }
    let single = yard.said(alone, 0, WEIGHTS).await;
    assert_ne!(
        single, first,
        "{what}: one rank alone came to the same, so nothing was exchanged"
    );
    println!("{what}: weights {first} on {ranks} of {ranks} ranks; one rank alone has {single}");
}
