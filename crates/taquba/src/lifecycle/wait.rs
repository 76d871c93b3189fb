//! What happens to a job that is not being worked on: it falls due, is woken, cancelled, or brought back from the dead.

use std::sync::Arc;

use bytes::Bytes;

use super::history::Entry;
use super::job::{Hold, Job, State, Woken};
use super::{Ending, Move, Stamp};
use crate::record::AttemptOutcome;

/// A scheduled job's time has come.
pub(crate) fn promote(job: &Arc<Job>) -> Move {
    let mut after = job.with(State::Pending);
    after.signal_key = None;
    Move::on(job, after)
}

/// A scheduled job is woken early, with what the wake carries.
pub(crate) fn wake(job: &Arc<Job>, payload: Option<Bytes>, now_ms: u64) -> Option<Move> {
    if !matches!(job.state, State::Scheduled { .. }) {
        return None;
    }
    let mut after = job.with(State::Pending);
    after.signal_key = None;
    // A wake that carries nothing does not take back what an earlier signal brought: every attempt sees it.
    let kept = job.woken.as_ref().and_then(|woken| woken.payload.clone());
    after.woken = Some(Woken { at: now_ms, payload: payload.or(kept) });
    Some(Move::on(job, after))
}

/// What a cancel of this job does.
pub(crate) fn cancel(job: &Arc<Job>) -> Option<Move> {
    match &job.state {
        State::Pending | State::Scheduled { .. } => Some(Move::end(job, None, Ending::Cancelled)),
        State::Claimed(hold) => {
            let hold = Hold { cancel_requested: true, ..hold.clone() };
            Some(Move::on(job, job.with(State::Claimed(hold))))
        }
        State::Done { .. } | State::Dead { .. } => None,
    }
}

/// A waiting job's time is over before an attempt began: it is dead.
pub(crate) fn expire(job: &Arc<Job>, stamp: Stamp) -> Option<Move> {
    if !job.is_waiting() {
        return None;
    }
    let error = Arc::from("expired");
    let entry = Entry::of(job, AttemptOutcome::DeadLettered, Some(&error), stamp);
    let mut after = job.with(State::Dead { failed_at: stamp.now_ms });
    after.last_error = Some(error);
    after.dedup = None;
    after.signal_key = None;
    Some(Move::end(job, Some(after), Ending::DeadLettered).recorded(entry))
}

/// A kept job's time is over.
pub(crate) fn forget(job: &Arc<Job>) -> Option<Move> {
    let kept = matches!(job.state, State::Done { .. } | State::Dead { .. });
    kept.then(|| Move::forgotten(job))
}

/// A dead job gets all its attempts back.
pub(crate) fn requeue(job: &Arc<Job>, stamp: Stamp) -> Option<Move> {
    if !matches!(job.state, State::Dead { .. }) {
        return None;
    }
    let mut body = Arc::clone(&job.body);
    // Who brings back a job that expired wants it done all the same.
    if body.rules.expire_at.is_some_and(|at| at <= stamp.now_ms) {
        Arc::make_mut(&mut body).rules.expire_at = None;
    }
    let after = Job {
        body,
        attempts: 0,
        epoch: stamp.epoch,
        last_error: None,
        cancel_requested: false,
        ..job.with(State::Pending)
    };
    let entry = Entry::of(job, AttemptOutcome::Requeued, None, stamp);
    Some(Move::on(job, after).recorded(entry))
}
