//! Why a job does not run, as its page shows it: the reasons with their figures in words.

use chrono::Duration;
use trainyard_core::plan::{
    why::{Why, WhyReason},
    words,
};

use super::Reason;
use crate::web::pages::told;

/// One reason without figures stands in the state's sentence whole.
pub fn add_to_its_sentence(why: &Why) -> bool {
    why.reasons.len() > 1 || why.reasons.iter().any(|reason| !reason.numbers.is_empty())
}

/// The layers that hold it up, the outermost first.
pub fn told(why: &Why) -> Vec<Reason> {
    why.reasons
        .iter()
        .map(|reason| Reason {
            layer: words::sentence(reason.layer.as_str()),
            message: told::full(&reason.message),
            code: serde_json::to_value(reason.code)
                .ok()
                .and_then(|code| code.as_str().map(str::to_owned))
                .unwrap_or_default(),
            numbers: reason
                .numbers
                .iter()
                .filter(|figure| figure.value != 0 || !says_nothing_when_none(reason, &figure.name))
                .map(|figure| (figure_name(&figure.name), figure_in_words(figure.value, &figure.unit)))
                .collect(),
            next: told::full(&reason.next),
        })
        .collect()
}

/// Where there is none of a resource, none of it is free either.
fn says_nothing_when_none(reason: &WhyReason, name: &str) -> bool {
    let none_at_all = reason
        .numbers
        .iter()
        .any(|figure| figure.name == "total" && figure.value == 0);
    name == "ahead" || (none_at_all && matches!(name, "free" | "largest_free" | "largest_total"))
}

/// The API's name of a figure, as people say it.
fn figure_name(name: &str) -> String {
    let said = match name {
        "asked_each" => "Each replica asks for",
        "asked" => "All replicas ask for",
        "free" => "Free now",
        "total" => "There is in all",
        "largest_free" => "Most free on one node",
        "largest_total" => "Most on one node",
        "ahead" => "Jobs before it",
        "must_end" => "Jobs that must end first",
        other => return told::named(other),
    };
    said.to_owned()
}

fn figure_in_words(value: i64, unit: &str) -> String {
    let unsigned = u64::try_from(value).unwrap_or(0);
    match unit {
        "cores/1000" => words::cores(unsigned),
        "bytes" => words::bytes(unsigned),
        "seconds" => words::duration(Duration::seconds(value)),
        "gpus" => words::counted(unsigned, "GPU"),
        // The figure's name says what is counted.
        "jobs" | "nodes" | "replicas" | "attempts" | "clusters" | "" => words::count(value),
        other => format!("{} {other}", words::count(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_for_people_and_no_unit_twice() {
        assert_eq!(figure_name("largest_free"), "Most free on one node");
        assert_eq!(figure_name("cloud_quota"), "Cloud quota");
        assert_eq!(figure_in_words(64, "gpus"), "64 GPUs");
        assert_eq!(figure_in_words(1_500, "replicas"), "1,500");
        assert_eq!(figure_in_words(500, "cores/1000"), "0.5 cores");
    }
}
