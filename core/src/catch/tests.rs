use super::*;

fn catcher() -> Catcher {
    Catcher::new(&Metrics::default()).unwrap()
}

/// `step/total name=value ...`, or nothing.
fn told(line: &str) -> String {
    tell(&catcher().catch(line.as_bytes()))
}

fn tell(caught: &Caught) -> String {
    let mut words = Vec::new();
    if let Some(metric) = &caught.metric {
        let step = metric.step.map_or("-".to_owned(), |step| step.to_string());
        words.push(metric.total.map_or(step.clone(), |total| format!("{step}/{total}")));
        words.extend(metric.values.iter().map(|(name, value)| format!("{name}={value}")));
    }
    if let Some(checkpoint) = &caught.checkpoint {
        words.push(format!("checkpoint {} {}", checkpoint.step, checkpoint.path));
    }
    words.join(" ")
}

#[test]
fn metrics_in_every_documented_form() {
    for (line, expected) in [
        ("step=120 loss=0.31", "120 loss=0.31"),
        (
            "step=120 loss=0.31 lr=1e-4 acc=45% device=cuda:0",
            "120 loss=0.31 lr=0.0001 acc=45",
        ),
        ("step: 120, loss: 0.31", "120 loss=0.31"),
        (
            "step: 120, train loss: 0.31, val loss: 0.4",
            "120 train_loss=0.31 val_loss=0.4",
        ),
        ("INFO:train:step=7 loss=.5", "7 loss=0.5"),
        ("2026-11-30 12:00:00,123 INFO trainer step=7 loss=-2.5", "7 loss=-2.5"),
        ("[rank0] [2026-11-30T12:00:00Z] step=7 loss=3", "7 loss=3"),
        ("Step 120/5000 - loss 0.31", "120/5000 loss=0.31"),
        ("step 3 | loss 0.25 | val acc 0.5", "3 loss=0.25 val_acc=0.5"),
        ("[step 120/500] loss=0.31", "120/500 loss=0.31"),
        (
            "Global_Step=4 train/loss=1.5 grad.norm=2",
            "4 train/loss=1.5 grad.norm=2",
        ),
        ("iter 10: loss 0.5, time 12.5ms", ""),
        ("iter 10: loss=0.5, time 12.5ms", "10 loss=0.5"),
        ("step=5/100", "5/100"),
        ("step=9 loss=nan grad=inf low=-inf", "9 loss=NaN grad=inf low=-inf"),
        ("step 9 loss nan", "9 loss=NaN"),
        (
            r#"{"step": 12, "loss": 0.5, "name": "x", "inner": {"a": 1}}"#,
            "12 loss=0.5",
        ),
        (
            r#"{"step": 12, "checkpoint": "/c/12", "loss": 0.5}"#,
            "12 loss=0.5 checkpoint 12 /c/12",
        ),
        (
            "{'loss': 0.31, 'learning_rate': 5e-05, 'epoch': 0.5}",
            "- loss=0.31 learning_rate=0.00005 epoch=0.5",
        ),
        (r#"{"step": 12, "loss": NaN, "acc": Infinity}"#, "12 loss=NaN acc=inf"),
        ("{'step': 3, 'loss': 0.31}", "3 loss=0.31"),
        (
            " 24%|██▍       | 120/500 [00:12<00:38,  9.87it/s, loss=0.31]",
            "120/500 loss=0.31",
        ),
        (
            "Epoch 1:  24%|██▍       | 120/500 [00:12<00:38,  9.87it/s, loss=0.31, v_num=0]",
            "120/500 loss=0.31 v_num=0",
        ),
        ("step=1 loss=0.1 loss=0.2", "1 loss=0.1"),
        ("\u{1b}[32mstep=1\u{1b}[0m loss=\u{1b}[1;31m0.5\u{1b}[0m", "1 loss=0.5"),
        ("step=1 loss=9\rstep=2 loss=8\r", "2 loss=8"),
        ("step=1 loss=0.5 ✓ gut", "1 loss=0.5"),
    ] {
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn what_mpirun_tags_belongs_to_its_rank() {
    let of = |line: &str| {
        let mut all = Vec::new();
        let keep = &mut |caught: Caught| all.push((caught.rank, tell(&caught)));
        catcher().with_tags().each(line.as_bytes(), keep);
        all
    };
    let told = |rank: u32, what: &str| (Some(rank), what.to_owned());
    assert_eq!(of("[1,3]<stdout>:Step 5/10 - loss 0.5"), [told(3, "5/10 loss=0.5")]);
    assert_eq!(of("[1,2]<stderr>:loading data"), [told(2, "")], "a sign of life");
    assert_eq!(
        of("[1,0]<stdout>:step=1 pi=3[1,0]<stdout>:"),
        [told(0, "1 pi=3")],
        "the end has a tag of its own"
    );
    assert_eq!(
        of("[1,1]<stdout>:step=5 pi=3.1[1,2]<stdout>:step=5 pi=3.2[1,1]<stdout>:"),
        [told(1, "5 pi=3.1"), told(2, "5 pi=3.2")]
    );
    assert_eq!(of("[1,x]<stdout>:step=5 loss=1")[0].0, None);
    assert_eq!(of("step=5 loss=1"), [(None, "5 loss=1".to_owned())]);
    assert_eq!(
        catcher().catch(b"[1,3]<stdout>:loss").rank,
        None,
        "in other jobs it is only text"
    );
}

#[test]
fn prose_and_bars_without_series_hold_nothing() {
    for line in [
        "",
        "loss=0.31",
        "Starting step: build the image",
        "step 3 of building took 5 seconds",
        "the next step is 4",
        "Step 1: install 3 packages",
        "stepping stones 4",
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:01<00:00,  3.0it/s]",
        "step=x loss=0.3",
        "step=1.5 loss=0.3",
        "step=-3 loss=0.3",
        r#"{"loss": 0.5}"#,
        r#"{"step": "12", "loss": 0.5}"#,
        r#"{"step": 12, "loss": 0.5"#,
        "iteration over 10 files, 12:30:01 done",
        "http://10.0.0.1:29500/step/4",
    ] {
        assert_eq!(told(line), "", "{line}");
    }
}

#[test]
fn checkpoints() {
    for (line, expected) in [
        (
            "checkpoint step=120 path=/data/c-120.pt",
            "checkpoint 120 /data/c-120.pt",
        ),
        ("INFO: checkpoint: step: 120, path: s3://b/c", "checkpoint 120 s3://b/c"),
        (
            "[rank0] checkpoint step=1 path=\"/a b/c\" took 3 s",
            "checkpoint 1 /a b/c",
        ),
        ("saving a checkpoint at step=120", "120"),
        ("checkpoint step=x path=/a", ""),
        ("checkpoint step=1 path=", "1"),
        (r#"{"step": 4, "checkpoint": "/c/4"}"#, "4 checkpoint 4 /c/4"),
    ] {
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn an_own_pattern_replaces_the_known_forms() {
    let metrics = Metrics {
        pattern: Some(r"it (?P<step>\d+) of (?P<total>\d+): L=(?P<loss>\S+)(?: acc=(?P<acc>\S+))?".into()),
        ..Metrics::default()
    };
    let catcher = Catcher::new(&metrics).unwrap();
    let tell_it = |line: &str| tell(&catcher.catch(line.as_bytes()));
    assert_eq!(tell_it("it 3 of 9: L=0.5"), "3/9 loss=0.5");
    assert_eq!(tell_it("it 3 of 9: L=nan acc=high"), "3/9 loss=NaN");
    assert_eq!(tell_it("step=1 loss=2"), "");
    assert_eq!(tell_it("checkpoint step=1 path=/a"), "checkpoint 1 /a");
    let off = Catcher::new(&Metrics {
        catch: false,
        ..metrics
    })
    .unwrap();
    assert_eq!(tell(&off.catch(b"it 3 of 9: L=0.5")), "");
    assert_eq!(tell(&off.catch(b"checkpoint step=1 path=/a")), "checkpoint 1 /a");

    assert_eq!(compile("loss (?P<loss>.*)").unwrap_err(), PatternError::NoStep);
    assert!(matches!(compile("(?P<step>"), Err(PatternError::Invalid(words)) if !words.contains('\n')));
    assert!(matches!(compile(&"x".repeat(2000)), Err(PatternError::TooLong(2000))));
    assert!(matches!(
        compile(r"(?P<step>(\w{1,1000}){1,1000})"),
        Err(PatternError::Invalid(_))
    ));
}

#[test]
fn bounds_hold() {
    let many: String = (0..200).map(|n| format!(" s{n}={n}")).collect();
    let caught = catcher().catch(format!("step=1{many}").as_bytes());
    assert_eq!(caught.metric.unwrap().values.len(), MAX_SERIES);
    assert_eq!(told(&format!("step=1 {}=2 ok=3", "n".repeat(65))), "1 ok=3");
    assert_eq!(told(&format!("step=1 loss=2 {}", "x".repeat(MAX_LINE))), "");
    assert_eq!(told(&format!("checkpoint step=1 path=/{}", "x".repeat(5000))), "1");
    let bar = format!("{}\rstep=2 loss=1", "x".repeat(1 << 20));
    assert_eq!(told(&bar), "2 loss=1");
}

/// Random pieces of everything that means something, cut anywhere, bytes that are no text among them.
#[test]
fn no_line_makes_it_stumble() {
    let pieces = [
        "step",
        "=",
        ":",
        " ",
        "120",
        "/",
        "5000",
        "-",
        "loss",
        "nan",
        "-inf",
        "1e",
        "e-5",
        ".",
        "..",
        ",",
        "{",
        "}",
        "'",
        "\"",
        "[",
        "%|",
        "|",
        "checkpoint ",
        "path=",
        "\u{1b}[",
        "\u{1b}",
        "m",
        "\r",
        "é",
        "█",
        "\0",
        "1_0",
        "+",
        "\\u",
        "iter",
        "99999999999999999999",
    ];
    let patterns = [None, Some(r"(?P<step>\d+)\D+(?P<loss>[\d.]+)".to_owned())];
    let catchers = patterns.map(|pattern| {
        Catcher::new(&Metrics {
            pattern,
            ..Metrics::default()
        })
        .unwrap()
    });
    let mut state = 7u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut held = 0;
    for _ in 0..20_000 {
        let mut line: Vec<u8> = Vec::new();
        for _ in 0..next(24) {
            line.extend_from_slice(pieces[next(pieces.len())].as_bytes());
        }
        if !line.is_empty() {
            line.truncate(next(line.len()) + 1);
        }
        for catcher in &catchers {
            let caught = catcher.catch(&line);
            held += usize::from(caught != Caught::default());
            for (name, _) in caught.metric.iter().flat_map(|metric| &metric.values) {
                assert!(!name.is_empty() && name.len() <= MAX_NAME);
            }
        }
    }
    assert!(held > 100, "the pieces make lines that hold something: {held}");
}

#[test]
fn what_no_index_can_hold_is_not_caught() {
    assert_eq!(told(r#"{"step": 1, "a\u0000b": 2, "loss": 3}"#), "1 loss=3");
    let address = "x".repeat(MAX_PATH - 1);
    let line = |path: &str| told(&format!("checkpoint step=1 path=/{path}"));
    assert_eq!(line(&address), format!("checkpoint 1 /{address}"));
    assert_eq!(line(&format!("{address}x")), "1");
}
