//! Putting aside what cannot be decoded, so that it harms itself alone, and taking it back or away.

use std::sync::Arc;

use super::Engine;
use super::found::Found;
use super::moves::Ready;
use super::round::Round;
use crate::error::{Error, Result};
use crate::lifecycle::Move;
use crate::name::QueueName;
use crate::store::quarantine::{self, Bad};
use crate::store::{find, keys, shape};

impl Engine {
    /// Puts rows aside that a scan could not decode. Nobody can have moved them since: nobody knows what they are.
    pub(crate) fn put_aside(&mut self, bad: Vec<Bad>, round: &mut Round) {
        for bad in bad {
            // Two scans may have met it.
            if self.aside.insert(bad.key.clone()) {
                self.put_one_aside(&bad, false, round);
            }
        }
    }

    /// Puts one aside; `claimed` when a claim held it.
    pub(crate) fn put_one_aside(&mut self, bad: &Bad, claimed: bool, round: &mut Round) {
        let known = quarantine::salvage(&bad.value);
        tracing::error!(error = %find::undecodable(&bad.key, bad.reason),
            id = known.as_ref().map(|(id, _)| id.as_str()), "a job is put aside: see `quarantine`");
        round.batch.put(keys::aside(&bad.key), quarantine::encode(bad, round.stamp.now_ms));
        round.batch.delete(&bad.key);
        if let Some((id, _)) = &known {
            round.batch.delete(&keys::index(id));
        }
        // Scheduled jobs of all queues lie together: which queue, only the record says.
        let queue = match bad.key.first() {
            Some(&keys::SCHEDULED) => known.map(|(_, queue)| queue),
            _ => keys::queue_of(&bad.key).map(str::to_owned),
        };
        let Some(queue) = queue.and_then(|queue| QueueName::new(queue).ok()) else { return };
        self.queues.count(&queue, |counters| {
            let counter = match bad.key.first() {
                Some(&keys::READY) if claimed => &mut counters.claimed,
                Some(&keys::READY) => &mut counters.pending,
                Some(&keys::SCHEDULED) => &mut counters.scheduled,
                Some(&keys::DEAD) => &mut counters.dead,
                _ => return,
            };
            *counter = counter.saturating_sub(1);
        });
    }

    /// Takes one back or away; whether it was there.
    pub(crate) fn decide_aside(
        &mut self,
        key: &[u8],
        back: bool,
        found: &Found,
        round: &mut Round,
    ) -> Result<bool> {
        match back {
            true => self.take_back_aside(key, found, round).map(|()| true),
            false => Ok(self.discard_aside(key, found, round)),
        }
    }

    /// Takes one back that can be decoded by now, as the job that it was.
    fn take_back_aside(&mut self, key: &[u8], found: &Found, round: &mut Round) -> Result<()> {
        let aside = found.aside.as_deref().ok_or_else(|| Error::JobNotFound(show(key)))?;
        let (aside, job) = aside;
        let mut job = job.clone().map_err(|reason| find::undecodable(key, reason))?;
        let id = || job.id().as_ref().to_owned();
        if found.jobs.get(job.id()).is_some_and(Option::is_some) || keys::main(&job) != aside.key {
            return Err(Error::DuplicateJobId { id: id() });
        }
        // Written anew, a payload that is not at hand would be lost.
        if shape::lacks_payload(&job) {
            return Err(Error::PayloadMissing { id: id() });
        }
        round.batch.delete(&keys::aside(key));
        self.aside.remove(&aside.key);
        let dedup = job.dedup.as_ref().map(|dedup| (job.queue().clone(), Arc::clone(dedup)));
        if dedup.and_then(|dedup| found.dedup.get(&dedup)).is_some_and(Option::is_some) {
            // Another job stands for the key by now.
            job.dedup = None;
        }
        self.apply(Move::born(job), Ready::WhenDurable, round);
        Ok(())
    }

    /// Takes one away for good; whether it was there.
    fn discard_aside(&mut self, key: &[u8], found: &Found, round: &mut Round) -> bool {
        let Some((aside, _)) = found.aside.as_deref() else { return false };
        round.batch.delete(&keys::aside(key));
        if aside.key.first() == Some(&keys::READY) {
            let payload = [&[keys::PAYLOAD], aside.key.get(1..).unwrap_or_default()].concat();
            round.batch.delete(&payload.into());
        }
        true
    }
}

fn show(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
