//! Signals by key: a thin name for what the queue does in one command each.

use taquba::SignalDelivery;

use super::WorkflowRuntime;
use crate::error::Result;
use crate::lifecycle::run::SignalOutcome;

impl<R, H> WorkflowRuntime<R, H> {
    /// Sends a signal to the run that waits for its key; if none does, keeps it for the next one that will. Either is
    /// durable on return. Signals that come before, during or after the registration of a wait are never lost.
    ///
    /// One signal is kept per key: a second one replaces the first. One that comes after a wait timed out is kept too,
    /// until the next wait for the key or [`clear_signal`](Self::clear_signal).
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue), with `TooLarge` for a key past 256 bytes.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the signal may or may not have been sent.
    pub async fn signal(&self, key: &str, payload: Vec<u8>) -> Result<SignalOutcome> {
        let shared = &self.inner.shared;
        Ok(match shared.queue.send_signal(&shared.name, key, payload).await? {
            SignalDelivery::Delivered => SignalOutcome::Delivered,
            SignalDelivery::Buffered => SignalOutcome::Buffered,
        })
    }

    /// Forgets the signal that is kept for a key and returns whether there was one. Durable on return.
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue).
    ///
    /// # Cancel safety
    /// Dropped before it returns, the signal may or may not be forgotten.
    pub async fn clear_signal(&self, key: &str) -> Result<bool> {
        let shared = &self.inner.shared;
        Ok(shared.queue.clear_signal(&shared.name, key).await?)
    }
}
