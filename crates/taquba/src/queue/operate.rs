//! What operators and other code ask of jobs by id: cancel, wake, bring back, signal. Durable on return.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Queue;
use crate::effects::SettlementEffects;
use crate::engine::Lane;
use crate::engine::prepare::size_of;
use crate::engine::request::{Op, Request};
use crate::error::Result;
use crate::limits;
use crate::name::QueueName;
use crate::record::{CancelOutcome, EnqueueResult, OrphanSweep, SignalDelivery, WakeOutcome};

impl Queue {
    /// Cancels a job: one that waits is removed; one that is claimed is asked to stop (its token fires, its lease is
    /// extended no more, and the request survives retries). Durable on return.
    ///
    /// # Errors
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); [`Error::Closed`](crate::Error::Closed).
    pub async fn cancel(&self, id: &str) -> Result<CancelOutcome> {
        self.cancel_with(id, SettlementEffects::default()).await.map(|(outcome, _)| outcome)
    }

    /// As [`cancel`](Self::cancel); the effects apply only if the job is removed.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel); also what is wrong with the effects.
    pub async fn cancel_with(
        &self,
        id: &str,
        effects: SettlementEffects,
    ) -> Result<(CancelOutcome, Vec<EnqueueResult>)> {
        let mut effects = self.shared.configs.effects(effects)?;
        self.shared.upload(&mut effects).await?;
        let bytes = size_of(&effects);
        let op = |reply| Op::Cancel { id: id.into(), effects, reply };
        self.shared.call(Lane::Ask, bytes, op).await
    }

    /// Makes a scheduled job ready now, with what the wake carries. Durable on return.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel); [`Error::TooLarge`](crate::Error::TooLarge) past 4 MiB.
    pub async fn wake_scheduled(
        &self,
        id: &str,
        wake_payload: Option<Vec<u8>>,
    ) -> Result<WakeOutcome> {
        let bytes = wake_payload.as_ref().map_or(0, Vec::len);
        limits::check("wake payload bytes", bytes, limits::MAX_EFFECTS_SIZE)?;
        let payload = wake_payload.map(Into::into);
        let op = |reply| Op::Wake { id: id.into(), payload, reply };
        self.shared.call(Lane::Ask, bytes, op).await
    }

    /// Pauses a queue: from now on none of its jobs is handed out, to nobody, until [`resume`](Self::resume), also by later
    /// owners of the store. What is claimed goes on; enqueues, timers and settlements too. Whether it was not paused
    /// before. Durable on return; shown in [`QueueStats::paused`](crate::QueueStats::paused).
    ///
    /// # Errors
    /// [`Error::InvalidQueueName`](crate::Error::InvalidQueueName); else as [`cancel`](Self::cancel).
    pub async fn pause(&self, queue: &str) -> Result<bool> {
        self.set_paused(queue, true).await
    }

    /// Ends the pause of a queue; whether it was paused. Durable on return.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, queue: &str) -> Result<bool> {
        self.set_paused(queue, false).await
    }

    async fn set_paused(&self, queue: &str, paused: bool) -> Result<bool> {
        let queue = QueueName::new(queue)?;
        self.shared.call(Lane::Ask, 0, |reply| Op::Pause { queue, paused, reply }).await
    }

    /// Gives a dead job all its attempts back and makes it pending. Durable on return.
    ///
    /// # Errors
    /// [`Error::JobNotFound`](crate::Error::JobNotFound); [`Error::InvalidState`](crate::Error::InvalidState) when it
    /// is not dead; else as [`cancel`](Self::cancel).
    pub async fn requeue_dead_job(&self, id: &str) -> Result<()> {
        self.shared.call(Lane::Ask, 0, |reply| Op::Requeue { id: id.into(), reply }).await
    }

    /// Takes a job back whose row was put aside because it could not be decoded
    /// ([`QueueView::quarantine`](crate::QueueView::quarantine)), as it was: for after an upgrade that can. Durable on
    /// return.
    ///
    /// # Errors
    /// [`Error::JobNotFound`](crate::Error::JobNotFound) when no such row was put aside;
    /// [`Error::Deserialization`](crate::Error::Deserialization) when it still cannot be decoded;
    /// [`Error::DuplicateJobId`](crate::Error::DuplicateJobId) when another job has its id by now; else as
    /// [`cancel`](Self::cancel).
    pub async fn requeue_quarantined(&self, key: &[u8]) -> Result<()> {
        self.aside(key, true).await.map(drop)
    }

    /// Deletes a row that was put aside; whether it was there. Durable on return.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub async fn discard_quarantined(&self, key: &[u8]) -> Result<bool> {
        self.aside(key, false).await
    }

    async fn aside(&self, key: &[u8], back: bool) -> Result<bool> {
        let key = bytes::Bytes::copy_from_slice(key);
        self.shared.call(Lane::Ask, 0, |reply| Op::Aside { key, back, reply }).await
    }

    /// Signals a key of a queue: wakes the job that waits for it
    /// ([`EnqueueOptions::signal_key`](crate::EnqueueOptions::signal_key)), or keeps the signal for the next job that
    /// does; a second signal replaces the kept one. Exactly one of the two happens, whatever comes at the same time.
    /// Durable on return.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge): key past 256 bytes, payload past 4 MiB; else as
    /// [`cancel`](Self::cancel).
    pub async fn send_signal(
        &self,
        queue: &str,
        key: &str,
        payload: Vec<u8>,
    ) -> Result<SignalDelivery> {
        limits::check_signal(key, payload.len())?;
        let (queue, key) = (QueueName::new(queue)?, Arc::from(key));
        let bytes = payload.len();
        let op = |reply| Op::Signal { queue, key, payload: payload.into(), reply };
        self.shared.call(Lane::Ask, bytes, op).await
    }

    /// Removes the signal that is kept for a key; whether there was one. Durable on return.
    ///
    /// # Errors
    /// As [`send_signal`](Self::send_signal).
    pub async fn clear_signal(&self, queue: &str, key: &str) -> Result<bool> {
        limits::check("signal key bytes", key.len(), limits::MAX_SIGNAL_KEY_LEN)?;
        let (queue, key) = (QueueName::new(queue)?, Arc::from(key));
        self.shared.call(Lane::Ask, 0, |reply| Op::ClearSignal { queue, key, reply }).await
    }

    /// Returns a stream of the ids of jobs that the engine itself dead-letters on a queue from now on: a lease that
    /// ran out in the last attempt, a payload that is gone, a settlement that was refused. (What open dead-letters shows in the listing of dead
    /// jobs.) It ends when the handle does; unread ids are kept in memory.
    #[must_use]
    pub fn engine_deaths(&self, queue: &str) -> mpsc::UnboundedReceiver<String> {
        let (listener, deaths) = mpsc::unbounded_channel();
        if let Ok(queue) = QueueName::new(queue) {
            // A closed handle has no more news: the listener is dropped and the stream ends.
            drop(self.shared.post(Request::Deaths(queue, listener)));
        }
        deaths
    }

    /// Ends the claims whose leases ran out, now instead of within 20 ms. For tests with a clock of their own.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub async fn reap_now(&self) -> Result<()> {
        self.tick().await
    }

    /// Makes due scheduled jobs ready, now instead of within 20 ms. For tests with a clock of their own.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub async fn promote_scheduled_now(&self) -> Result<()> {
        self.tick().await
    }

    /// Looks for payload objects that a crash left behind, now, and deletes those that nothing names. It can never
    /// delete one that a job's record names, or that an enqueue under way will name. Runs by itself too:
    /// [`OpenOptions::orphan_sweep_interval`](crate::OpenOptions::orphan_sweep_interval). One LIST per 1,000 payload
    /// objects, at most one read per object.
    ///
    /// # Errors
    /// [`Error::PayloadStore`](crate::Error::PayloadStore) when the objects cannot be listed;
    /// [`Error::Storage`](crate::Error::Storage); [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Cancel safety
    /// The sweep goes on.
    pub async fn sweep_orphans_now(&self) -> Result<OrphanSweep> {
        self.shared.check_open()?;
        let (reply, answer) = oneshot::channel();
        self.shared.offload.sweeps.send(reply).map_err(|_| self.shared.closed_error())?;
        self.shared.answer(answer).await
    }

    async fn tick(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.shared.post(Request::Tick(reply))?;
        self.shared.answer(answer).await
    }
}
