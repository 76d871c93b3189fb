//! Producers and workers flat out together, for a fixed time: every job is enqueued alone, claimed, handled, settled,
//! and neither side ever stops for the other. Measures whole lives per second, and the time from sending a job to its
//! handler's start (a backlog grows where producers outrun workers).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Balance, Case, Outcome, scaled};
use crate::measure::Stopwatch;
use crate::system::{Fault, System};
use crate::tally::Tally;

/// A longer enqueue is told of while it runs (some of them: a stall makes all wait).
const STALL_NS: u64 = 500_000_000;

pub(super) fn cases(scale: f64) -> Vec<Case> {
    // More jobs than any system here gets through in the time.
    vec![Case {
        producers: 512,
        workers: 256,
        jobs: scaled(3_000_000, scale),
        time_max: Duration::from_secs_f64(15.0 * scale),
    }]
}

/// The same for ten minutes.
pub(super) fn sustained_cases(scale: f64) -> Vec<Case> {
    vec![Case {
        producers: 512,
        workers: 256,
        jobs: scaled(30_000_000, scale),
        time_max: Duration::from_secs_f64(600.0 * scale),
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

    let stall_ns = Arc::clone(&producers.longest_ns);
    let acknowledged = producers.join().await?;
    let left = system.left().await?;
    let balance = Balance::new(acknowledged, tally.distinct(), tally.repeats(), left);
    let outcome = Outcome::new(tally.distinct(), &elapsed, &mut tally.waits_ns(), balance);
    Ok(Outcome { stall_ms: Some(stall_ns.load(Ordering::Relaxed) as f64 / 1e6), ..outcome })
}

/// Tasks that enqueue one job each at a time until the case's jobs are sent or `stop` fires.
struct Producers {
    tasks: JoinSet<Result<(), Fault>>,
    acknowledged: Arc<AtomicU64>,
    /// The longest that one durable enqueue took.
    longest_ns: Arc<AtomicU64>,
}

impl Producers {
    fn start<S: System>(
        case: &Case,
        system: &Arc<S>,
        tally: &Arc<Tally>,
        stop: &CancellationToken,
    ) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let longest_ns = Arc::new(AtomicU64::new(0));
        let next = Arc::new(AtomicUsize::new(0));
        let jobs = case.jobs;
        let mut tasks = JoinSet::new();
        for _ in 0..case.producers {
            let (system, tally, stop) = (Arc::clone(system), Arc::clone(tally), stop.clone());
            let (acknowledged, next) = (Arc::clone(&acknowledged), Arc::clone(&next));
            let longest_ns = Arc::clone(&longest_ns);
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        break;
                    }
                    tally.sent(number);
                    let began = Instant::now();
                    system.enqueue(Tally::payload(number)).await?;
                    let took_ns = u64::try_from(began.elapsed().as_nanos())?;
                    longest_ns.fetch_max(took_ns, Ordering::Relaxed);
                    if took_ns > STALL_NS && number % 256 == 0 {
                        eprintln!("an enqueue took {} ms", took_ns / 1_000_000);
                    }
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Self { tasks, acknowledged, longest_ns }
    }

    /// Waits for all of them; returns how many jobs were acknowledged.
    async fn join(mut self) -> Result<u64, Fault> {
        while let Some(done) = self.tasks.join_next().await {
            done??;
        }
        Ok(self.acknowledged.load(Ordering::Relaxed))
    }
}
