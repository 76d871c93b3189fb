//! Every key of the store: one letter that names the key space, then its parts. Order of keys is order of use: ready
//! jobs by claim order, scheduled ones by time. No values here.

use bytes::Bytes;

use crate::lifecycle::job::{Job, ObjectName, Place, State};
use crate::lifecycle::term::Kind;

/// The key spaces. `M`, for rows about the store itself, is spelled out in their keys.
pub(crate) const READY: u8 = b'P';
pub(crate) const PAYLOAD: u8 = b'B';
pub(crate) const SCHEDULED: u8 = b'S';
pub(crate) const CLAIM: u8 = b'C';
pub(crate) const DONE: u8 = b'D';
pub(crate) const DEAD: u8 = b'X';
pub(crate) const DEAD_BY_TIME: u8 = b'Y';
pub(crate) const EXPIRING: u8 = b'Z';
pub(crate) const KEPT_LOW: u8 = b'R';
pub(crate) const INDEX: u8 = b'I';
pub(crate) const HISTORY: u8 = b'H';
pub(crate) const DEDUP: u8 = b'U';
pub(crate) const WAIT: u8 = b'W';
pub(crate) const SIGNAL: u8 = b'G';
pub(crate) const COUNTERS: u8 = b'N';
pub(crate) const LOW: u8 = b'L';
pub(crate) const ASIDE: u8 = b'V';
pub(crate) const PAUSED: u8 = b'Q';
pub(crate) const KV: u8 = b'K';
pub(crate) const OBJECT: u8 = b'O';
pub(crate) const ENTRY: u8 = b'E';
pub(crate) const ENTRY_BY_TIME: u8 = b'T';

/// The store's format stamp.
pub(crate) const FORMAT: &[u8] = b"Mformat";
/// The highest time, id and order number issued.
pub(crate) const MARK: &[u8] = b"Mmark";
/// The number that names this store in its payload objects.
pub(crate) const STORE: &[u8] = b"Mstore";
/// Present while a process has the store open, and after it died.
pub(crate) const UNCLEAN: &[u8] = b"Munclean";
/// The owner's last beat; absent until an owner beats.
pub(crate) const HEARTBEAT: &[u8] = b"Mheartbeat";
/// No scheduled job lies below the time in this row.
pub(crate) const LOW_SCHEDULED: &[u8] = b"Mlow-scheduled";

/// `space`, then the queue name behind its length, so that no name is another one's prefix.
pub(crate) fn in_queue(space: u8, queue: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(queue.len() + 16);
    key.push(space);
    // A queue name is at most 255 bytes: `QueueName` refuses longer ones.
    key.push(u8::try_from(queue.len()).unwrap_or(u8::MAX));
    key.extend_from_slice(queue.as_bytes());
    key
}

fn with(mut key: Vec<u8>, tail: &[u8]) -> Bytes {
    key.extend_from_slice(tail);
    key.into()
}

fn single(space: u8, tail: &[u8]) -> Bytes {
    let mut key = Vec::with_capacity(1 + tail.len());
    key.push(space);
    with(key, tail)
}

/// A ready job: queue, priority, order.
pub(crate) fn ready(queue: &str, place: Place) -> Bytes {
    placed(READY, queue, place)
}

/// A payload too large for its job's row, in claim order too.
pub(crate) fn payload(queue: &str, place: Place) -> Bytes {
    placed(PAYLOAD, queue, place)
}

/// Which job a payload object belongs to: store, epoch, upload.
pub(crate) fn object(name: &ObjectName) -> Bytes {
    let mut key = Vec::with_capacity(33);
    key.push(OBJECT);
    key.extend_from_slice(&name.store.to_be_bytes());
    key.extend_from_slice(&name.epoch.to_be_bytes());
    with(key, &name.upload.to_be_bytes())
}

fn placed(space: u8, queue: &str, place: Place) -> Bytes {
    let mut key = band(space, queue, place.priority);
    key.extend_from_slice(&place.order.to_be_bytes());
    key.into()
}

/// The prefix of one priority of one queue.
pub(crate) fn band(space: u8, queue: &str, priority: u32) -> Vec<u8> {
    let mut key = in_queue(space, queue);
    key.extend_from_slice(&priority.to_be_bytes());
    key
}

/// A scheduled job: time, order.
pub(crate) fn scheduled(run_at: u64, order: u64) -> Bytes {
    let mut key = vec![SCHEDULED];
    key.extend_from_slice(&run_at.to_be_bytes());
    with(key, &order.to_be_bytes())
}

/// A claim, by its slot.
pub(crate) fn claim(slot: u32) -> Bytes {
    single(CLAIM, &slot.to_be_bytes())
}

fn done(queue: &str, completed_at: u64, order: u64) -> Bytes {
    timed(DONE, queue, completed_at, order)
}

fn timed(space: u8, queue: &str, at: u64, order: u64) -> Bytes {
    let mut key = in_queue(space, queue);
    key.extend_from_slice(&at.to_be_bytes());
    with(key, &order.to_be_bytes())
}

/// A dead job: queue, id.
pub(crate) fn dead(queue: &str, id: &str) -> Bytes {
    with(in_queue(DEAD, queue), id.as_bytes())
}

/// A dead job by its time, whose record is by its id.
pub(crate) fn dead_by_time(queue: &str, failed_at: u64, order: u64) -> Bytes {
    timed(DEAD_BY_TIME, queue, failed_at, order)
}

/// A waiting job by the time at which it expires.
pub(crate) fn expiring(queue: &str, expire_at: u64, order: u64) -> Bytes {
    timed(EXPIRING, queue, expire_at, order)
}

/// What became of an inbox entry: queue, the entry's id.
pub(crate) fn entry(queue: &str, id: &str) -> Bytes {
    with(in_queue(ENTRY, queue), id.as_bytes())
}

/// The same by the time from which it is kept.
pub(crate) fn entry_by_time(queue: &str, since: u64, id: &str) -> Bytes {
    let mut key = in_queue(ENTRY_BY_TIME, queue);
    key.extend_from_slice(&since.to_be_bytes());
    with(key, id.as_bytes())
}

/// No job (or inbox entry) of the queue and kind has an earlier time than the one in this row.
pub(crate) fn kept_low(queue: &str, kind: Kind) -> Bytes {
    let letter = match kind {
        Kind::Done => DONE,
        Kind::Dead => DEAD,
        Kind::Expiring => EXPIRING,
        Kind::Entry => ENTRY,
    };
    with(in_queue(KEPT_LOW, queue), &[letter])
}

/// Which row a job id has.
pub(crate) fn index(id: &str) -> Bytes {
    single(INDEX, id.as_bytes())
}

/// One entry of a job's history: the job's order number, then the entry's, from 0.
pub(crate) fn history(order: u64, entry: u32) -> Bytes {
    with(histories(order), &entry.to_be_bytes())
}

/// The prefix of a job's history.
pub(crate) fn histories(order: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.push(HISTORY);
    key.extend_from_slice(&order.to_be_bytes());
    key
}

/// Which waiting job holds a dedup key.
pub(crate) fn dedup(queue: &str, key: &str) -> Bytes {
    with(in_queue(DEDUP, queue), key.as_bytes())
}

/// Which job waits for a signal key.
pub(crate) fn wait(queue: &str, key: &str) -> Bytes {
    with(in_queue(WAIT, queue), key.as_bytes())
}

/// The signal buffered for a key.
pub(crate) fn signal(queue: &str, key: &str) -> Bytes {
    with(in_queue(SIGNAL, queue), key.as_bytes())
}

/// A queue's counters.
pub(crate) fn counters(queue: &str) -> Bytes {
    in_queue(COUNTERS, queue).into()
}

/// A row that could not be decoded, by where it stood.
pub(crate) fn aside(key: &[u8]) -> Bytes {
    single(ASIDE, key)
}

/// Present while a queue is paused.
pub(crate) fn paused(queue: &str) -> Bytes {
    in_queue(PAUSED, queue).into()
}

/// No ready job of the band lies below the order in this row.
pub(crate) fn low(queue: &str, priority: u32) -> Bytes {
    band(LOW, queue, priority).into()
}

/// A caller's row.
pub(crate) fn kv(key: &[u8]) -> Bytes {
    single(KV, key)
}

/// The row that holds a job's record, by its state. A claimed job's record stays where it was.
pub(crate) fn main(job: &Job) -> Bytes {
    match job.state {
        State::Pending | State::Claimed(_) => ready(job.queue(), job.place()),
        State::Scheduled { run_at } => scheduled(run_at, job.body.order),
        State::Done { completed_at } => done(job.queue(), completed_at, job.body.order),
        State::Dead { .. } => dead(job.queue(), job.id()),
    }
}

/// The priority at the end of a key of [`low`].
pub(crate) fn low_priority(queue: &str, key: &[u8]) -> Option<u32> {
    let tail = key.get(queue.len() + 2..)?;
    Some(u32::from_be_bytes(tail.try_into().ok()?))
}

/// The time that follows `prefix` in a key.
pub(crate) fn time_after(prefix: &[u8], key: &[u8]) -> Option<u64> {
    let time = key.strip_prefix(prefix)?.first_chunk()?;
    Some(u64::from_be_bytes(*time))
}

/// The kind of a key of [`kept_low`].
pub(crate) fn kept_low_kind(queue: &str, key: &[u8]) -> Option<Kind> {
    match key.get(queue.len() + 2..)? {
        [DONE] => Some(Kind::Done),
        [DEAD] => Some(Kind::Dead),
        [EXPIRING] => Some(Kind::Expiring),
        [ENTRY] => Some(Kind::Entry),
        _ => None,
    }
}

/// The slot in a key of [`claim`].
pub(crate) fn claim_slot(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// The order number that ends a ready or scheduled key.
pub(crate) fn order(key: &[u8]) -> Option<u64> {
    let tail = key.get(key.len().checked_sub(8)?..)?;
    Some(u64::from_be_bytes(tail.try_into().ok()?))
}

/// The queue name in a key made by [`in_queue`].
pub(crate) fn queue_of(key: &[u8]) -> Option<&str> {
    let len = usize::from(*key.get(1)?);
    std::str::from_utf8(key.get(2..2 + len)?).ok()
}

/// The first key after every key that starts with `prefix`; `None` if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(end);
        }
        end.pop();
    }
    None
}
