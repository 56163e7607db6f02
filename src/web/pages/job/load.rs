//! Reading what a job's page shows, and putting it into words.

use chrono::{DateTime, Duration, Utc};
use trainyard_core::{
    document::job::JobDocument,
    model::{AttemptPhase, JobId, Phase, TeamRole, Wanted},
    plan::{
        attempt::ConditionKind,
        hang::StepAt,
        postmortem::PostMortem,
        progress::{Progress, progress},
        why::Why,
        words,
    },
};

use super::{Action, CheckpointRow, JobPage, history, measures, post_mortem as ended, reasons, replicas};
use crate::{
    db::{
        DbError, attempts_read, conditions,
        events::Subject,
        jobs_read::{self, Job},
        logs, metrics,
        page_reads::{self, Aside},
        reports, usage_read,
    },
    web::{
        Error, WebState,
        extract::Asker,
        pages::{
            found, told,
            view::{Choice, Crumb, Fact, Section, Shell, State},
        },
        why,
    },
};

/// What the address asks for.
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub struct JobQuery {
    pub attempt: Option<i32>,
    /// Events older than this one.
    pub events: Option<i64>,
    /// `table`: every replica as a row, however many.
    pub view: Option<String>,
    /// One replica alone, from a cell of the grid.
    pub replica: Option<String>,
    /// What was just done, one of a few words.
    pub done: Option<String>,
}

/// What the last action did. Only words that we know are said, so an address can put none into the page.
pub fn notice(query: &JobQuery) -> Option<String> {
    let said = match query.done.as_deref()? {
        "submitted" => "Submitted.",
        "cancel" => "It was asked to end.",
        "suspend" => "It was asked to pause.",
        "resume" => "It waits for its turn again.",
        "rerun" => "Submitted again, as this new job.",
        "priority" => "The priority was changed.",
        _ => return None,
    };
    Some(said.to_owned())
}

const ATTEMPTS: i64 = 50;
const EVENTS: i64 = 15;
const CHECKPOINTS: i64 = 5;
pub const REPLICAS: i64 = 10_000;

pub async fn load(state: &WebState, asker: &Asker, id: JobId, query: &JobQuery) -> Result<JobPage, Error> {
    let (db, actor, now) = (&state.db, &asker.caller.actor, state.actions.now());
    let scope = actor.scope();
    let detail = found("job", id, jobs_read::get(db, &scope, id).await)?;
    let home = found("job", id, jobs_read::home(db, &scope, id).await)?;
    let job = &detail.job;
    let document: JobDocument = serde_json::from_str(detail.document.get()).map_err(|error| DbError::Inconsistent {
        table: "jobs",
        key: id.to_string(),
        what: format!("document: {error}"),
    })?;
    let attempts = attempts_read::attempts(db, &home, None, ATTEMPTS).await?;
    let number = query.attempt.unwrap_or(job.attempt);
    let rows = attempts_read::replicas(db, &home, number, None, REPLICAS).await?;
    let incarnations = page_reads::incarnations(db, &home, number).await?;
    let aside = page_reads::asides(db, &[id], now)
        .await?
        .remove(&id)
        .unwrap_or_default();
    // Asked now, and not what was stored when the queue was last looked at.
    let why = why::answer(state, &scope, id).await?.why;
    let conditions = told::conditions(conditions::of(db, Subject::Job(id)).await?, false, now);
    let mut events = page_reads::job_events(db, &home, query.events, EVENTS + 1).await?;
    let more_events = (events.len() as i64 > EVENTS).then(|| {
        events.truncate(EVENTS as usize);
        let last = events.last().map_or(0, |event| event.seq);
        format!("/jobs/{id}?events={last}#events")
    });
    let intervals = usage_read::intervals(db, &home, 0, 500).await?;
    let totals = usage_read::totals(db, &home, now).await?;
    let checkpoints = reports::checkpoints(db, &home, None, CHECKPOINTS).await?;
    let key = logs::readable(db, &scope, id).await?;
    let selection = metrics::Selection {
        attempt: Some(number),
        ..metrics::Selection::default()
    };
    let (series, _) = metrics::outline(db, metrics::Owner::Job(key), &selection).await?;
    let failed = attempts.iter().find(|attempt| attempt.has_post_mortem);
    let post_mortem = match failed {
        // A retry that runs well again is what the page is about; its forerunner's end is in the attempts.
        Some(attempt)
            if query.attempt == Some(attempt.number) || (query.attempt.is_none() && attempt.number == job.attempt) =>
        {
            attempts_read::post_mortem(db, &home, Some(attempt.number)).await.ok()
        }
        _ => None,
    };

    let progress = told_progress(&series, job, now);
    let since = attempts.first().map(|attempt| match attempt.phase {
        AttemptPhase::Starting => attempt.admitted_at,
        AttemptPhase::Running => attempt.running_at.unwrap_or(attempt.admitted_at),
        AttemptPhase::Stopping => attempt.stopping_at.unwrap_or(attempt.admitted_at),
        AttemptPhase::Ended => told::phase_since(job, &aside),
    });
    let since = if job.phase.is_active() { since } else { None }.unwrap_or_else(|| told::phase_since(job, &aside));
    let allowed = document.restart.max.saturating_add(1);
    let sentence = told::job_sentence(
        job,
        &aside,
        &told::More {
            progress: progress.as_ref(),
            why: why.as_ref(),
            attempt: u32::try_from(job.attempt)
                .ok()
                .filter(|number| *number > 0)
                .map(|number| (number, allowed)),
            since: Some(since),
        },
        now,
    );
    let mut told_state = state_of(job, &aside, why.as_ref(), post_mortem.as_ref(), sentence, since, now);
    if job.phase == Phase::Running {
        told_state.next = next_of_trouble(&aside, &document);
    }
    let shell = Shell {
        title: format!("{}: {}", words::sentence(job.phase.as_str()), job.name),
        section: Section::Jobs,
        crumbs: vec![Crumb {
            label: "Jobs".into(),
            href: "/jobs".into(),
        }],
        live: (!job.phase.is_final() || !rows.iter().all(|row| row.phase.is_final())).then(|| live_address(id, query)),
        here: format!("/jobs/{id}"),
        ..Shell::default()
    };
    let post_mortem = post_mortem.map(|end| ended::told(&end, id, &told_state, now));
    let facts = facts(job, &document, &aside, &checkpoints, &totals, now);
    let past = page_reads::nodes_of_job(db, &home, job.ended_at.unwrap_or(now)).await?;
    let timeline = history::draw(job, &attempts, &intervals, &checkpoints, &rows, &past, now);
    let plots = measures::plots(id, number, &series, &rows);
    Ok(JobPage {
        shell,
        id: id.to_string(),
        name: job.name.clone(),
        state: told_state,
        actions: actions(job, actor.may(job.team.id, TeamRole::Member)),
        conditions,
        reasons: why
            .as_ref()
            .filter(|why| reasons::add_to_its_sentence(why))
            .map(reasons::told)
            .unwrap_or_default(),
        post_mortem,
        facts,
        timeline,
        replicas: replicas::told(id, number, &rows, &incarnations, query, now),
        attempts: match attempts.len() {
            0 | 1 => Vec::new(),
            _ => attempts
                .iter()
                .rev()
                .map(|attempt| Choice {
                    label: format!("Attempt {}", attempt.number),
                    href: format!("/jobs/{id}?attempt={}#replicas", attempt.number),
                    current: attempt.number == number,
                    count: attempt.outcome.map(|outcome| outcome.to_string()),
                })
                .collect(),
        },
        plots,
        no_plots: match document.metrics.catch {
            true => "Nothing was measured yet. Print a line such as step=120 loss=0.31 and it is drawn here.",
            false => "Nothing was measured yet. This job's document turns catching off; points can be posted by REST.",
        },
        checkpoints: checkpoints
            .into_iter()
            .map(|row| CheckpointRow {
                step: words::count(row.step),
                attempt: u32::try_from(row.attempt).unwrap_or(0),
                path: row.path,
                at: told::when(row.at, now),
            })
            .collect(),
        events: events.into_iter().map(|row| told::event(row, now)).collect(),
        more_events,
        document: trainyard_core::document::to_yaml(&document),
    })
}

fn live_address(id: JobId, query: &JobQuery) -> String {
    let mut address = format!("/jobs/{id}/live");
    let mut joint = '?';
    let mut add = |name: &str, value: String| {
        address.push(joint);
        address.push_str(name);
        address.push('=');
        address.push_str(&told::encoded(&value));
        joint = '&';
    };
    if let Some(attempt) = query.attempt {
        add("attempt", attempt.to_string());
    }
    if let Some(events) = query.events {
        add("events", events.to_string());
    }
    if let Some(view) = &query.view {
        add("view", view.clone());
    }
    if let Some(replica) = &query.replica {
        add("replica", replica.clone());
    }
    address
}

/// How fast the furthest rank goes, from the times of its steps.
fn told_progress(
    series: &std::collections::BTreeMap<metrics::SeriesKey, Vec<metrics::Point>>,
    job: &Job,
    now: DateTime<Utc>,
) -> Option<Progress> {
    if !job.phase.is_active() {
        return None;
    }
    let furthest = series
        .values()
        .filter(|points| points.last().is_some_and(|point| point.step.is_some()))
        .max_by_key(|points| points.last().and_then(|point| point.step))?;
    let steps: Vec<StepAt> = furthest
        .iter()
        .rev()
        .take(200)
        .rev()
        .filter_map(|point| {
            Some(StepAt {
                step: point.step?,
                at: DateTime::from_timestamp_millis(point.at)?,
            })
        })
        .collect();
    progress(&steps, job.total_steps.and_then(|total| u64::try_from(total).ok()), now)
}

fn state_of(
    job: &Job,
    aside: &Aside,
    why: Option<&Why>,
    end: Option<&PostMortem>,
    sentence: String,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> State {
    let (reason, next) = match (end, why) {
        (Some(end), _) if job.phase == Phase::Failed => (None, Some(end.next.clone())),
        (_, Some(why)) if !job.phase.is_final() => (None, told::next_step(why)),
        _ if job.phase.is_active() || job.phase.is_final() => (None, None),
        _ => (Some(job.message.clone()), None),
    };
    let wish = match (job.wanted, job.phase) {
        (_, phase) if phase.is_final() => None,
        (Wanted::Cancel, _) => Some("It was asked to end and ends as soon as its processes have.".to_owned()),
        (Wanted::Suspend, phase) if phase != Phase::Suspended => {
            Some("It was asked to pause; a checkpoint is waited for.".to_owned())
        }
        (Wanted::Delete, _) => Some("It was asked to go; it ends, then leaves every list.".to_owned()),
        _ => None,
    };
    State {
        tone: told::job_tone(job, aside),
        // The sentence of an end says its reason already.
        reason: wish.or(reason).filter(|reason| !reason.is_empty() && !sentence.contains(reason.as_str())),
        sentence,
        code: Some(job.reason.clone()).filter(|code| !code.is_empty()),
        since: Some(told::when(since, now)),
        next,
        stale: job.stale_since.filter(|_| !job.phase.is_final()).map(|at| {
            format!("No worker has looked at its cluster for {}. What stands here is from then; its processes may still run.", words::duration(now - at))
        }),
    }
}

/// What to do about the worst that is wrong with a job that runs.
fn next_of_trouble(aside: &Aside, document: &JobDocument) -> Option<String> {
    let kind = aside.troubles.first()?;
    let next = match (kind.parse::<ConditionKind>().ok()?, document.deadlines.silence) {
        (ConditionKind::Hung, Some(limit)) => format!(
            "Read the last lines of each rank. It is ended once it was silent for {} (deadlines.silence).",
            words::duration(limit.as_chrono())
        ),
        (ConditionKind::Hung, None) => "Read the last lines of each rank, then cancel and rerun it. With \
            deadlines.silence in its document Trainyard ends it by itself."
            .to_owned(),
        (ConditionKind::Slow, _) => {
            "Compare the ranks' steps and the nodes they run on. Nothing is ended for this.".to_owned()
        }
        _ => return None,
    };
    Some(next)
}

fn actions(job: &Job, member: bool) -> Vec<Action> {
    let id = job.id;
    let action = |label, verb: &str, danger| Action {
        label,
        href: format!("/jobs/{id}/{verb}"),
        danger,
    };
    let mut actions = Vec::new();
    if !member {
        return actions;
    }
    if job.phase.is_final() {
        actions.push(action("Rerun", "rerun", false));
        actions.push(action("Delete", "delete", true));
        return actions;
    }
    match (job.phase, job.wanted) {
        (_, Wanted::Cancel | Wanted::Delete) => {}
        (Phase::Suspended, _) | (_, Wanted::Suspend) => actions.push(action("Resume", "resume", false)),
        _ => actions.push(action("Suspend", "suspend", false)),
    }
    actions.push(action("Priority", "priority", false));
    if !matches!(job.wanted, Wanted::Cancel | Wanted::Delete) {
        actions.push(action("Cancel", "cancel", true));
    }
    actions
}

fn facts(
    job: &Job,
    document: &JobDocument,
    aside: &Aside,
    checkpoints: &[reports::Checkpoint],
    totals: &usage_read::UsageTotals,
    now: DateTime<Utc>,
) -> Vec<Fact> {
    let seconds = |seconds: f64| words::duration(Duration::milliseconds((seconds * 1000.0) as i64));
    let mut facts = vec![match (&job.cluster, &job.cluster_wanted) {
        (Some(cluster), _) => Fact::link("Cluster", cluster.name.clone(), format!("/clusters/{}", cluster.id)),
        (None, Some(name)) => Fact::new("Cluster", name.clone()),
        (None, None) => Fact::new("Cluster", "any that fits"),
    }];
    facts.push(Fact::new(
        "Team, owner",
        format!("{}, {}", job.team.name, job.owner.name),
    ));
    facts.push(Fact::new(
        "Asks for",
        told::asks(job.replicas, job.cpu_milli, job.memory_bytes, job.gpus),
    ));
    if job.attempt > 0 {
        let allowed = i64::from(document.restart.max) + 1;
        facts.push(Fact::new(
            "Attempt",
            format!("{} of at most {}", job.attempt, allowed.max(job.attempt.into())),
        ));
    }
    facts.push(match checkpoints.first() {
        Some(last) => Fact::when(
            "Last checkpoint",
            crate::web::pages::view::When {
                words: format!("step {}, {}", words::count(last.step), words::relative(last.at, now)),
                ..told::when(last.at, now)
            },
        ),
        None => Fact::new("Last checkpoint", "none reported"),
    });
    facts.push(Fact::new("Priority", job.priority.to_string()));
    facts.push(Fact::when("Submitted", told::when(job.created_at, now)));
    facts.push(Fact::new(
        "Waited, ran",
        format!(
            "{}, {}",
            seconds(totals.queued),
            seconds(totals.starting + totals.running)
        ),
    ));
    // Without a checkpoint all of a last attempt's time is lost, and "none reported" says that already.
    if totals.running_lost >= 1.0 && (!checkpoints.is_empty() || job.attempt > 1) {
        facts.push(Fact::new("Lost since checkpoints", seconds(totals.running_lost)));
    }
    let framework = serde_json::to_value(document.framework).ok();
    let framework = framework
        .as_ref()
        .and_then(|word| word.as_str())
        .unwrap_or("plain")
        .to_owned();
    facts.push(Fact::new("Framework", framework));
    if !job.labels.is_empty() {
        let labels: Vec<String> = job
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        facts.push(Fact::new("Labels", labels.join(", ")));
    }
    if let Some(origin) = &job.origin {
        facts.push(Fact::link(
            "Made from",
            origin.job.to_string(),
            format!("/jobs/{}", origin.job),
        ));
    }
    if job.phase == Phase::Starting {
        facts.push(Fact::new("Ranks up", format!("{} of {}", aside.running, job.replicas)));
    }
    facts.push(Fact::new("Id", job.id.to_string()));
    facts
}
