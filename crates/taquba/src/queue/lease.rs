//! Keeping a claim: leases are memory only, so renewing one is a plain call that waits for nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Claim, Queue};
use crate::engine::Shared;
use crate::engine::request::Request;
use crate::env::millis;
use crate::error::{Error, Result};
use crate::lifecycle::job::Progress;
use crate::limits::{MAX_PROGRESS_NOTE_LEN, clip};
use crate::state::leases::{ClaimNo, Ended};
use crate::telemetry;

/// Margin that [`LeaseHandle::ensure_at_least`] adds (5 s), so that work which ends on time can still be settled.
const MARGIN: Duration = Duration::from_secs(5);

/// A closed handle has lost all its claims; that it is closed says more.
fn refusal(shared: &Shared, ended: Ended) -> Error {
    match ended {
        Ended::Lost => shared.check_open().err().unwrap_or(Error::ClaimLost),
        Ended::CancelRequested => Error::CancelRequested,
    }
}

impl Queue {
    /// Sets a claim's lease to end `extension` from now (earlier than before, if that is shorter) and returns that
    /// time, in milliseconds since the Unix epoch. Memory only: nothing is stored.
    ///
    /// # Errors
    /// [`Error::ClaimLost`] once the claim has ended; [`Error::CancelRequested`] once cancellation was requested;
    /// [`Error::Closed`] once the handle is closed.
    pub fn renew_lease(&self, claim: &Claim, extension: Duration) -> Result<u64> {
        let shared = &self.shared;
        let until = shared.mono_ms().saturating_add(millis(extension));
        let renewed = shared.leases.renew(claim.number(), until);
        if renewed.map_err(|ended| refusal(shared, ended))? {
            shared.post(Request::LookAtLease(claim.number()))?;
        }
        telemetry::count(telemetry::RENEWALS, &claim.queue);
        Ok(shared.clock.now_ms().saturating_add(millis(extension)))
    }

    /// Returns when the lease of a job's live claim ends, in milliseconds since the Unix epoch; `None` when the job
    /// is not claimed.
    #[must_use]
    pub fn lease_expiry(&self, _queue: &str, id: &str) -> Option<u64> {
        let until = self.shared.leases.expiry_of(id)?;
        let left = until.saturating_sub(self.shared.mono_ms());
        Some(self.shared.clock.now_ms().saturating_add(left))
    }

    /// Returns a handle that keeps this claim's lease.
    #[must_use]
    pub fn lease_handle(&self, claim: &Claim) -> LeaseHandle {
        LeaseHandle {
            claim: Some((Arc::clone(&self.shared), claim.number())),
            token: claim.cancel_token().clone(),
        }
    }
}

/// Keeps the lease of one claim; given to handlers. Clones keep the same lease.
#[derive(Clone)]
pub struct LeaseHandle {
    claim: Option<(Arc<Shared>, ClaimNo)>,
    token: CancellationToken,
}

impl LeaseHandle {
    /// Returns a handle of no claim, for tests of handlers: it extends nothing and is never lost.
    #[must_use]
    pub fn detached() -> Self {
        Self { claim: None, token: CancellationToken::new() }
    }

    /// Returns the token that fires when cancellation is requested or the store is lost.
    #[must_use]
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.token
    }

    /// Makes the lease last at least `duration` from now, and 5 s more; never shortens it. Memory only. In a worker loop
    /// it is not needed: there the claim is kept while the handler runs, and the longest run time
    /// ([`WorkerOptions::max_run`](crate::WorkerOptions::max_run), or the job's or its queue's own) ends it, whatever
    /// this says.
    ///
    /// # Errors
    /// [`Error::ClaimLost`] once the claim has ended; [`Error::CancelRequested`] once cancellation was requested;
    /// [`Error::Closed`] once the handle is closed.
    pub fn ensure_at_least(&self, duration: Duration) -> Result<()> {
        let Some((shared, claim)) = &self.claim else {
            return Ok(());
        };
        let until = shared.mono_ms().saturating_add(millis(duration.saturating_add(MARGIN)));
        shared.leases.ensure(*claim, until).map_err(|ended| refusal(shared, ended))
    }
}

impl LeaseHandle {
    /// Says how far this attempt is: `percent` (0..=100, more counts as 100) and a note of which 1 KiB is kept. Seen at
    /// once in this process ([`JobRecord::progress`](crate::JobRecord::progress)); stored at most once a second and in no
    /// PUT of its own where others are made, so report as often as you like. Gone with the attempt.
    ///
    /// # Errors
    /// [`Error::ClaimLost`] once the claim has ended.
    pub fn report_progress(&self, percent: u8, note: &str) -> Result<()> {
        let Some((shared, claim)) = &self.claim else {
            return Ok(());
        };
        let note = Arc::from(clip(note, MAX_PROGRESS_NOTE_LEN));
        let at = shared.clock.now_ms();
        let progress = Arc::new(Progress { percent: percent.min(100), at, note });
        if shared.leases.report(*claim, progress).map_err(|ended| refusal(shared, ended))? {
            shared.post(Request::Progress(*claim))?;
        }
        Ok(())
    }
}

/// Keeps a claim while a handler's future lives, up to its longest run time: no heartbeat to miss, whatever the lease.
pub(crate) struct Keep {
    shared: Arc<Shared>,
    claim: ClaimNo,
    lease: Duration,
}

impl Queue {
    /// Keeps `claim` until the answer is dropped, for `max_run` at most. Then at least `lease` is left to settle it.
    pub(crate) fn keep(&self, claim: ClaimNo, max_run: Duration, lease: Duration) -> Keep {
        let shared = Arc::clone(&self.shared);
        let until = shared.mono_ms().saturating_add(millis(max_run));
        if shared.leases.keep(claim, until) {
            // A lost store has taken its claims back already.
            drop(shared.post(Request::LookAtLease(claim)));
        }
        Keep { shared, claim, lease }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        let until = self.shared.mono_ms().saturating_add(millis(self.lease));
        if self.shared.leases.let_go(self.claim, until) {
            // A lost store has taken its claims back already.
            drop(self.shared.post(Request::LookAtLease(self.claim)));
        }
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("detached", &self.claim.is_none())
            .field("cancelled", &self.token.is_cancelled())
            .finish()
    }
}
