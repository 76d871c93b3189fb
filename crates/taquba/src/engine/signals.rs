//! Signals by key: to the job that waits, or kept for the one that will.

use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::found::Found;
use super::moves::Ready;
use super::round::Round;
use crate::lifecycle::wait;
use crate::name::QueueName;
use crate::record::SignalDelivery;
use crate::store::keys;

impl Engine {
    /// Wakes the job that waits for the key, or keeps the signal for the one that will: never neither, never both.
    pub(crate) fn signal(
        &mut self,
        queue: QueueName,
        key: Arc<str>,
        payload: Bytes,
        found: &Found,
        round: &mut Round,
    ) -> SignalDelivery {
        let stored = keys::signal(&queue, &key);
        let waiter = found.waiters.get(&(queue, key));
        let woken =
            waiter.and_then(|job| wait::wake(job, Some(payload.clone()), round.stamp.now_ms));
        match woken {
            Some(change) => {
                self.apply(change, Ready::WhenDurable, round);
                SignalDelivery::Delivered
            }
            None => {
                round.batch.put(stored, payload);
                SignalDelivery::Buffered
            }
        }
    }

    /// Removes the signal that is kept for a key; whether there was one.
    pub(crate) fn clear_signal(
        &mut self,
        queue: QueueName,
        key: Arc<str>,
        found: &Found,
        round: &mut Round,
    ) -> bool {
        let stored = keys::signal(&queue, &key);
        let buffered = found.signals.get(&(queue, key)).is_some_and(|s| s.buffered.is_some());
        if buffered {
            round.batch.delete(&stored);
        }
        buffered
    }
}
