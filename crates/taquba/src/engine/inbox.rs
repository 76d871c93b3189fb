//! Entries of the inbox become commands: what one does and what is remembered of it are in one batch. So whatever
//! happens between the effect and the deletion of the entry's object (a crash, another owner, the same object again), the
//! next look finds the record and does nothing.
//!
//! Those of a queue are decided in the order that they are sent in: each command holds the queue's line
//! ([`Key::inbox`](crate::state::reserve::Key::inbox)), and those in one command name nothing in common, so that those
//! facts that are read at once hold for each of them.
//!
//! A record outlives its object. It is forgotten only after a time that begins again as long as the object is found still
//! there, and in an opening only once the whole inbox has been looked at.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::found::{Found, Read, job_reads};
use super::request::Prepared;
use super::retention::Sweep;
use super::round::Round;
use crate::error::{Error, Result};
use crate::inbox::{InboxOutcome, InboxRecord, Rejection};
use crate::lifecycle::job::JobId;
use crate::lifecycle::term::Kind;
use crate::lifecycle::wait;
use crate::name::QueueName;
use crate::record::CancelOutcome;
use crate::store::inbox::{Kept, encode};
use crate::store::keys;

/// An entry that came, read and checked.
pub(crate) struct Arrival {
    pub(crate) id: Arc<str>,
    pub(crate) wish: Wish,
}

/// What an entry asks for.
pub(crate) enum Wish {
    /// One job.
    Enqueue(Prepared),
    Cancel(JobId),
    Signal {
        key: Arc<str>,
        payload: Bytes,
    },
    /// Nothing that can be done.
    Reject(Rejection),
}

impl Arrival {
    /// What it must read first.
    pub(super) fn reads(&self, queue: &QueueName) -> Vec<Read> {
        let mut reads = match &self.wish {
            Wish::Enqueue(what) => job_reads(&what.jobs),
            Wish::Cancel(id) => vec![Read::Job(Arc::clone(id))],
            Wish::Signal { key, .. } => vec![Read::Signal(queue.clone(), Arc::clone(key))],
            Wish::Reject(_) => Vec::new(),
        };
        reads.push(Read::Entry(queue.clone(), Arc::clone(&self.id)));
        reads
    }
}

impl Engine {
    /// Applies entries that name nothing in common, in their order. What one does to a job that was there shows in what
    /// the later ones rest on: a name that they do not say may be that job's.
    pub(super) fn take_in(
        &mut self,
        queue: &QueueName,
        arrivals: Vec<Arrival>,
        found: &Found,
        round: &mut Round,
    ) -> Vec<InboxRecord> {
        let mut found = Cow::Borrowed(found);
        let mut records = Vec::with_capacity(arrivals.len());
        for Arrival { id, wish } in arrivals {
            let known = found.entries.get(&(queue.clone(), Arc::clone(&id)));
            records.push(match known {
                Some(kept) => {
                    self.remember_on(queue, &id, kept, round);
                    kept.record.clone()
                }
                None => {
                    let outcome = self.fulfil(queue, wish, &mut found, round);
                    let record = InboxRecord { applied_at_ms: round.stamp.now_ms, outcome };
                    let kept = Kept { since: round.stamp.now_ms, record: record.clone() };
                    self.remember(queue, &id, &kept, round);
                    record
                }
            });
        }
        records
    }

    fn fulfil(
        &mut self,
        queue: &QueueName,
        wish: Wish,
        found: &mut Cow<'_, Found>,
        round: &mut Round,
    ) -> InboxOutcome {
        let done = match wish {
            Wish::Enqueue(what) => self.enqueue(false, what, found, round).map(|mut results| {
                let nothing = || Rejection::Failed { message: "it has no job".to_owned() };
                results
                    .pop()
                    .map_or_else(|| InboxOutcome::Rejected(nothing()), InboxOutcome::Enqueue)
            }),
            Wish::Cancel(id) => self.cancel_within(queue, &id, found, round),
            Wish::Signal { key, payload } => {
                let waiter = found.waiters.get(&(queue.clone(), Arc::clone(&key))).cloned();
                let carried = Some(payload.clone());
                let delivery = self.signal(queue.clone(), key, payload, found, round);
                let woken = waiter.and_then(|job| wait::wake(&job, carried, round.stamp.now_ms));
                if let Some(woken) = woken.and_then(|change| change.after)
                    && found.jobs.contains_key(woken.id())
                {
                    found.to_mut().jobs.insert(Arc::clone(woken.id()), Some(woken));
                }
                Ok(InboxOutcome::Signal(delivery))
            }
            Wish::Reject(rejection) => Ok(InboxOutcome::Rejected(rejection)),
        };
        done.unwrap_or_else(|error| InboxOutcome::Rejected(refused(&error)))
    }

    /// Cancels a job of the queue. Who may send to one queue has no say in the others.
    fn cancel_within(
        &mut self,
        queue: &QueueName,
        id: &JobId,
        found: &mut Cow<'_, Found>,
        round: &mut Round,
    ) -> Result<InboxOutcome> {
        if let Some(job) = self.found_job(id, found).filter(|job| job.queue() != queue) {
            let job_queue = job.queue().as_str().to_owned();
            return Ok(InboxOutcome::Rejected(Rejection::OtherQueue { job_queue }));
        }
        let (outcome, _) = self.cancel(id, Prepared::default(), found, round)?;
        if outcome == CancelOutcome::Removed {
            found.to_mut().forget(id);
        }
        Ok(InboxOutcome::Cancel(outcome))
    }

    fn remember(&mut self, queue: &QueueName, id: &str, kept: &Kept, round: &mut Round) {
        round.batch.put(keys::entry(queue, id), encode(kept));
        round.batch.put(keys::entry_by_time(queue, kept.since, id), Bytes::new());
        let keep_ms = self.entries_kept_ms;
        self.retention.insert((queue.clone(), Kind::Entry), kept.since, || keep_ms);
    }

    /// Its object is still there, so it must not be forgotten: its time begins again when half of it is over.
    fn remember_on(&mut self, queue: &QueueName, id: &str, kept: &Kept, round: &mut Round) {
        let now_ms = round.stamp.now_ms;
        let half = self.entries_kept_ms.unwrap_or(0) / 2;
        if kept.since.saturating_add(half) >= now_ms {
            return;
        }
        round.batch.delete(&keys::entry_by_time(queue, kept.since, id));
        let kept = Kept { since: now_ms, record: kept.record.clone() };
        self.remember(queue, id, &kept, round);
    }

    /// The whole inbox has been looked at: what has been there has its record, so old records may go.
    pub(super) fn keep_entries(&mut self, keep_ms: u64) {
        self.entries_kept_ms = Some(keep_ms);
        self.retention.keep(Kind::Entry, keep_ms);
    }

    /// Forgets entries whose time is over.
    pub(super) fn forget_entries(&mut self, sweep: Sweep, found: &Found, round: &mut Round) {
        let queue = &sweep.shelf.0;
        for id in &sweep.ids {
            let kept = found.entries.get(&(queue.clone(), Arc::clone(id)));
            if let Some(kept) = kept.filter(|kept| kept.since <= sweep.until) {
                round.batch.delete(&keys::entry(queue, id));
                round.batch.delete(&keys::entry_by_time(queue, kept.since, id));
            }
        }
        self.retention.finish(sweep.shelf, sweep.next);
    }
}

/// Why the queue refused, as what is remembered.
pub(crate) fn refused(error: &Error) -> Rejection {
    match error {
        Error::DuplicateJobId { .. } => Rejection::DuplicateJobId,
        Error::InvalidId { reason, .. } => Rejection::InvalidId { reason: (*reason).to_owned() },
        Error::SignalKeyTaken { .. } => Rejection::SignalKeyTaken,
        Error::SignalKeyWithoutTimeout { .. } => Rejection::SignalKeyWithoutTimeout,
        other => Rejection::Failed { message: other.to_string() },
    }
}
