//! How the engine ends: drained and closed cleanly, or lost. Either way every waiting call is answered.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::request::Reply;
use super::round::Round;
use super::shared::Shared;
use crate::env;
use crate::error::{CloseReason, Error, Result};
use crate::store::keys;
use crate::store::rows::Batch;

/// How long a close waits for deletions of payload objects that are under way.
const EMPTY_BIN_MAX: Duration = Duration::from_secs(2);

impl Engine {
    /// Stops taking work in. What was accepted goes on; those who wait for what may never come hear that it is over.
    pub(crate) fn begin_close(&mut self, reply: Reply<()>, round: &mut Round) {
        if self.closing.is_some() {
            // Whoever sent the second close waits for the end of the first.
            return;
        }
        self.shared.closed.send_replace(Some(CloseReason::Closed));
        self.closing = Some(reply);
        // What is claimed now counts as an attempt, whenever it was claimed.
        while let Some((_, claim)) = self.held_back.pop_front() {
            self.store_claim(claim, round);
        }
        self.idle.clear();
        self.awaiting.clear();
        self.watchers.clear();
        // Somebody waits now for all that was written, claims included.
        round.durable.push(Box::new(|_| ()));
    }

    /// The store is lost, or the handle is gone: nothing in memory counts any more. Dropping the loop's memory drops
    /// every reply, and each caller hears the reason that is set here first.
    pub(crate) fn fail(self, reason: CloseReason) {
        if !matches!(reason, CloseReason::Closed) {
            tracing::error!(%reason, path = %self.store.location.path, "the queue stopped");
        }
        self.shared.closed.send_replace(Some(reason));
        self.shared.leases.close();
    }

    /// Everything is durable and answered: say in the store that it was closed cleanly, then close it.
    pub(crate) async fn finish(mut self) {
        let reply = self.closing.take();
        // A call that slipped in is answered now: the store may take long, or hang.
        self.inbox.close();
        while self.inbox.try_recv().is_ok() {}
        let done = self.sign_off().await;
        if let Err(error) = &done {
            tracing::warn!(%error, "the store could not be closed cleanly; the next open recovers it");
        }
        let shared = Arc::clone(&self.shared);
        self.fail(CloseReason::Closed);
        shared.signed_off.send_replace(Some(done.is_ok()));
        if let Some(reply) = reply {
            // A caller that went away does not need its answer.
            drop(reply.send(done));
        }
    }

    async fn sign_off(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete(&keys::UNCLEAN.into());
        batch.put(keys::MARK.into(), self.mark.encode());
        // What was removed should be gone when the call returns, but it must not wait long for that.
        env::within(EMPTY_BIN_MAX, self.shared.offload.bin.emptied()).await;
        self.last_beat(&mut batch);
        let seq = self.store.write(batch).await?;
        flushed(&self.store, seq).await?;
        let start = env::now();
        let closed = self.store.close().await;
        tracing::debug!(took = ?env::now().duration_since(start), "store closed");
        closed
    }
}

/// Tells that the loop has ended, whatever ended it: a runtime that is shut down drops the loop in the middle of a turn.
pub(crate) struct Obituary(pub(crate) Arc<Shared>);

impl Drop for Obituary {
    fn drop(&mut self) {
        const GONE: &str =
            "its task is gone: the runtime that it was opened on was shut down, or it panicked";
        let Self(shared) = self;
        shared.closed.send_if_modified(|reason| {
            let news = reason.is_none();
            reason.get_or_insert_with(|| CloseReason::Failed(GONE.to_owned()));
            news
        });
        shared.leases.close();
        shared
            .signed_off
            .send_if_modified(|clean| clean.is_none() && clean.insert(false) == &false);
    }
}

/// Flushes and waits until `seq` is durable.
pub(crate) async fn flushed(store: &crate::store::db::Store, seq: u64) -> Result<()> {
    store.flush().await?;
    let mut progress = store.progress();
    while progress.durable_seq() < seq {
        if let Some(reason) = progress.ended() {
            return Err(Error::Closed(reason));
        }
        progress.changed().await.map_err(Error::Closed)?;
    }
    Ok(())
}
