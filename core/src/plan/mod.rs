//! Decisions: facts from the records, what a runtime shows, and the time in; steps and words out. No I/O, no clock.
//!
//! What others call, in reading order:
//! - [`admit::admit`]`(queue, holders, nodes, now, look) -> Admissions`: which waiting jobs of one cluster start, where
//!   each replica goes, and why the others wait. [`admit::demand`], [`admit::longest_hold`] make its inputs from a document.
//! - [`attempt::decide`]`(job, attempt, sight, hang, now) -> Decision`: the steps for one job now, when to look again
//!   and who moves it on. [`attempt::first_failure`] names the rank that failed first.
//! - [`retry::after_failure`]`(...) -> Verdict`, [`retry::backoff`], [`retry::waited`]: the restart policy.
//! - [`why::why`]`(facts, now) -> Option<Why>`: why a job is not running.
//! - [`postmortem::post_mortem`]`(ended) -> PostMortem`: what is kept of an attempt that ended badly.
//! - [`exits::brief`], [`exits::in_words`], [`exits::code`]: what one exit status means.
//! - [`recognise::recognise`]`(lines)`, [`recognise::weigh`]`(lines)`: what last lines say.
//! - [`hang::judge`]`(ranks, running_at, since, now) -> Judgement`: whether a running attempt stands still.
//! - [`progress::progress`]`(steps, total, now)`, [`progress::state_sentence`]`(facts, now)`: how far, in words.
//! - [`warnings::warnings`]`(document, provider) -> Vec<String>`: what means nothing where the job would run.
//! - [`words`]: numbers, sizes and times as people read them.

pub mod admit;
pub mod attempt;
#[cfg(test)]
mod chance;
pub mod exits;
pub mod hang;
pub mod node;
pub mod postmortem;
pub mod progress;
pub mod recognise;
pub mod retry;
pub mod warnings;
pub mod why;
pub mod words;
