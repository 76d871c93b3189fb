//! From a job's move to the rows that change: the ONE place that writes job keys. Counters are counted here too.

use bytes::Bytes;

use super::history;
use super::keys;
use super::record::{self, Counters};
use crate::lifecycle::history::KEPT;
use crate::lifecycle::job::{Job, Payload, State};
use crate::lifecycle::{Ending, Move};

/// Row changes that commit together. The last change of a key wins.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) inner: slatedb::WriteBatch,
    /// Bytes of keys and values so far.
    pub(crate) size: usize,
    rows: usize,
}

/// What a row costs in memory beside its key and value, roughly.
const ROW_OVERHEAD: usize = 32;

impl Batch {
    pub(crate) fn put(&mut self, key: Bytes, value: Bytes) {
        self.size += key.len() + value.len();
        self.rows += 1;
        self.inner.put_bytes(key, value);
    }

    pub(crate) fn delete(&mut self, key: &Bytes) {
        self.size += key.len();
        self.rows += 1;
        self.inner.delete(key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// What it takes in a memtable, roughly.
    pub(crate) fn memory(&self) -> usize {
        self.size + self.rows * ROW_OVERHEAD
    }
}

/// Writes the rows of one move. Each row is owned by the job's side that needs it: what `before` had and `after` has
/// not is deleted, what `after` needs and `before` had not (or had otherwise) is put.
pub(crate) fn write(change: &Move, batch: &mut Batch) {
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    main_row(before, after, batch);
    owned_row(before, after, batch, claim_row);
    owned_row(before, after, batch, dedup_row);
    owned_row(before, after, batch, wait_row);
    owned_row(before, after, batch, payload_row);
    owned_row(before, after, batch, object_row);
    owned_row(before, after, batch, dead_row);
    owned_row(before, after, batch, expiring_row);
    history_rows(change, batch);
}

/// The record and the index row that points at it.
fn main_row(before: Option<&Job>, after: Option<&Job>, batch: &mut Batch) {
    let old = before.map(keys::main);
    let new = after.map(keys::main);
    if let Some(old) = &old
        && new.as_ref() != Some(old)
    {
        batch.delete(old);
    }
    match (after, new, before) {
        (Some(job), Some(key), before) => {
            if old.as_ref() != Some(&key) {
                batch.put(keys::index(job.id()), key.clone());
            }
            let unchanged =
                old.as_ref() == Some(&key) && before.is_some_and(|b| same_record(b, job));
            if !unchanged {
                batch.put(key, record::encode_job(job));
            }
        }
        (_, _, Some(job)) => batch.delete(&keys::index(job.id())),
        _ => {}
    }
}

/// Whether two sides of a move that share a key have the same bytes there. A claim adds nothing to the record.
fn same_record(a: &Job, b: &Job) -> bool {
    let pending = |state: &State| matches!(state, State::Pending | State::Claimed(_));
    a.attempts == b.attempts
        && a.epoch == b.epoch
        && a.last_error == b.last_error
        && a.dedup == b.dedup
        && a.cancel_requested == b.cancel_requested
        && a.signal_key == b.signal_key
        && a.woken == b.woken
        && a.history == b.history
        && pending(&a.state)
        && pending(&b.state)
}

type Row = Option<(Bytes, Bytes)>;

fn owned_row(before: Option<&Job>, after: Option<&Job>, batch: &mut Batch, row: fn(&Job) -> Row) {
    let old = before.and_then(row);
    let new = after.and_then(row);
    if old == new {
        return;
    }
    if let Some((key, _)) = &old
        && new.as_ref().is_none_or(|(k, _)| k != key)
    {
        batch.delete(key);
    }
    if let Some((key, value)) = new {
        batch.put(key, value);
    }
}

fn claim_row(job: &Job) -> Row {
    let hold = job.hold()?;
    Some((keys::claim(hold.slot?), record::encode_claim(job, hold)))
}

fn dedup_row(job: &Job) -> Row {
    let key = job.owned_dedup()?;
    Some((keys::dedup(job.queue(), key), Bytes::copy_from_slice(job.id().as_bytes())))
}

fn wait_row(job: &Job) -> Row {
    let key = job.awaited_signal()?;
    Some((keys::wait(job.queue(), key), Bytes::copy_from_slice(job.id().as_bytes())))
}

fn dead_row(job: &Job) -> Row {
    let State::Dead { failed_at } = job.state else { return None };
    let key = keys::dead_by_time(job.queue(), failed_at, job.body.order);
    Some((key, Bytes::copy_from_slice(job.id().as_bytes())))
}

fn expiring_row(job: &Job) -> Row {
    let key = keys::expiring(job.queue(), job.expires_at()?, job.body.order);
    Some((key, Bytes::copy_from_slice(job.id().as_bytes())))
}

/// A large payload's row is written once and goes with the job; a side without the bytes at hand never rewrites it.
fn payload_row(job: &Job) -> Row {
    match &job.body.payload {
        Payload::Inline(_) | Payload::Object(_) => None,
        Payload::Apart { bytes, .. } => {
            Some((keys::payload(job.queue(), job.place()), bytes.clone().unwrap_or_default()))
        }
    }
}

/// Says that a payload object is named, as long as the record that names it is there: the sweep of orphans asks it.
fn object_row(job: &Job) -> Row {
    let object = job.body.payload.object()?;
    Some((keys::object(&object.name), Bytes::copy_from_slice(job.id().as_bytes())))
}

/// The new entry of a job's history displaces the oldest one; with the job go all of them.
fn history_rows(change: &Move, batch: &mut Batch) {
    match (&change.before, &change.after, &change.entry) {
        (_, Some(after), Some(entry)) => {
            let (order, number) = (after.body.order, after.history.saturating_sub(1));
            batch.put(keys::history(order, number), history::encode(entry));
            if let Some(oldest) = number.checked_sub(KEPT) {
                batch.delete(&keys::history(order, oldest));
            }
        }
        (Some(before), None, _) => {
            for number in before.history.saturating_sub(KEPT)..before.history {
                batch.delete(&keys::history(before.body.order, number));
            }
        }
        _ => {}
    }
}

/// Counts one move.
pub(crate) fn count(change: &Move, counters: &mut Counters) {
    if let Some(counter) = change.before.as_ref().and_then(|job| counters.of(&job.state)) {
        *counter = counter.saturating_sub(1);
    }
    if let Some(counter) = change.after.as_ref().and_then(|job| counters.of(&job.state)) {
        *counter += 1;
    }
    if change.ending == Some(Ending::Completed) {
        counters.done += 1;
    }
}
