//! Where a queue's timestamps come from: the trait, the real clock and one for tests. Sleeping is not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::env;

/// The source of every timestamp and every due-time comparison of a queue.
///
/// Implement [`now_ms`](Self::now_ms) alone for a plain clock. A clock that jumps (a test clock) also gives
/// [`on_advance`](Self::on_advance), so that timers look again at once instead of at their next safety-net tick.
pub trait Clock: Send + Sync + 'static {
    /// Returns wall time in milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Returns milliseconds that leases are judged by; must never go back. Defaults to [`now_ms`](Self::now_ms);
    /// the queue ignores steps backwards.
    fn monotonic_ms(&self) -> u64 {
        self.now_ms()
    }

    /// Returns a watch that fires whenever time was moved by hand; `None` (the default) for clocks that only flow.
    fn on_advance(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// The host's clock: wall time for timestamps, monotonic time for leases.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        env::wall_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        env::process_ms()
    }
}

/// A clock that stands still until a test advances it. Clones share one time.
#[derive(Debug, Clone)]
pub struct MockClock {
    now: Arc<AtomicU64>,
    advanced: Arc<watch::Sender<u64>>,
}

impl MockClock {
    /// Creates a clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            now: Arc::new(AtomicU64::new(now_ms)),
            advanced: Arc::new(watch::Sender::new(now_ms)),
        }
    }

    /// Moves time forward (saturating) and wakes every timer that waits on this clock.
    pub fn advance(&self, by: Duration) {
        let by_ms = env::millis(by);
        let before = self
            .now
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by_ms)))
            .unwrap_or_else(|now| now);
        self.advanced.send_replace(before.saturating_add(by_ms));
    }
}

impl Default for MockClock {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Clock for MockClock {
    fn now_ms(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    fn on_advance(&self) -> Option<watch::Receiver<u64>> {
        Some(self.advanced.subscribe())
    }
}
