//! How a claim begins and how it ends: ack, retry, dead letter, release, expiry, interruption.

use std::sync::Arc;

use bytes::Bytes;

use super::history::Entry;
use super::job::{Hold, Job, State};
use super::{Ending, Move, Stamp};
use crate::record::AttemptOutcome;
use crate::retry::RetryPolicy;

/// A pending job is taken by a worker. Without a slot the claim is held back.
pub(crate) fn claim(job: &Arc<Job>, slot: Option<u32>, now_ms: u64) -> Move {
    let hold = Hold { slot, claimed_at: now_ms, cancel_requested: false };
    let mut held = job.with(State::Claimed(hold));
    // Claimed by its id, it waits for its signal no more.
    held.signal_key = None;
    Move::on(job, held)
}

/// A claim that was held back gets its row; `None` when it has one.
pub(crate) fn store_claim(job: &Arc<Job>, slot: u32) -> Option<Move> {
    let hold = job.hold().filter(|hold| hold.slot.is_none())?;
    let hold = Hold { slot: Some(slot), ..hold.clone() };
    Some(Move::on(job, job.with(State::Claimed(hold))))
}

/// The worker is done with it.
pub(crate) fn ack(job: &Arc<Job>, keep: bool, result: Option<Bytes>, stamp: Stamp) -> Move {
    let entry = Entry::of(job, AttemptOutcome::Completed, None, stamp);
    let after = keep.then(|| completed(job, result.clone(), stamp));
    let change = Move { result, ..Move::end(job, after, Ending::Completed) };
    change.recorded(entry)
}

/// A claimed job as it is when done, kept or not.
pub(crate) fn completed(job: &Job, result: Option<Bytes>, stamp: Stamp) -> Job {
    Job { result, ..ended(job, State::Done { completed_at: stamp.now_ms }, stamp) }
}

/// The attempt failed: wait and try again, as the job's own policy says or else its queue's; or die when out of
/// attempts.
pub(crate) fn nack(job: &Arc<Job>, error: &str, queues: &RetryPolicy, stamp: Stamp) -> Move {
    let policy = job.body.rules.retry.as_ref().unwrap_or(queues);
    let delay_ms = policy.delay_ms(job.attempts_shown(), job.body.order);
    try_again(job, error, delay_ms, AttemptOutcome::Retried, stamp)
}

/// The attempt ended without success: another one comes, or none is left.
fn try_again(
    job: &Arc<Job>,
    error: &str,
    delay_ms: u64,
    outcome: AttemptOutcome,
    stamp: Stamp,
) -> Move {
    if job.attempts_shown() >= job.body.max_attempts {
        return dead_letter(job, error, stamp);
    }
    let state = match delay_ms {
        0 => State::Pending,
        delay => State::Scheduled { run_at: stamp.now_ms.saturating_add(delay) },
    };
    let mut after = ended(job, state, stamp);
    let error = Arc::from(error);
    let entry = Entry::of(job, outcome, Some(&error), stamp);
    after.last_error = Some(error);
    Move::on(job, after).recorded(entry)
}

/// The job is given up, whatever attempts are left.
pub(crate) fn dead_letter(job: &Arc<Job>, reason: &str, stamp: Stamp) -> Move {
    let mut after = ended(job, State::Dead { failed_at: stamp.now_ms }, stamp);
    let reason = Arc::from(reason);
    let entry = Entry::of(job, AttemptOutcome::DeadLettered, Some(&reason), stamp);
    after.last_error = Some(reason);
    Move::end(job, Some(after), Ending::DeadLettered).recorded(entry)
}

/// The lease ran out: at once for the next worker, or dead when out of attempts.
pub(crate) fn expire(job: &Arc<Job>, stamp: Stamp) -> Move {
    try_again(job, "lease expired", 0, AttemptOutcome::LeaseExpired, stamp)
}

/// The process that held it is gone. Its attempt counts, and the job still stands as one that was there at open; its
/// last error stays what it was.
pub(crate) fn interrupt(job: &Arc<Job>, stamp: Stamp) -> Move {
    let error = "claim interrupted by process exit";
    let mut change = try_again(job, error, 0, AttemptOutcome::Interrupted, stamp);
    if change.ending.is_none()
        && let Some(after) = &mut change.after
    {
        let after = Arc::make_mut(after);
        after.epoch = job.epoch;
        after.last_error.clone_from(&job.last_error);
    }
    change
}

/// Nobody took the claim over: as if it had not happened. `keeps_dedup` when its dedup key is still free.
pub(crate) fn release(job: &Arc<Job>, keeps_dedup: bool) -> Move {
    let mut after = job.with(State::Pending);
    if !keeps_dedup {
        after.dedup = None;
    }
    after.cancel_requested |= job.wants_cancel();
    Move::on(job, after)
}

/// The job after a claim that counts.
fn ended(job: &Job, state: State, stamp: Stamp) -> Job {
    Job {
        attempts: job.attempts_shown(),
        epoch: stamp.epoch,
        dedup: None,
        cancel_requested: job.wants_cancel(),
        ..job.with(state)
    }
}
