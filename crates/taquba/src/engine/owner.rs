//! Proof that the store is still ours. A second opener takes over without asking, so a job is handed out only on proof
//! younger than a second: a log PUT that landed, or a manifest read that began, since then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::env::{self, Instant};
use crate::error::CloseReason;
use crate::store::db::Store;

/// How old a proof may be when a job is handed out on it.
pub(crate) const PROOF_MAX_AGE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Ownership {
    proved_at: Mutex<Instant>,
    /// Claims that workers hold; while there are any, the proof is renewed each second.
    held: AtomicUsize,
}

impl Ownership {
    pub(crate) fn new() -> Self {
        Self { proved_at: Mutex::new(env::now()), held: AtomicUsize::new(0) }
    }

    /// Ownership was proved by something that began at `at`.
    pub(crate) fn proved(&self, at: Instant) {
        let mut proved = self.proved_at.lock().unwrap_or_else(PoisonError::into_inner);
        *proved = at.max(*proved);
    }

    fn age(&self) -> Duration {
        let proved = *self.proved_at.lock().unwrap_or_else(PoisonError::into_inner);
        env::now().saturating_duration_since(proved)
    }

    /// Whether a job may be handed out without asking the store.
    pub(crate) fn is_fresh(&self) -> bool {
        self.age() < PROOF_MAX_AGE
    }

    /// How many claims are held now.
    pub(crate) fn set_held(&self, claims: usize) {
        self.held.store(claims, Ordering::Relaxed);
    }
}

/// Renews the proof: each second while handlers run, each `idle` otherwise, so that loops and waiters of a handle
/// that lost its store end. A loss shows in the store's progress, which the loop watches.
pub(crate) async fn run(
    store: Store,
    ownership: Arc<Ownership>,
    idle: Duration,
    mut closed: watch::Receiver<Option<CloseReason>>,
) {
    while closed.borrow_and_update().is_none() {
        let limit = if ownership.held.load(Ordering::Relaxed) > 0 { PROOF_MAX_AGE } else { idle };
        let age = ownership.age();
        if age >= limit {
            let start = env::now();
            match store.refresh().await {
                Ok(()) => ownership.proved(start),
                Err(error) => {
                    tracing::warn!(%error, "could not confirm that the store is still ours")
                }
            }
        }
        // Claims may come while this sleeps the idle interval; it looks again every second, at no request.
        let pause = limit.saturating_sub(age).clamp(Duration::from_millis(100), PROOF_MAX_AGE);
        tokio::select! {
            () = env::sleep(pause) => {}
            changed = closed.changed() => if changed.is_err() { return },
        }
    }
}
