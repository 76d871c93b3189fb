//! Gauges for a metrics recorder, at an interval: how much is in each queue.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::request::Request;
use super::shared::Shared;
use crate::{env, telemetry};

/// Asks the loop for samples until the store ends.
pub(crate) async fn run(shared: Arc<Shared>, every: Duration) {
    let mut closed = shared.closed.subscribe();
    loop {
        if env::within(every, closed.wait_for(Option::is_some)).await.is_some() {
            return;
        }
        if shared.post(Request::Sample).is_err() {
            return;
        }
    }
}

impl Engine {
    pub(crate) fn sample(&self, now_ms: u64) {
        for (name, counters, oldest) in self.queues.samples() {
            telemetry::gauge(telemetry::PENDING, name, counters.pending as f64);
            telemetry::gauge(telemetry::IN_HAND, name, counters.claimed as f64);
            let age_ms = oldest.map_or(0, |at| now_ms.saturating_sub(at));
            telemetry::gauge(telemetry::OLDEST_AGE, name, age_ms as f64 / 1e3);
        }
    }
}
