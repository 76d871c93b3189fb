//! A backlog, then the system's own worker loop with handlers that do nothing: jobs per second from
//! the first claim to the last durable settlement.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Balance, Case, Outcome, scaled};
use crate::measure::Stopwatch;
use crate::system::{Fault, System};
use crate::tally::Tally;

/// Jobs of one `enqueue_batch` while the backlog is made.
const BATCH: usize = 1_000;

pub(super) fn cases(scale: f64) -> Vec<Case> {
    let jobs = scaled(200_000, scale);
    let time_max = Duration::from_secs(30);
    [64, 256].map(|workers| Case { workers, jobs, time_max, ..Case::default() }).to_vec()
}

pub(super) async fn run<S: System>(case: &Case, system: Arc<S>) -> Result<Outcome, Fault> {
    let mut acknowledged = 0;
    for first in (0..case.jobs).step_by(BATCH) {
        let batch = first..case.jobs.min(first + BATCH);
        acknowledged += system.enqueue_batch(batch.map(Tally::payload).collect()).await?;
    }

    let tally = Arc::new(Tally::new(case.jobs));
    let stop = CancellationToken::new();
    let watch = Stopwatch::start();
    let loops = system.run_workers(case.workers, Arc::clone(&tally), stop.clone());
    let until_done = async {
        // A time-out is no failure here: what was handled by then is the figure.
        let _ = tokio::time::timeout(case.time_max, tally.wait_all_handled()).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(loops, until_done);
    ended?;
    let elapsed = watch.stop();

    let left = system.left().await?;
    let balance = Balance::new(acknowledged as u64, tally.distinct(), tally.repeats(), left);
    Ok(Outcome::new(tally.distinct(), &elapsed, &mut [], balance))
}
