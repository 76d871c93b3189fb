//! One round: what the loop decides between two writes, and what follows when the write has happened.

use std::collections::BTreeSet;
use std::pin::Pin;

use super::found::Read;
use super::request::Answer;
use crate::lifecycle::Stamp;
use crate::name::QueueName;
use crate::state::reserve::Ticket;
use crate::store::rows::Batch;

/// A refill.
pub(crate) type Scan = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
pub(crate) struct Round {
    /// Rounds are numbered from 1; 0 stands for what was durable before.
    pub(crate) no: u64,
    pub(crate) stamp: Stamp,
    pub(crate) mono_ms: u64,
    pub(crate) batch: Batch,
    /// Given when everything written so far is durable.
    pub(crate) durable: Vec<Answer>,
    /// Given when the batch is in the store's memory.
    pub(crate) written: Vec<Answer>,
    /// Reads to begin when the batch is in the store's memory, so that they see it.
    pub(crate) loads: Vec<(Ticket, Vec<Read>)>,
    /// Refills to begin when the batch is in the store's memory: their windows log what comes after it, and the scan
    /// must see what came before.
    pub(crate) scans: Vec<Scan>,
    /// Queues that got ready jobs; their waiting workers look when the round is durable.
    pub(crate) fed: BTreeSet<QueueName>,
    /// Queues whose waiting workers look now.
    pub(crate) look: BTreeSet<QueueName>,
}

impl Round {
    /// Whether there is nothing to write and nobody to answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
            && self.durable.is_empty()
            && self.written.is_empty()
            && self.loads.is_empty()
    }

    pub(crate) fn new(no: u64, stamp: Stamp, mono_ms: u64) -> Self {
        Self {
            no,
            stamp,
            mono_ms,
            batch: Batch::default(),
            durable: Vec::new(),
            written: Vec::new(),
            loads: Vec::new(),
            scans: Vec::new(),
            fed: BTreeSet::new(),
            look: BTreeSet::new(),
        }
    }
}
