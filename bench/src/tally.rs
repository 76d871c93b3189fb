//! What happened to every job: how often it was handled, and how long after it was sent.
//! Owns no clock but the bench's own, and knows no system.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::system::Fault;

/// Bytes of every payload.
pub(crate) const PAYLOAD_BYTES: usize = 200;

/// One slot per job, by the number in its payload.
pub(crate) struct Tally {
    started: Instant,
    jobs: Box<[Slot]>,
    /// Jobs handled at least once.
    distinct: AtomicUsize,
    /// Handlings, repeats included.
    total: AtomicUsize,
    /// Fires when every job has been handled.
    all_handled: CancellationToken,
}

#[derive(Default)]
struct Slot {
    times_handled: AtomicU8,
    sent_ns: AtomicU64,
    handled_ns: AtomicU64,
}

impl Tally {
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            started: Instant::now(),
            jobs: (0..jobs).map(|_| Slot::default()).collect(),
            distinct: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            all_handled: CancellationToken::new(),
        }
    }

    /// The payload of job `number`.
    pub(crate) fn payload(number: usize) -> Vec<u8> {
        let mut payload = vec![0x5a; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&(number as u64).to_le_bytes());
        payload
    }

    /// Notes that job `number` is about to be sent.
    pub(crate) fn sent(&self, number: usize) {
        self.jobs[number].sent_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Notes that a handler got the job with this payload.
    pub(crate) fn handled(&self, payload: &[u8]) -> Result<(), Fault> {
        let number = payload.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let slot = number
            .and_then(|n| self.jobs.get(usize::try_from(n).ok()?))
            .filter(|_| payload.len() == PAYLOAD_BYTES)
            .ok_or("a handler got a payload that was never sent")?;
        self.total.fetch_add(1, Ordering::Relaxed);
        if slot.times_handled.fetch_add(1, Ordering::Relaxed) == 0 {
            slot.handled_ns.store(self.now_ns(), Ordering::Relaxed);
            if self.distinct.fetch_add(1, Ordering::AcqRel) + 1 == self.jobs.len() {
                self.all_handled.cancel();
            }
        }
        Ok(())
    }

    /// Ends when every job has been handled.
    pub(crate) async fn wait_all_handled(&self) {
        self.all_handled.cancelled().await;
    }

    /// Jobs handled at least once.
    pub(crate) fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Acquire) as u64
    }

    /// Handlings beyond the first of each job.
    pub(crate) fn repeats(&self) -> u64 {
        (self.total.load(Ordering::Acquire) as u64).saturating_sub(self.distinct())
    }

    /// Nanoseconds from sending to handling, of every job that was both sent one by one and handled.
    pub(crate) fn waits_ns(&self) -> Vec<u64> {
        let times = self.jobs.iter().map(|slot| {
            (slot.sent_ns.load(Ordering::Relaxed), slot.handled_ns.load(Ordering::Relaxed))
        });
        times.filter(|(sent, handled)| *sent > 0 && handled > sent).map(|(s, h)| h - s).collect()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
