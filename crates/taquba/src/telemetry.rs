//! What the library tells a metrics recorder of the process, with the feature `metrics`; without it, nothing is compiled.
//! Names are a contract: docs/metrics.md.

use std::sync::Arc;

use slatedb_common::metrics::MetricsRecorder;

/// Jobs that came in.
pub(crate) const ENQUEUED: &str = "taquba_jobs_enqueued_total";
/// Claims that began.
pub(crate) const CLAIMED: &str = "taquba_jobs_claimed_total";
/// Jobs that were acknowledged.
pub(crate) const COMPLETED: &str = "taquba_jobs_completed_total";
/// Attempts that failed and are tried again.
pub(crate) const NACKED: &str = "taquba_jobs_nacked_total";
/// Jobs that were dead-lettered, for whatever reason.
pub(crate) const DEAD_LETTERED: &str = "taquba_jobs_dead_lettered_total";
/// Claims whose leases ran out.
pub(crate) const REAPED: &str = "taquba_jobs_reaped_total";
/// Leases that were renewed.
pub(crate) const RENEWALS: &str = "taquba_lease_renewals_total";
/// Beats that were not durable in time.
pub(crate) const HEARTBEAT_FAILURES: &str = "taquba_heartbeat_failures_total";
/// Seconds from a call to its durable answer.
pub(crate) const ENQUEUE_SECONDS: &str = "taquba_enqueue_duration_seconds";
/// Seconds from a call that does not wait for jobs to its answer.
pub(crate) const CLAIM_SECONDS: &str = "taquba_claim_duration_seconds";
/// Seconds from an acknowledgement to its durable answer.
pub(crate) const ACK_SECONDS: &str = "taquba_ack_duration_seconds";
/// Sampled.
pub(crate) const PENDING: &str = "taquba_pending_jobs";
/// Sampled.
pub(crate) const IN_HAND: &str = "taquba_claimed_jobs";
/// Sampled.
pub(crate) const OLDEST_AGE: &str = "taquba_oldest_pending_age_seconds";

/// One more of something in a queue (empty: of the store).
pub(crate) fn count(name: &'static str, queue: &str) {
    #[cfg(feature = "metrics")]
    if queue.is_empty() {
        metrics::counter!(name).increment(1);
    } else {
        metrics::counter!(name, "queue" => queue.to_owned()).increment(1);
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (name, queue);
}

/// A call that is timed; dropped without its end, it is not. Without the feature it is nothing, not even a look at the
/// clock.
pub(crate) struct Timed {
    #[cfg(feature = "metrics")]
    call: (&'static str, String, crate::env::Instant),
}

impl Timed {
    /// The call begins.
    pub(crate) fn start(name: &'static str, queue: &str) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (name, queue);
        Self {
            #[cfg(feature = "metrics")]
            call: (name, queue.to_owned(), crate::env::now()),
        }
    }

    /// It has its answer.
    pub(crate) fn end(self) {
        #[cfg(feature = "metrics")]
        {
            let (name, queue, start) = self.call;
            let seconds = crate::env::now().saturating_duration_since(start).as_secs_f64();
            metrics::histogram!(name, "queue" => queue).record(seconds);
        }
    }
}

/// How much of something is in a queue now.
pub(crate) fn gauge(name: &'static str, queue: &str, value: f64) {
    #[cfg(feature = "metrics")]
    metrics::gauge!(name, "queue" => queue.to_owned()).set(value);
    #[cfg(not(feature = "metrics"))]
    let _ = (name, queue, value);
}

/// Where the storage engine tells its own figures; `None` without the feature.
pub(crate) fn engine_recorder() -> Option<Arc<dyn MetricsRecorder>> {
    #[cfg(feature = "metrics")]
    return Some(Arc::new(bridge::Bridge));
    #[cfg(not(feature = "metrics"))]
    None
}

#[cfg(feature = "metrics")]
mod bridge {
    //! The storage engine's figures, on to the same recorder, under their own names with `_` for `.`.

    use std::sync::Arc;

    use metrics::{Counter, Gauge, Histogram, Label};
    use slatedb_common::metrics::{
        CounterFn, GaugeFn, HistogramFn, MetricsRecorder, UpDownCounterFn,
    };

    pub(super) struct Bridge;

    struct Handle<T>(T);

    fn named(name: &str, labels: &[(&str, &str)]) -> (String, Vec<Label>) {
        let label =
            |(key, value): &(&str, &str)| Label::new((*key).to_owned(), (*value).to_owned());
        (name.replace('.', "_"), labels.iter().map(label).collect())
    }

    impl MetricsRecorder for Bridge {
        fn register_counter(
            &self,
            name: &str,
            _description: &str,
            labels: &[(&str, &str)],
        ) -> Arc<dyn CounterFn> {
            let (name, labels) = named(name, labels);
            Arc::new(Handle(metrics::counter!(name, labels)))
        }

        fn register_gauge(
            &self,
            name: &str,
            _description: &str,
            labels: &[(&str, &str)],
        ) -> Arc<dyn GaugeFn> {
            let (name, labels) = named(name, labels);
            Arc::new(Handle(metrics::gauge!(name, labels)))
        }

        fn register_up_down_counter(
            &self,
            name: &str,
            _description: &str,
            labels: &[(&str, &str)],
        ) -> Arc<dyn UpDownCounterFn> {
            let (name, labels) = named(name, labels);
            Arc::new(Handle(metrics::gauge!(name, labels)))
        }

        fn register_histogram(
            &self,
            name: &str,
            _description: &str,
            labels: &[(&str, &str)],
            _boundaries: &[f64],
        ) -> Arc<dyn HistogramFn> {
            let (name, labels) = named(name, labels);
            Arc::new(Handle(metrics::histogram!(name, labels)))
        }
    }

    impl CounterFn for Handle<Counter> {
        fn increment(&self, value: u64) {
            self.0.increment(value);
        }
    }

    impl GaugeFn for Handle<Gauge> {
        fn set(&self, value: i64) {
            self.0.set(value as f64);
        }
    }

    impl UpDownCounterFn for Handle<Gauge> {
        fn increment(&self, value: i64) {
            self.0.increment(value as f64);
        }
    }

    impl HistogramFn for Handle<Histogram> {
        fn record(&self, value: f64) {
            self.0.record(value);
        }
    }
}
