//! Hangs, slow steps and mere silence, told apart.

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(seconds)
}

fn silent(rank: u32) -> RankSigns {
    RankSigns {
        key: ReplicaKey {
            role: "worker".into(),
            index: rank,
        },
        rank,
        started_at: at(0),
        last_output_at: None,
        steps: Vec::new(),
        cpu_milli: None,
        process_state: None,
    }
}

/// A rank that printed a step every `every` seconds until step `last`.
fn stepping(rank: u32, every: i64, last: i64) -> RankSigns {
    let steps: Vec<StepAt> = (1.max(last - 29)..=last)
        .map(|step| StepAt {
            step,
            at: at(step * every),
        })
        .collect();
    RankSigns {
        last_output_at: steps.last().map(|step| step.at),
        steps,
        ..silent(rank)
    }
}

fn after(ranks: &[RankSigns], seconds: i64) -> Judgement {
    judge(ranks, at(0), at(0), at(seconds))
}

fn hung(judgement: &Judgement) -> (Option<u32>, String, String) {
    match judgement {
        Judgement::Hung {
            suspect,
            message,
            looked_at,
            ..
        } => (
            suspect.as_ref().map(|suspect| suspect.rank),
            message.clone(),
            looked_at.join("; "),
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_that_come_as_before_are_well() {
    let ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 10, 50)).collect();
    assert_eq!(after(&ranks, 515), Judgement::Well);
}

#[test]
fn steps_that_were_stored_together_share_the_wait_before_them() {
    // Six steps in each flush, a flush every 1.5 s.
    let mut rank = silent(0);
    rank.steps = (0..24)
        .map(|step| StepAt {
            step,
            at: at(0) + Duration::milliseconds(1_500 * (step / 6 + 1)),
        })
        .collect();
    let (_, message, _) = hung(&after(&[rank.clone()], 100));
    assert!(message.contains("before, one took about 0.25 s"), "{message}");
    // All of them in one flush: how long one takes is not known.
    for step in &mut rank.steps {
        step.at = at(2);
    }
    assert!(matches!(after(&[rank], 100), Judgement::Hung { .. }));
}

#[test]
fn an_evaluation_of_five_times_the_median_is_slow_and_not_hung() {
    let ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 10, 50)).collect();
    let judgement = after(&ranks, 500 + 50);
    let Judgement::Slow { since, message, .. } = &judgement else {
        panic!("{judgement:?}")
    };
    assert_eq!(*since, at(500));
    assert_eq!(
        message,
        "The step since 2024-10-04 00:08:20 UTC (step 50) takes longer than usual, which is about 10 s."
    );
}

#[test]
fn a_pause_that_the_job_has_taken_before_is_no_hang() {
    let mut rank = stepping(0, 1, 30);
    // An evaluation of a minute between steps 15 and 16.
    rank.steps
        .iter_mut()
        .skip(15)
        .for_each(|step| step.at += Duration::seconds(60));
    rank.last_output_at = None;
    assert!(matches!(after(&[rank.clone()], 90 + 100), Judgement::Slow { .. }));
    assert!(matches!(after(&[rank], 90 + 183), Judgement::Hung { .. }));
}

#[test]
fn quick_steps_are_not_flagged_for_short_pauses() {
    let mut rank = stepping(0, 1, 30);
    for (place, step) in rank.steps.iter_mut().enumerate() {
        step.at = at(0) + Duration::milliseconds(100 * place as i64);
    }
    rank.last_output_at = None;
    assert_eq!(after(&[rank], 5), Judgement::Well);
}

#[test]
fn a_stopped_process_is_named_even_if_only_rank_0_prints() {
    let mut ranks = vec![stepping(0, 2, 50), silent(1), silent(2), silent(3)];
    let (suspect, message, looked_at) = hung(&after(&ranks, 100 + 61));
    assert_eq!(suspect, None);
    assert!(
        message.ends_with("Rank unknown: none stands out in what was looked at."),
        "{message}"
    );
    assert!(
        looked_at.contains("ranks 1 to 3 never printed, so their silence says nothing"),
        "{looked_at}"
    );
    // The runtime can tell: then it is evidence and no guess.
    ranks.iter_mut().for_each(|rank| rank.process_state = Some('S'));
    ranks[2].process_state = Some('T');
    let (suspect, message, looked_at) = hung(&after(&ranks, 100 + 61));
    assert_eq!(suspect, Some(2));
    assert!(
        message.contains("Rank 2 (worker-2) stands out: its process is stopped by a signal"),
        "{message}"
    );
    assert!(looked_at.contains("state T"));
}

#[test]
fn with_all_printing_the_rank_that_is_a_step_behind_is_named() {
    let mut ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 2, 50)).collect();
    ranks[2] = stepping(2, 2, 49);
    let (suspect, message, _) = hung(&after(&ranks, 100 + 61));
    assert_eq!(suspect, Some(2));
    assert!(
        message.contains("its last step is 49; every other rank reached 50 or more"),
        "{message}"
    );
}

#[test]
fn two_ranks_behind_are_not_told_apart() {
    let mut ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 2, 50)).collect();
    ranks[1] = stepping(1, 2, 49);
    ranks[2] = stepping(2, 2, 49);
    assert_eq!(hung(&after(&ranks, 100 + 61)).0, None);
}

#[test]
fn all_ranks_at_the_same_step_leave_the_rank_unknown() {
    let ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 2, 50)).collect();
    let (suspect, message, looked_at) = hung(&after(&ranks, 100 + 61));
    assert_eq!(suspect, None);
    assert!(message.starts_with("No rank has made a step since 2024-10-04 00:01:40 UTC (step 50); before, one took"));
    assert!(looked_at.contains("rank 3: step 50 at"));
}

#[test]
fn the_rank_that_fell_silent_well_before_the_others_is_named() {
    let mut ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 2, 50)).collect();
    for rank in &mut ranks {
        rank.last_output_at = Some(at(if rank.rank == 1 { 100 } else { 108 }));
    }
    let (suspect, message, _) = hung(&after(&ranks, 108 + 61));
    assert_eq!(suspect, Some(1), "{message}");
    // A rank that printed nothing but its start message has no rhythm that could be broken.
    ranks[3] = RankSigns {
        last_output_at: Some(at(1)),
        ..silent(3)
    };
    assert_eq!(hung(&after(&ranks, 108 + 61)).0, None);
}

#[test]
fn one_rank_that_stands_while_the_others_go_on_is_named() {
    let mut ranks: Vec<RankSigns> = (0..4).map(|rank| stepping(rank, 2, 100)).collect();
    ranks[3] = stepping(3, 2, 60);
    let (suspect, message, _) = hung(&after(&ranks, 201));
    assert_eq!(suspect, Some(3));
    assert!(message.starts_with("Rank 3 made no step since"), "{message}");
    ranks[2] = stepping(2, 2, 60);
    let (suspect, message, _) = hung(&after(&ranks, 201));
    assert_eq!(suspect, None);
    assert!(message.starts_with("Ranks 2 and 3 made no step since"), "{message}");
    // Where some never report steps, that they don't now says nothing.
    ranks[2] = silent(2);
    ranks[3] = silent(3);
    assert_eq!(after(&ranks, 201), Judgement::Well);
}

#[test]
fn a_job_that_still_prints_is_slow_and_not_hung() {
    let mut rank = stepping(0, 2, 50);
    rank.last_output_at = Some(at(290));
    let judgement = after(&[rank], 300);
    let Judgement::Slow { message, .. } = &judgement else {
        panic!("{judgement:?}")
    };
    assert!(message.contains("though lines are still printed"), "{message}");
}

#[test]
fn our_own_absence_is_not_held_against_the_job() {
    let ranks: Vec<RankSigns> = (0..2).map(|rank| stepping(rank, 2, 50)).collect();
    let back = at(5_000);
    assert_eq!(judge(&ranks, at(0), back, at(5_002)), Judgement::Well);
    assert!(matches!(judge(&ranks, at(0), back, at(5_061)), Judgement::Hung { .. }));
}

#[test]
fn without_steps_only_a_long_silence_says_something() {
    let chatty = RankSigns {
        last_output_at: Some(at(100)),
        ..silent(0)
    };
    assert_eq!(after(&[chatty.clone(), silent(1)], 150), Judgement::Well);
    assert!(matches!(
        after(&[chatty.clone(), silent(1)], 400),
        Judgement::TooEarly { .. }
    ));
    let (suspect, message, _) = hung(&after(&[chatty, silent(1)], 100 + 900));
    assert_eq!(suspect, None);
    assert!(
        message.contains("too few steps were reported to compare with"),
        "{message}"
    );
    // Nothing was ever printed, and it has not run for long.
    assert!(matches!(after(&[silent(0)], 30), Judgement::TooEarly { .. }));
}

#[test]
fn a_thousand_ranks_are_summed_up() {
    let ranks: Vec<RankSigns> = (0..1_000).map(|rank| stepping(rank, 2, 50)).collect();
    let (_, _, looked_at) = hung(&after(&ranks, 100 + 61));
    assert!(
        looked_at.ends_with("984 ranks more: last steps from 50 to 50"),
        "{looked_at}"
    );
}

#[test]
fn no_signs_at_all_break_nothing() {
    assert!(matches!(judge(&[], at(0), at(0), at(10)), Judgement::TooEarly { .. }));
    // A clock that runs backwards.
    assert_eq!(judge(&[stepping(0, 2, 50)], at(0), at(0), at(10)), Judgement::Well);
}
