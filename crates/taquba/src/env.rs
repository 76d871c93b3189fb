//! The one door through which real time, sleeping and randomness enter. Nothing else may call them, so that one
//! seed can replay a whole run; it owns no policy.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the module that the ban points to: every other place calls these functions"
)]

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// A point of the process's monotonic time. Follows tokio's clock, so a paused test runtime drives it.
pub(crate) type Instant = tokio::time::Instant;

/// Returns the monotonic time of this process.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the wall clock in milliseconds since the Unix epoch; 0 if the host's clock is set before it.
pub(crate) fn wall_ms() -> u64 {
    epoch_ms(SystemTime::now())
}

/// A wall time in milliseconds since the Unix epoch; 0 before it.
pub(crate) fn epoch_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// A duration in milliseconds, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps for `duration` of monotonic time.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Sleeps until `at`.
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at).await;
}

/// Runs `future` for at most `limit`; `None` when the limit passed first.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Returns 80 random bits for an id.
pub(crate) fn id_entropy() -> u128 {
    ulid::Ulid::new().random()
}

/// Returns 64 random bits that name a new store.
pub(crate) fn store_number() -> u64 {
    let bits = id_entropy().to_le_bytes();
    bits.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Returns milliseconds of monotonic time since the first call in this process.
pub(crate) fn process_ms() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = *START.get_or_init(std::time::Instant::now);
    millis(start.elapsed())
}

/// Where work belongs that computes for seconds without a pause (compaction): one thread of this process, beside the
/// caller's runtime, whose tasks it would hold up. On a runtime of a single thread it stays there, so that one seed
/// still decides the order of everything.
pub(crate) fn background() -> Handle {
    static BACKGROUND: OnceLock<Option<Runtime>> = OnceLock::new();
    let here = Handle::current();
    if here.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return here;
    }
    let built = BACKGROUND.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(4).thread_name("taquba-background");
        // Without a thread to spare, the caller's runtime does it.
        builder.enable_all().build().ok()
    });
    built.as_ref().map_or(here, |runtime| runtime.handle().clone())
}
