//! What follows from a job's move, in one place: rows, counters, memory, waiters, and whoever reads the job just now.

use std::sync::Arc;

use super::Engine;
use super::bin::Doomed;
use super::request::{Answer, Watched, answer};
use super::round::Round;
use crate::lifecycle::job::{Job, Object, State};
use crate::lifecycle::term::runs;
use crate::lifecycle::{Ending, Move, settle};
use crate::record::{AttemptOutcome, WaitOutcome};
use crate::state::leases::ClaimNo;
use crate::state::reserve::Key;
use crate::state::window::Entry;
use crate::store::{rows, shape};
use crate::telemetry;

/// When a job that became pending may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// When this round is durable.
    WhenDurable,
    /// At once: it is where it was before a claim that nobody took over.
    Now,
}

impl Engine {
    /// Applies a move. Answers the claim number when it began a claim.
    pub(crate) fn apply(
        &mut self,
        change: Move,
        ready: Ready,
        round: &mut Round,
    ) -> Option<ClaimNo> {
        rows::write(&change, &mut round.batch);
        tell_figures(&change);
        if let Some(job) = change.job() {
            self.queues.count(job.queue(), |counters| rows::count(&change, counters));
        }
        // Both sides: a wait that ends has its signal key only before.
        for side in [&change.before, &change.after].into_iter().flatten() {
            self.touch(side);
        }
        let goes_on_held = change.after.as_ref().is_some_and(|job| job.hold().is_some());
        if let Some(before) = &change.before {
            self.leave(before, goes_on_held);
        }
        let claim = change.after.as_ref().and_then(|after| {
            self.shelve(after);
            let before = change.before.as_ref();
            self.enter(before, after, ready, round)
        });
        self.tell_watchers(&change, round);
        claim
    }

    /// Whoever reads this job, its dedup key or its signal key just now must read again.
    fn touch(&mut self, job: &Job) {
        if self.reservations.is_empty() {
            return;
        }
        self.reservations.touch(Key::job(job.id()));
        if let Some(key) = &job.dedup {
            self.reservations.touch(Key::dedup(job.queue(), key));
        }
        if let Some(key) = &job.signal_key {
            self.reservations.touch(Key::signal(job.queue(), key));
        }
    }

    fn leave(&mut self, before: &Arc<Job>, goes_on_held: bool) {
        if before.is_held_back() {
            self.queues.hold_no_more(before);
        }
        match &before.state {
            State::Pending => self.queues.remove(before),
            State::Scheduled { run_at } => {
                self.timers.window.remove((*run_at, before.body.order));
            }
            State::Claimed(_) if goes_on_held => {}
            State::Claimed(_) => {
                if let Some((claim, _)) = self.claims.of_order(before.body.order) {
                    self.shared.leases.end(claim);
                    self.claims.remove(claim);
                    self.ownership.set_held(self.claims.len());
                }
                // Its row stayed in line while it was held: a refill under way may have read it.
                self.queues.remove(before);
            }
            State::Done { .. } | State::Dead { .. } => {}
        }
    }

    fn enter(
        &mut self,
        before: Option<&Arc<Job>>,
        after: &Arc<Job>,
        ready: Ready,
        round: &mut Round,
    ) -> Option<ClaimNo> {
        match &after.state {
            State::Pending => {
                let ready_round = match ready {
                    Ready::WhenDurable => {
                        round.fed.insert(after.queue().clone());
                        round.no
                    }
                    Ready::Now => {
                        round.look.insert(after.queue().clone());
                        0
                    }
                };
                self.queues.insert(after, ready_round);
                None
            }
            State::Scheduled { run_at } => {
                let entry = Entry { job: Arc::clone(after), ready_round: round.no };
                let position = (*run_at, after.body.order);
                let cap = self.timer_bytes();
                self.timers.window.insert(position, entry, cap);
                None
            }
            State::Claimed(_) => {
                if after.is_held_back() {
                    self.queues.hold_back(after);
                }
                let held = before.filter(|job| job.hold().is_some());
                let claim = match held.and_then(|job| self.claims.of_order(job.body.order)) {
                    Some((claim, _)) => {
                        self.claims.replace(claim, after);
                        self.shared.leases.replace(claim, after);
                        return None;
                    }
                    None => self.claims.add(after),
                };
                self.ownership.set_held(self.claims.len());
                Some(claim)
            }
            State::Done { .. } | State::Dead { .. } => None,
        }
    }

    /// A job's time began to run: that of its queue's retention, or until it expires.
    fn shelve(&mut self, job: &Job) {
        let Some((kind, at)) = runs(job) else { return };
        let (queue, configs) = (job.queue().clone(), &self.shared.configs);
        self.retention.insert((queue.clone(), kind), at, || configs.keep_ms(&queue, kind));
    }

    /// Once the move is durable: tells those who wait for the job's end, and throws its payload's object away if the
    /// job is gone for good. Not before: a crash could bring the record back. They may read the payload first.
    fn tell_watchers(&mut self, change: &Move, round: &mut Round) {
        let Some(job) = &change.before else { return };
        let object = job.body.payload.object().copied();
        let gone = object.filter(|_| change.after.is_none());
        let watchers = change.ending.and_then(|_| self.watchers.remove(job.id()));
        let Some(ending) = change.ending.filter(|_| watchers.is_some()) else {
            if let Some(object) = gone {
                round.durable.push(self.throw(object));
            }
            return;
        };
        let last = match (&change.after, ending) {
            (Some(after), _) => after.as_ref().clone(),
            (None, Ending::Completed) => settle::completed(job, change.result.clone(), round.stamp),
            (None, _) => job.as_ref().clone(),
        };
        let bin = self.shared.offload.bin.clone();
        round.durable.push(Box::new(move |ended| {
            let gone = gone.filter(|_| ended.is_none());
            let doomed = gone.map(|object| Arc::new(Doomed::new(object.name, bin)));
            for (_, reply) in watchers.into_iter().flatten() {
                let watched = shape::job_record(&last).map(|record| {
                    let outcome = match ending {
                        Ending::Completed => WaitOutcome::Done(Box::new(record)),
                        Ending::DeadLettered => WaitOutcome::Dead(Box::new(record)),
                        Ending::Cancelled => WaitOutcome::Cancelled,
                    };
                    Watched { outcome, object, doomed: doomed.clone() }
                });
                answer(reply, watched)(ended);
            }
        }));
    }

    /// Throws the object of a removed record away, once that is durable.
    fn throw(&self, object: Object) -> Answer {
        let bin = self.shared.offload.bin.clone();
        Box::new(move |ended| {
            if ended.is_none() {
                bin.throw(object.name);
            }
        })
    }

    /// Tells those who asked of a job that died without a worker's word, once it is durable.
    pub(crate) fn tell_death(&mut self, job: &Job, round: &mut Round) {
        let Some(listeners) = self.deaths.get_mut(job.queue().as_str()) else {
            return;
        };
        listeners.retain(|listener| !listener.is_closed());
        for listener in listeners {
            let (listener, id) = (listener.clone(), job.id().as_ref().to_owned());
            round.durable.push(Box::new(move |ended| {
                if ended.is_none() {
                    // A listener that went away needs no news.
                    drop(listener.send(id));
                }
            }));
        }
    }
}

/// Tells the metrics recorder of a move, once it is decided.
fn tell_figures(change: &Move) {
    let Some(job) = change.job() else { return };
    let held = |side: &Option<Arc<Job>>| side.as_ref().is_some_and(|job| job.hold().is_some());
    let retried = change.entry.as_ref().is_some_and(|e| e.outcome == AttemptOutcome::Retried);
    let figures = [
        (change.before.is_none(), telemetry::ENQUEUED),
        (held(&change.after) && !held(&change.before), telemetry::CLAIMED),
        (change.ending == Some(Ending::Completed), telemetry::COMPLETED),
        (change.ending == Some(Ending::DeadLettered), telemetry::DEAD_LETTERED),
        (retried, telemetry::NACKED),
    ];
    for (_, name) in figures.into_iter().filter(|(is_so, _)| *is_so) {
        telemetry::count(name, job.queue());
    }
}
