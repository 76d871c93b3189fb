//! Producers and workers flat out together, for a fixed time: every job is enqueued alone, claimed, handled, settled,
//! and neither side ever stops for the other. Measures whole lives per second, and the time from sending a job to its
//! handler's start (a backlog grows where producers outrun workers).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Balance, Case, Outcome, scaled};
use crate::measure::Stopwatch;
use crate::system::{Fault, System};
use crate::tally::Tally;

pub(super) fn cases(scale: f64) -> Vec<Case> {
    // More jobs than any system here gets through in the time.
    vec![Case {
        producers: 512,
        workers: 256,
        jobs: scaled(3_000_000, scale),
        time_max: Duration::from_secs_f64(15.0 * scale),
    }]
}

pub(super) async fn run<S: System>(case: &Case, system: Arc<S>) -> Result<Outcome, Fault> {
    let tally = Arc::new(Tally::new(case.jobs));
    let stop = CancellationToken::new();
    let watch = Stopwatch::start();
    let producers = Producers::start(case, &system, &tally, &stop);
    let until_done = async {
        // A time-out is no failure here: what was handled by then is the figure.
        let _ = tokio::time::timeout(case.time_max, tally.wait_all_handled()).await;
        stop.cancel();
    };
    let loops = system.run_workers(case.workers, Arc::clone(&tally), stop.clone());
    let (ended, ()) = tokio::join!(loops, until_done);
    ended?;
    let elapsed = watch.stop();

    let acknowledged = producers.join().await?;
    let left = system.left().await?;
    let balance = Balance::new(acknowledged, tally.distinct(), tally.repeats(), left);
    Ok(Outcome::new(
        tally.distinct(),
        &elapsed,
        &mut tally.waits_ns(),
        balance,
    ))
}

/// Tasks that enqueue one job each at a time until the case's jobs are sent or `stop` fires.
struct Producers {
    tasks: JoinSet<Result<(), Fault>>,
    acknowledged: Arc<AtomicU64>,
}

impl Producers {
    fn start<S: System>(
        case: &Case,
        system: &Arc<S>,
        tally: &Arc<Tally>,
        stop: &CancellationToken,
    ) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let next = Arc::new(AtomicUsize::new(0));
        let jobs = case.jobs;
        let mut tasks = JoinSet::new();
        for _ in 0..case.producers {
            let (system, tally, stop) = (Arc::clone(system), Arc::clone(tally), stop.clone());
            let (acknowledged, next) = (Arc::clone(&acknowledged), Arc::clone(&next));
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        break;
                    }
                    tally.sent(number);
                    system.enqueue(Tally::payload(number)).await?;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Self {
            tasks,
            acknowledged,
        }
    }

    /// Waits for all of them; returns how many jobs were acknowledged.
    async fn join(mut self) -> Result<u64, Fault> {
        while let Some(done) = self.tasks.join_next().await {
            done??;
        }
        Ok(self.acknowledged.load(Ordering::Relaxed))
    }
}
