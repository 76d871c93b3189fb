//! The owner's beats: a row of a round, so that a beat is one more commit and proves what a commit proves.

use std::time::Duration;

use super::Engine;
use super::round::Round;
use crate::env::{self, Instant};
use crate::liveness::WriterHeartbeat;
use crate::store::rows::Batch;
use crate::store::{beat, keys};
use crate::telemetry;

/// When the owner beats next.
pub(super) struct Heartbeat {
    /// Zero: it does not beat.
    interval: Duration,
    /// Owners of this store beat, this one or one before it, so the row must tell of this one.
    known: bool,
    counter: u64,
    next: Instant,
    /// The round of the last beat.
    round: u64,
}

impl Heartbeat {
    pub(super) fn new(interval: Option<Duration>, last: Option<WriterHeartbeat>) -> Self {
        Self {
            interval: interval.unwrap_or_default(),
            known: interval.is_some() || last.is_some(),
            counter: last.map_or(0, |beat| beat.counter),
            next: env::now(),
            round: 0,
        }
    }
}

impl Engine {
    /// The first beat: of an owner that does not beat too, after one that did. Open waits for it.
    pub(crate) fn first_beat(&mut self, round: &mut Round) {
        self.write_beat(0, false, &mut round.batch);
    }

    /// Beats when it is time. One that is not durable yet is the last for now, so that an outage piles up none.
    pub(crate) fn beat(&mut self, round: &mut Round) {
        let heart = &mut self.heartbeat;
        let landed = heart.round <= self.durable_round;
        if !heart.interval.is_zero() && !landed && heart.next <= env::now() {
            // One failure for each beat that could not be made.
            telemetry::count(telemetry::HEARTBEAT_FAILURES, "");
            heart.next = env::now() + heart.interval;
            return;
        }
        if !heart.interval.is_zero() && landed && heart.next <= env::now() {
            self.write_beat(round.no, false, &mut round.batch);
            // Somebody waits for it, outside.
            round.durable.push(Box::new(|_| ()));
        }
    }

    /// The last beat.
    pub(crate) fn last_beat(&mut self, batch: &mut Batch) {
        self.write_beat(self.round, true, batch);
    }

    fn write_beat(&mut self, round: u64, closed: bool, batch: &mut Batch) {
        let heart = &mut self.heartbeat;
        if !heart.known {
            return;
        }
        heart.counter += 1;
        heart.round = round;
        heart.next = env::now() + heart.interval;
        let beat = WriterHeartbeat {
            counter: heart.counter,
            at_ms: self.shared.clock.now_ms(),
            interval: heart.interval,
            writer_epoch: self.store.progress().writer_epoch(),
            closed,
        };
        batch.put(keys::HEARTBEAT.into(), beat::encode(&beat));
    }

    /// Milliseconds until the next beat, rounded up; `None` when there is none, or the last one is on its way.
    pub(crate) fn next_beat_ms(&self) -> Option<u64> {
        let heart = &self.heartbeat;
        if heart.interval.is_zero() || heart.round > self.durable_round {
            return None;
        }
        let left = heart.next.saturating_duration_since(env::now());
        Some(crate::env::millis(left) + u64::from(!left.is_zero()))
    }
}
