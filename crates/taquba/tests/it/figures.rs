//! What a metrics recorder hears, by the names that docs/metrics.md promises. Compiled with the feature `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use taquba::object_store::memory::InMemory;
use taquba::{
    BulkAction, Clock, EnqueueRequest, JobFilter, JobStatus, MockClock, OpenOptions, Queue,
    QueueConfig, SettlementEffects,
};

/// The sum of each counter and histogram's count, the last of each gauge, by name and queue.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<BTreeMap<String, f64>>>);

struct Handle(Heard, String);

impl Heard {
    fn handle(&self, key: &Key) -> Arc<Handle> {
        let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
        let name = [vec![key.name().to_owned()], labels].concat().join(" ");
        Arc::new(Handle(self.clone(), name))
    }

    fn get(&self, name: &str) -> f64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

impl Handle {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.0.0.lock().unwrap().entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.change(|sum| *sum += value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|sum| *sum = value as f64);
    }
}

impl GaugeFn for Handle {
    fn increment(&self, value: f64) {
        self.change(|now| *now += value);
    }
    fn decrement(&self, value: f64) {
        self.change(|now| *now -= value);
    }
    fn set(&self, value: f64) {
        self.change(|now| *now = value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, _value: f64) {
        self.change(|count| *count += 1.0);
    }
}

impl Recorder for Heard {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

#[tokio::test]
async fn a_recorder_hears_each_figure_once_by_its_name() {
    let heard = Heard::default();
    // One process per test: nobody else's figures are heard.
    metrics::set_global_recorder(heard.clone()).unwrap_or_else(|_| panic!("one recorder"));
    let clock = MockClock::new(1_000);
    let config = QueueConfig::default().retry_backoff_base(Duration::ZERO).max_attempts(2_u32);
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(config)
        .metrics_sample_interval(Duration::from_millis(5));
    let bytes = Arc::new(InMemory::new());
    let queue = Queue::open_with_options(bytes, "store", options).await.unwrap();
    let lease = Duration::from_millis(10);

    queue.enqueue("q", vec![1]).await.unwrap();
    queue.enqueue_batch("q", vec![vec![2], vec![3]]).await.unwrap();
    let job = EnqueueRequest { queue: "q".to_owned(), ..EnqueueRequest::default() };
    queue.commit_effects(SettlementEffects::default().enqueue(job)).await.unwrap();

    let claims = queue.claim_batch("q", 3, lease).await.unwrap();
    queue.ack(&claims[0]).await.unwrap();
    queue.nack(&claims[1], "no").await.unwrap();
    queue.renew_lease(&claims[2], lease).unwrap();
    clock.advance(lease);
    queue.reap_now().await.unwrap();
    queue.renew_lease(&claims[2], lease).unwrap_err();
    let claim = queue.claim("q", lease).await.unwrap().unwrap();
    queue.dead_letter(&claim, "no").await.unwrap();
    assert!(queue.claim_next("nothing").await.unwrap().is_none());
    let filter = JobFilter::new("q", JobStatus::Dead);
    queue.bulk(&filter, BulkAction::Requeue, false).await.unwrap();

    clock.advance(Duration::from_secs(2));
    for _ in 0..2_000 {
        if heard.get("taquba_oldest_pending_age_seconds q") >= 2.0 {
            break;
        }
        taquba::time::sleep(Duration::from_millis(5)).await;
    }
    let expected = [
        ("taquba_jobs_enqueued_total q", 4.0),
        ("taquba_jobs_claimed_total q", 4.0),
        ("taquba_jobs_completed_total q", 1.0),
        ("taquba_jobs_nacked_total q", 1.0),
        ("taquba_jobs_reaped_total q", 1.0),
        ("taquba_jobs_dead_lettered_total q", 1.0),
        ("taquba_lease_renewals_total q", 1.0),
        ("taquba_enqueue_duration_seconds q", 3.0),
        ("taquba_claim_duration_seconds q", 2.0),
        ("taquba_claim_duration_seconds nothing", 1.0),
        ("taquba_ack_duration_seconds q", 1.0),
        ("taquba_pending_jobs q", 3.0),
        ("taquba_claimed_jobs q", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(heard.get(name), value, "{name}");
    }
    let all = heard.0.lock().unwrap();
    assert!(all.keys().any(|name| name.starts_with("slatedb_")), "{all:?}");
}
