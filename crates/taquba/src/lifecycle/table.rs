//! docs/lifecycle.md, rendered from the pure functions of this module and compared with the file. To write it anew:
//! `TAQUBA_DOCS=write cargo test -p taquba --lib lifecycle::table`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::admit::{AdmitFacts, NewJob, Refusal, admit};
use super::job::{Body, Hold, Job, Payload, Progress, Rules, State};
use super::{Ending, Move, Stamp, settle, wait};
use crate::name::QueueName;
use crate::retry::RetryPolicy;

const STAMP: Stamp = Stamp { now_ms: 1_000, epoch: 2 };
const HEAD: &str = "# How a job lives

Rendered from the pure functions of `crates/taquba/src/lifecycle/` by their test `table.rs`, which fails when this file
says something else. To write it anew: `TAQUBA_DOCS=write cargo test -p taquba --lib lifecycle::table`.

";

/// What is done to a job, and what is answered where it does nothing.
struct Command {
    name: &'static str,
    /// The columns in which the engine calls it at all.
    on: &'static [&'static str],
    run: fn(&Arc<Job>) -> Option<Move>,
    refused: &'static str,
}

const WAITING: &[&str] = &["pending", "scheduled"];
const CLAIMED: &[&str] = &["claimed", "claimed, last attempt"];
const ALL: &[&str] = &["pending", "scheduled", "claimed", "claimed, last attempt", "done", "dead"];

fn states() -> Vec<(&'static str, Job)> {
    let hold = Hold { slot: Some(0), claimed_at: 900, cancel_requested: false, progress: None };
    let of = |state, attempts| Job { attempts, ..job(state) };
    let last = Job { attempts: 2, ..job(State::Claimed(hold.clone())) };
    let dead =
        Job { last_error: Some("it failed".into()), ..of(State::Dead { failed_at: 900 }, 3) };
    vec![
        ("pending", job(State::Pending)),
        (
            "scheduled",
            Job { signal_key: Some("s".into()), ..job(State::Scheduled { run_at: 2_000 }) },
        ),
        ("claimed", job(State::Claimed(hold))),
        ("claimed, last attempt", last),
        ("done", of(State::Done { completed_at: 900 }, 1)),
        ("dead", dead),
    ]
}

fn job(state: State) -> Job {
    let waits = matches!(state, State::Pending | State::Scheduled { .. } | State::Claimed(_));
    Job {
        body: Arc::new(Body {
            id: "id".into(),
            queue: queue(),
            priority: 1,
            order: 7,
            enqueued_at: 500,
            max_attempts: 3,
            headers: Bytes::new(),
            payload: Payload::Inline(Bytes::new()),
            rules: Rules { expire_at: Some(1_000), ..Rules::default() },
        }),
        attempts: 0,
        epoch: 1,
        last_error: None,
        dedup: waits.then(|| "k".into()),
        cancel_requested: false,
        signal_key: None,
        woken: None,
        result: None,
        history: 0,
        state,
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn commands() -> Vec<Command> {
    let command = |name, on, refused, run| Command { name, on, run, refused };
    let lost = "`ClaimLost`";
    vec![
        command("`claim…`, `claim_by_id`", WAITING, "not claimable", |job| {
            Some(settle::claim(job, Some(0), STAMP.now_ms))
        }),
        command("`report_progress`", CLAIMED, lost, |job| {
            let said = Progress { percent: 50, at: STAMP.now_ms, note: "half".into() };
            settle::progress(job, Arc::new(said), Some(0))
        }),
        command("`ack…`, the queue keeps done jobs", CLAIMED, lost, |job| {
            Some(settle::ack(job, true, None, STAMP))
        }),
        command("`ack…`, it does not", CLAIMED, lost, |job| {
            Some(settle::ack(job, false, None, STAMP))
        }),
        command("`nack…`", CLAIMED, lost, |job| {
            let policy = RetryPolicy::fixed(Duration::from_secs(1));
            Some(settle::nack(job, "error", &policy, STAMP))
        }),
        command("`nack…`, no delay", CLAIMED, lost, |job| {
            let policy = RetryPolicy::fixed(Duration::ZERO);
            Some(settle::nack(job, "error", &policy, STAMP))
        }),
        command("`dead_letter…`", CLAIMED, lost, |job| {
            Some(settle::dead_letter(job, "reason", STAMP))
        }),
        command("its lease ends", CLAIMED, "–", |job| Some(settle::expire(job, STAMP))),
        command("its process ends (found at open)", CLAIMED, "–", |job| {
            Some(settle::interrupt(job, STAMP))
        }),
        command("the claim reaches nobody, or is given back at shutdown", CLAIMED, "–", |job| {
            Some(settle::release(job, true))
        }),
        command("`run_at` comes", &["scheduled"], "–", |job| Some(wait::promote(job))),
        command("`wake_scheduled`, a signal", ALL, "`NotScheduled`", |job| {
            wait::wake(job, Some(Bytes::from_static(b"x")), STAMP.now_ms)
        }),
        command("`cancel…`", ALL, "`NotFound`", wait::cancel),
        command("`expire_at` comes", ALL, "–", |job| wait::expire(job, STAMP)),
        command("its retention is over", ALL, "–", wait::forget),
        command("`requeue_dead_job`", ALL, "`InvalidState`", |job| wait::requeue(job, STAMP)),
    ]
}

fn outcome(command: &Command, column: &str, job: &Arc<Job>) -> Option<Move> {
    if !command.on.contains(&column) {
        return None;
    }
    (command.run)(job)
}

fn cell(command: &Command, column: &str, job: &Arc<Job>) -> String {
    match outcome(command, column, job) {
        None => command.refused.to_owned(),
        Some(change) => {
            change.after.map_or("gone".to_owned(), |after| after.state_name().to_owned())
        }
    }
}

fn where_to(text: &mut String) {
    let states = states();
    text.push_str("## Where it goes\n\nA word in a cell is the state that follows; *gone*: no record is left.\n\n| |");
    for (column, _) in &states {
        write!(text, " {column} |").unwrap();
    }
    text.push_str("\n|---|---|---|---|---|---|---|\n");
    for command in commands() {
        write!(text, "| {} |", command.name).unwrap();
        for (column, job) in &states {
            write!(text, " {} |", cell(&command, column, &Arc::new(job.clone()))).unwrap();
        }
        text.push('\n');
    }
}

/// What else one transition changes.
fn changes(before: &Job, change: &Move) -> [String; 5] {
    let none = || "–".to_owned();
    let after = change.after.as_deref();
    let charged = after.map_or(none(), |after| match (after.attempts, before.attempts) {
        (now, was) if now > was => "charged".to_owned(),
        (now, was) if now < was => "all given back".to_owned(),
        _ => none(),
    });
    let history = change.entry.as_ref().map_or(none(), |entry| format!("{:?}", entry.outcome));
    let error = match after {
        Some(after) if after.last_error != before.last_error => match &after.last_error {
            Some(error) => format!("`{error}`"),
            None => "cleared".to_owned(),
        },
        _ => none(),
    };
    let owns = after.is_some_and(|after| after.owned_dedup().is_some());
    let keys = match (before.owned_dedup().is_some(), owns) {
        (true, false) => "freed",
        (false, true) => "taken back, if free",
        _ => "–",
    };
    let told = match change.ending {
        Some(Ending::Completed) => "Done",
        Some(Ending::DeadLettered) => "Dead",
        Some(Ending::Cancelled) => "Cancelled",
        None => "–",
    };
    [charged, history, error, keys.to_owned(), told.to_owned()]
}

fn what_else(text: &mut String) {
    text.push_str(
        "\n## What else changes\n\nPriority, order, headers, payload and time of enqueue never change.\n\n\
         | | from | to | attempt | history | last error | dedup key | who waits hears |\n|---|---|---|---|---|---|---|---|\n",
    );
    for command in commands() {
        for (column, job) in states() {
            let job = Arc::new(job);
            let Some(change) = outcome(&command, column, &job) else { continue };
            let to = cell(&command, column, &job);
            let cells = changes(&job, &change).join(" | ");
            writeln!(text, "| {} | {column} | {to} | {cells} |", command.name).unwrap();
        }
    }
}

/// How a job comes in: each row a set of facts.
fn how_it_begins(text: &mut String) {
    text.push_str("## How it begins\n\n| `enqueue…` | |\n|---|---|\n");
    let new = |run_at: Option<u64>, signal_key: Option<&str>| NewJob {
        queue: queue(),
        priority: 1,
        max_attempts: 3,
        run_at,
        dedup: Some("k".into()),
        signal_key: signal_key.map(Into::into),
        id: None,
        id_issued: false,
        headers: Bytes::new(),
        payload: Payload::Inline(Bytes::new()),
        rules: Rules::default(),
    };
    let free = AdmitFacts::default;
    let (past, later) = (Some(STAMP.now_ms), Some(STAMP.now_ms + 1));
    let held = AdmitFacts { dedup_holder: Some("other".into()), id_taken: true, ..free() };
    let taken = AdmitFacts { id_taken: true, ..free() };
    let waiter = AdmitFacts { signal_waiter: Some("other".into()), ..free() };
    let buffered = AdmitFacts { signal_buffered: Some(Bytes::from_static(b"x")), ..free() };
    let rows = [
        ("nothing else said", new(None, None), free()),
        ("`run_at` past or now", new(past, None), free()),
        ("`run_at` to come", new(later, None), free()),
        ("its dedup key is held (whatever else holds)", new(later, Some("s")), held),
        ("its id is taken", new(later, Some("s")), taken),
        ("a signal key without a `run_at` to come", new(past, Some("s")), free()),
        ("a signal key that another waits for", new(later, Some("s")), waiter),
        ("a signal key, nothing buffered", new(later, Some("s")), free()),
        ("a signal key, a signal buffered", new(later, Some("s")), buffered),
    ];
    for (case, new, facts) in rows {
        let what = match admit(&new, &facts, "id".into(), 7, STAMP) {
            Ok(admitted) if admitted.used_signal => {
                format!("{}, with the signal, which is used up", admitted.job.state_name())
            }
            Ok(admitted) => admitted.job.state_name().to_owned(),
            Err(Refusal::Duplicate(_)) => "`AlreadyEnqueued`: the job that holds it".to_owned(),
            Err(Refusal::IdTaken) => "`DuplicateJobId`".to_owned(),
            Err(Refusal::SignalKeyTaken) => "`SignalKeyTaken`".to_owned(),
            Err(Refusal::SignalWithoutTimeout) => "`SignalKeyWithoutTimeout`".to_owned(),
        };
        writeln!(text, "| {case} | {what} |").unwrap();
    }
}

#[test]
fn the_document_says_what_the_functions_do() {
    let mut text = HEAD.to_owned();
    how_it_begins(&mut text);
    text.push('\n');
    where_to(&mut text);
    what_else(&mut text);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lifecycle.md");
    if std::env::var("TAQUBA_DOCS").is_ok_and(|how| how == "write") {
        std::fs::write(file, &text).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        written == text,
        "docs/lifecycle.md says something else; to write it anew: see table.rs"
    );
}
