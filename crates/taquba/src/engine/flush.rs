//! When the log's buffer goes to the object store: a pure policy, and the one task that follows it. Only this task
//! flushes, since a flush called by many becomes many PUTs, one after the other; and it never waits for the loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::owner::Ownership;
use super::request::Request;
use crate::env::{self, Instant};
use crate::store::db::{MAX_UNFLUSHED_BYTES, Store, fatal};

/// Pause after a flush that failed for a reason that may pass.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What the loop tells about what it has written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demand {
    /// The last sequence written.
    pub(crate) written: u64,
    /// The last sequence that somebody waits for.
    pub(crate) wanted: u64,
    /// When the oldest write that is not durable yet happened.
    pub(crate) oldest: Option<Instant>,
    /// Bytes written and not durable yet.
    pub(crate) bytes: usize,
}

/// The knobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushPolicy {
    /// Least time between the starts of two flushes.
    pub(crate) interval: Option<Duration>,
    /// Longest time that a write nobody waits for stays unflushed.
    pub(crate) deferred_max: Duration,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Flush,
    /// Look again then, or when the demand changes.
    At(Instant),
    /// Look again when the demand changes.
    Idle,
}

impl FlushPolicy {
    /// Decides. Called only while no flush is in flight: what comes meanwhile gathers for the next.
    pub(crate) fn next(
        &self,
        now: Instant,
        demand: &Demand,
        durable: u64,
        last_start: Option<Instant>,
    ) -> Action {
        if demand.written <= durable {
            return Action::Idle;
        }
        let urgent = demand.wanted > durable || demand.bytes >= MAX_UNFLUSHED_BYTES / 4;
        let mut due = match demand.oldest {
            Some(oldest) if !urgent => oldest + self.deferred_max,
            _ => now,
        };
        if let (Some(interval), Some(last)) = (self.interval, last_start) {
            due = due.max(last + interval);
        }
        if due <= now { Action::Flush } else { Action::At(due) }
    }
}

/// Flushes as the policy says until the store ends; counts the flushes that landed.
///
/// A flush has landed when the watermark says so, not when the call returns.
pub(crate) async fn run(
    store: Store,
    policy: FlushPolicy,
    mut demand: watch::Receiver<Demand>,
    ownership: Arc<Ownership>,
    landed: watch::Sender<u64>,
    lost: mpsc::UnboundedSender<Request>,
) {
    let mut last_start = None;
    loop {
        let wish = *demand.borrow_and_update();
        let durable = store.progress().durable_seq();
        let waited = match policy.next(env::now(), &wish, durable, last_start) {
            Action::Flush => {
                let start = env::now();
                last_start = Some(start);
                match super::close::flushed(&store, wish.written).await {
                    Ok(()) => {
                        ownership.proved(start);
                        landed.send_modify(|flushes| *flushes += 1);
                        Ok(())
                    }
                    Err(error) => match fatal(&error) {
                        Some(reason) => {
                            // If the engine is gone, it knows.
                            drop(lost.send(Request::Lost(reason)));
                            return;
                        }
                        None => {
                            tracing::warn!(%error, "flush failed; trying again");
                            env::sleep(RETRY_PAUSE).await;
                            Ok(())
                        }
                    },
                }
            }
            Action::At(at) => tokio::select! {
                changed = demand.changed() => changed,
                () = env::sleep_until(at) => Ok(()),
            },
            Action::Idle => demand.changed().await,
        };
        if waited.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn policy(interval: Option<Duration>) -> FlushPolicy {
        FlushPolicy { interval, deferred_max: 250 * MS }
    }

    #[tokio::test]
    async fn flushes_at_once_for_a_waiter_late_for_nobody_and_never_for_nothing() {
        let now = env::now();
        let nothing = Demand { written: 5, wanted: 5, oldest: None, bytes: 0 };
        assert_eq!(policy(None).next(now, &nothing, 5, None), Action::Idle);
        let waiter = Demand { written: 6, wanted: 6, oldest: Some(now), bytes: 1 };
        assert_eq!(policy(None).next(now, &waiter, 5, Some(now)), Action::Flush);
        let deferred = Demand { written: 6, wanted: 4, oldest: Some(now), bytes: 1 };
        assert_eq!(policy(None).next(now, &deferred, 5, None), Action::At(now + 250 * MS));
        assert_eq!(policy(None).next(now + 250 * MS, &deferred, 5, None), Action::Flush);
    }

    #[tokio::test]
    async fn an_interval_spaces_flushes_and_much_unflushed_does_not_wait_for_a_waiter() {
        let now = env::now();
        let waiter = Demand { written: 6, wanted: 6, oldest: Some(now), bytes: 1 };
        let spaced = policy(Some(10 * MS));
        assert_eq!(spaced.next(now, &waiter, 5, Some(now)), Action::At(now + 10 * MS));
        assert_eq!(spaced.next(now + 10 * MS, &waiter, 5, Some(now)), Action::Flush);
        let much =
            Demand { written: 6, wanted: 4, oldest: Some(now), bytes: MAX_UNFLUSHED_BYTES / 4 };
        assert_eq!(policy(None).next(now, &much, 5, None), Action::Flush);
    }
}
