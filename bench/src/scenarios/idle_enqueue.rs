//! One durable enqueue at a time on a queue that is otherwise idle: what a lone caller waits.
//! A pause between two calls lets every timer of the system run out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Balance, Case, Outcome, scaled};
use crate::measure::Stopwatch;
use crate::system::{Fault, System};
use crate::tally::Tally;

/// Calls before the clock starts.
const WARM_UP: usize = 20;

/// Rest between two calls.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn cases(scale: f64) -> Vec<Case> {
    let time_max = Duration::from_secs(60);
    vec![Case { producers: 1, jobs: scaled(300, scale), time_max, ..Case::default() }]
}

pub(super) async fn run<S: System>(case: &Case, system: Arc<S>) -> Result<Outcome, Fault> {
    for number in 0..WARM_UP {
        system.enqueue(Tally::payload(number)).await?;
    }
    let watch = Stopwatch::start();
    let mut waits_ns = Vec::with_capacity(case.jobs);
    while waits_ns.len() < case.jobs && watch.running() < case.time_max {
        tokio::time::sleep(PAUSE).await;
        let payload = Tally::payload(WARM_UP + waits_ns.len());
        let began = Instant::now();
        system.enqueue(payload).await?;
        waits_ns.push(u64::try_from(began.elapsed().as_nanos())?);
    }
    let elapsed = watch.stop();

    let calls = waits_ns.len();
    let balance = Balance::new((WARM_UP + calls) as u64, 0, 0, system.left().await?);
    Ok(Outcome::new(calls as u64, &elapsed, &mut waits_ns, balance))
}
