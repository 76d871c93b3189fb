//! What the process remembers of each queue: its counters, and the front of each of its priorities.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::window::{Entry, Window};
use crate::lifecycle::job::Job;
use crate::name::QueueName;
use crate::store::record::Counters;

/// Window bytes of one band while memory is plenty (4 MiB), and when all windows together pass [`PLENTY`].
const BAND_BYTES: usize = 4 * 1_024 * 1_024;
const BAND_BYTES_SCARCE: usize = 128 * 1_024;
/// All windows together (64 MiB).
const PLENTY: usize = 64 * 1_024 * 1_024;
/// How far a durable low-water mark may trail the truth, in order numbers.
const LOW_SLACK: u64 = 1_024;
/// Exhausted bands that a queue keeps; further ones are forgotten, their marks deleted.
const IDLE_BANDS: usize = 8;

/// One priority of one queue.
#[derive(Debug)]
pub(crate) struct Band {
    pub(crate) window: Window<u64>,
    /// The low-water mark as the store has it; `None` when it has no row yet.
    stored_low: Option<u64>,
    /// Claimed jobs whose claims are held back: in the store they are pending.
    held_back: BTreeSet<u64>,
}

impl Band {
    fn new(window: Window<u64>, stored_low: Option<u64>) -> Self {
        Self { window, stored_low, held_back: BTreeSet::new() }
    }

    /// The order number that no pending row of the store lies below; `None` when it has none.
    fn low(&self) -> Option<u64> {
        let held = self.held_back.first().copied();
        self.window.low().map_or(held, |low| Some(held.map_or(low, |held| held.min(low))))
    }
}

/// One queue.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) counters: Counters,
    /// Claims that are held back: the store counts their jobs as pending.
    held_back: u64,
    /// No job is handed out.
    pub(crate) paused: bool,
    pub(crate) bands: BTreeMap<u32, Band>,
}

/// What the front of a queue offers.
#[derive(Debug)]
pub(crate) enum Front {
    /// The next job in line.
    Job(Arc<Job>),
    /// Nothing is ready, and everything is known.
    Nothing,
    /// The next job in line may be in the store; its band must be refilled first.
    Unknown,
}

/// A low-water row to write with the round.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LowRow {
    pub(crate) queue: QueueName,
    pub(crate) priority: u32,
    /// `None` deletes the row.
    pub(crate) low: Option<u64>,
}

/// All queues that ever had a job.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: HashMap<QueueName, QueueState>,
    /// Queues whose counters changed in this round.
    counted: BTreeSet<QueueName>,
    /// Bands whose rows changed in this round.
    moved: BTreeSet<(QueueName, u32)>,
    /// Bytes in all windows.
    bytes: usize,
    /// In place of [`BAND_BYTES`], in tests.
    band_bytes: Option<usize>,
}

impl Queues {
    /// Takes in what the store says of a queue at open.
    pub(crate) fn restore(&mut self, name: QueueName, counters: Counters, lows: Vec<(u32, u64)>) {
        let unloaded = counters.pending > 0;
        let bands = lows.into_iter().map(|(priority, low)| {
            let window = if unloaded { Window::unloaded(low) } else { Window::empty() };
            (priority, Band::new(window, Some(low)))
        });
        let queue = self.queues.entry(name).or_default();
        (queue.counters, queue.bands) = (counters, bands.collect());
    }

    /// Pauses a queue, or lets it go on; whether that is news.
    pub(crate) fn set_paused(&mut self, name: &QueueName, paused: bool) -> bool {
        let queue = self.queues.entry(name.clone()).or_default();
        std::mem::replace(&mut queue.paused, paused) != paused
    }

    /// Changes a queue's counters.
    pub(crate) fn count(&mut self, name: &QueueName, change: impl FnOnce(&mut Counters)) {
        if !self.queues.contains_key(name.as_str()) {
            self.queues.insert(name.clone(), QueueState::default());
        }
        if let Some(queue) = self.queues.get_mut(name.as_str()) {
            change(&mut queue.counters);
            if !self.counted.contains(name.as_str()) {
                self.counted.insert(name.clone());
            }
        }
    }

    /// A job became pending.
    pub(crate) fn insert(&mut self, job: &Arc<Job>, ready_round: u64) {
        let cap = self.cap();
        let queue = self.queues.entry(job.queue().clone()).or_default();
        let band = queue
            .bands
            .entry(job.body.priority)
            .or_insert_with(|| Band::new(Window::empty(), None));
        let before = band.window.bytes();
        band.window.insert(job.body.order, Entry { job: Arc::clone(job), ready_round }, cap);
        self.bytes = self.bytes + band.window.bytes() - before;
        if band.stored_low.is_none_or(|low| job.body.order < low) {
            self.moved.insert((job.queue().clone(), job.body.priority));
        }
    }

    /// A pending job moved on.
    pub(crate) fn remove(&mut self, job: &Job) {
        let Some(queue) = self.queues.get_mut(job.queue().as_str()) else {
            return;
        };
        let Some(band) = queue.bands.get_mut(&job.body.priority) else {
            return;
        };
        let before = band.window.bytes();
        band.window.remove(job.body.order);
        self.bytes = self.bytes + band.window.bytes() - before;
        let low = band.low();
        if low.is_none_or(|low| band.stored_low.is_some_and(|s| low >= s.saturating_add(LOW_SLACK)))
        {
            self.moved.insert((job.queue().clone(), job.body.priority));
        }
    }

    /// A claim of this job is held back.
    pub(crate) fn hold_back(&mut self, job: &Job) {
        if let Some(queue) = self.queues.get_mut(job.queue().as_str()) {
            queue.held_back += 1;
            if let Some(band) = queue.bands.get_mut(&job.body.priority) {
                band.held_back.insert(job.body.order);
            }
        }
    }

    /// That claim is stored now, or has ended.
    pub(crate) fn hold_no_more(&mut self, job: &Job) {
        if let Some(queue) = self.queues.get_mut(job.queue().as_str()) {
            queue.held_back -= 1;
            if let Some(band) = queue.bands.get_mut(&job.body.priority) {
                band.held_back.remove(&job.body.order);
            }
        }
    }

    /// How many jobs of a queue are in each state, and whether it is paused.
    pub(crate) fn counters(&self, name: &str) -> (Counters, bool) {
        self.queues.get(name).map(|queue| (queue.counters, queue.paused)).unwrap_or_default()
    }

    /// Of each queue its counters, and when the longest waiting of the jobs that come next was enqueued.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (&str, Counters, Option<u64>)> {
        self.queues.iter().map(|(name, queue)| {
            let heads = queue.bands.values().filter_map(|band| band.window.first());
            let oldest = heads.map(|(_, entry)| entry.job.body.enqueued_at).min();
            (name.as_str(), queue.counters, oldest)
        })
    }

    /// The next job in line whose row is durable. A band that may have earlier jobs in the store hides later bands.
    pub(crate) fn front(&mut self, name: &str, durable_round: u64) -> Front {
        let Some(queue) = self.queues.get_mut(name).filter(|queue| !queue.paused) else {
            return Front::Nothing;
        };
        for band in queue.bands.values_mut() {
            if let Some(job) = band.window.first_ready(durable_round) {
                return Front::Job(Arc::clone(job));
            }
            // Also when memory holds jobs that are not durable yet: ready ones may lie behind them in the store, not to
            // be passed over for a later priority, nor to be taken for the end.
            if !band.window.is_complete() {
                return Front::Unknown;
            }
        }
        Front::Nothing
    }

    /// The bands of a queue that are to be scanned now, each with where from.
    pub(crate) fn begin_scans(&mut self, name: &str) -> Vec<(u32, u64)> {
        let cap = self.cap();
        let Some(queue) = self.queues.get_mut(name) else {
            return Vec::new();
        };
        let scans = queue
            .bands
            .iter_mut()
            .filter_map(|(priority, band)| Some((*priority, band.window.begin_scan(cap)?)));
        scans.collect()
    }

    /// Changes one band's window.
    pub(crate) fn with_window(
        &mut self,
        name: &str,
        priority: u32,
        change: impl FnOnce(&mut Window<u64>),
    ) {
        let band = self.queues.get_mut(name).and_then(|queue| queue.bands.get_mut(&priority));
        if let Some(band) = band {
            let before = band.window.bytes();
            change(&mut band.window);
            self.bytes = self.bytes + band.window.bytes() - before;
        }
    }

    /// Sets what one band may hold; `None` for the usual.
    pub(crate) fn set_band_bytes(&mut self, bytes: Option<usize>) {
        self.band_bytes = bytes;
    }

    fn cap(&self) -> usize {
        if self.bytes > PLENTY { BAND_BYTES_SCARCE } else { self.band_bytes.unwrap_or(BAND_BYTES) }
    }

    /// The counter rows to write with this round.
    pub(crate) fn take_counted(&mut self) -> Vec<(QueueName, Counters)> {
        let counted = std::mem::take(&mut self.counted);
        counted
            .into_iter()
            .filter_map(|name| {
                let queue = self.queues.get(name.as_str())?;
                let mut counters = queue.counters;
                counters.pending += queue.held_back;
                counters.claimed -= queue.held_back;
                Some((name, counters))
            })
            .collect()
    }

    /// The low-water rows to write with this round. A mark is lowered in the round that inserts below it, so no crash
    /// can leave a live job below its mark; it is raised only when it trails far, since a low mark costs a scan and
    /// never a job.
    pub(crate) fn take_lows(&mut self, next_order: u64) -> Vec<LowRow> {
        let moved = std::mem::take(&mut self.moved);
        let mut rows = Vec::new();
        for (name, priority) in moved {
            let Some(queue) = self.queues.get_mut(name.as_str()) else {
                continue;
            };
            let bands = queue.bands.len();
            let Some(band) = queue.bands.get_mut(&priority) else {
                continue;
            };
            let low = band.low();
            if low.is_none() && bands > IDLE_BANDS {
                queue.bands.remove(&priority);
                rows.push(LowRow { queue: name, priority, low: None });
                continue;
            }
            let low = low.unwrap_or(next_order);
            let raised = |stored: u64| low < stored || low >= stored.saturating_add(LOW_SLACK);
            if band.stored_low.is_none_or(raised) {
                band.stored_low = Some(low);
                rows.push(LowRow { queue: name, priority, low: Some(low) });
            }
        }
        rows
    }
}
