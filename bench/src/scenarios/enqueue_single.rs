//! Concurrent producers, each awaiting one durable enqueue before the next: a closed loop.
//! Measures enqueues per second and the time of one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Balance, Case, Outcome};
use crate::measure::Stopwatch;
use crate::system::{Fault, System};
use crate::tally::Tally;

/// Enqueues before the clock starts, so that first-use costs are not measured.
const WARM_UP: Duration = Duration::from_millis(500);

pub(super) fn cases(scale: f64) -> Vec<Case> {
    let time_max = Duration::from_secs_f64(4.0 * scale);
    [1, 64, 512].map(|producers| Case { producers, time_max, ..Case::default() }).to_vec()
}

pub(super) async fn run<S: System>(case: &Case, system: Arc<S>) -> Result<Outcome, Fault> {
    let numbers = Arc::new(AtomicUsize::new(0));
    produce(case.producers, WARM_UP, &system, &numbers).await?;
    let warmed_up = numbers.load(Ordering::Relaxed) as u64;

    let watch = Stopwatch::start();
    let mut waits_ns = produce(case.producers, case.time_max, &system, &numbers).await?;
    let elapsed = watch.stop();

    let acknowledged = numbers.load(Ordering::Relaxed) as u64;
    let balance = Balance::new(acknowledged, 0, 0, system.left().await?);
    Ok(Outcome::new(acknowledged - warmed_up, &elapsed, &mut waits_ns, balance))
}

/// Runs the producers for `time` and returns how long each call took.
async fn produce<S: System>(
    producers: usize,
    time: Duration,
    system: &Arc<S>,
    numbers: &Arc<AtomicUsize>,
) -> Result<Vec<u64>, Fault> {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..producers {
        let system = Arc::clone(system);
        let numbers = Arc::clone(numbers);
        tasks.spawn(async move {
            let mut waits_ns = Vec::new();
            while Instant::now() < end {
                let payload = Tally::payload(numbers.fetch_add(1, Ordering::Relaxed));
                let began = Instant::now();
                system.enqueue(payload).await?;
                waits_ns.push(u64::try_from(began.elapsed().as_nanos())?);
            }
            Ok::<_, Fault>(waits_ns)
        });
    }
    let mut waits_ns = Vec::new();
    while let Some(done) = tasks.join_next().await {
        waits_ns.extend(done??);
    }
    Ok(waits_ns)
}
