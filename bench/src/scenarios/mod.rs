//! The list of scenarios. Each file is one: what it does, its cases, and one generic `run`.

pub(crate) mod drain;
pub(crate) mod enqueue_single;
pub(crate) mod idle_enqueue;
pub(crate) mod whole_life;

use std::sync::Arc;
use std::time::Duration;

use crate::measure::{Elapsed, percentile_ms};
use crate::system::{Fault, Left, System};

/// What a scenario is run with. A field that the scenario does not use is zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Case {
    /// Tasks that enqueue, each awaiting one job before the next.
    pub(crate) producers: usize,
    /// Handlers that may run at once.
    pub(crate) workers: usize,
    /// Jobs at most.
    pub(crate) jobs: usize,
    /// The timed part ends here even if jobs are left.
    pub(crate) time_max: Duration,
}

impl Case {
    /// How the case is named in records and on the command line.
    pub(crate) fn label(&self) -> String {
        let parts = [("producers", self.producers), ("workers", self.workers), ("jobs", self.jobs)];
        let named = parts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}={n}"));
        named.collect::<Vec<_>>().join(" ")
    }
}

/// What a scenario saw.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Jobs that went the whole way the scenario measures.
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// The longest that one durable enqueue took, where the scenario watches for stalls.
    pub(crate) stall_ms: Option<f64>,
    /// Jobs that were acknowledged, then neither handled nor still in the queue.
    pub(crate) lost: u64,
    /// Handlings too many: of a job handled before, or of one that is in the queue still.
    pub(crate) doubled: u64,
}

impl Outcome {
    /// Shapes what a scenario measured; `waits_ns` may be empty.
    fn new(jobs: u64, elapsed: &Elapsed, waits_ns: &mut [u64], balance: Balance) -> Self {
        Self {
            jobs,
            seconds: elapsed.seconds,
            cpu_seconds: elapsed.cpu_seconds,
            p50_ms: percentile_ms(waits_ns, 50.0),
            p99_ms: percentile_ms(waits_ns, 99.0),
            stall_ms: None,
            lost: balance.lost,
            doubled: balance.doubled,
        }
    }
}

/// Does what went in equal what came out and what is still there?
#[derive(Debug, Default, PartialEq, Eq)]
struct Balance {
    lost: u64,
    doubled: u64,
}

impl Balance {
    fn new(acknowledged: u64, handled: u64, repeats: u64, left: Left) -> Self {
        let found = handled + left.unfinished;
        Self {
            lost: acknowledged.saturating_sub(found),
            doubled: repeats + found.saturating_sub(acknowledged),
        }
    }
}

/// The scenarios by name, in the order they are run.
pub(crate) const NAMES: [&str; 4] = ["enqueue_single", "drain", "whole_life", "idle_enqueue"];

/// Runs only when it is asked for by name: `whole_life` for ten minutes, to see the longest write stall.
pub(crate) const SUSTAINED: &str = "sustained";

/// The cases of a scenario, sized by `scale` (1.0 is the full size).
pub(crate) fn cases(scenario: &str, scale: f64) -> Result<Vec<Case>, Fault> {
    match scenario {
        "enqueue_single" => Ok(enqueue_single::cases(scale)),
        "drain" => Ok(drain::cases(scale)),
        "whole_life" => Ok(whole_life::cases(scale)),
        "idle_enqueue" => Ok(idle_enqueue::cases(scale)),
        SUSTAINED => Ok(whole_life::sustained_cases(scale)),
        other => Err(format!("no scenario {other:?}; there are {NAMES:?}").into()),
    }
}

/// Runs one case of a scenario on a system that is open and empty.
pub(crate) async fn run<S: System>(
    scenario: &str,
    case: &Case,
    system: S,
) -> Result<Outcome, Fault> {
    let system = Arc::new(system);
    match scenario {
        "enqueue_single" => enqueue_single::run(case, system).await,
        "drain" => drain::run(case, system).await,
        "whole_life" | SUSTAINED => whole_life::run(case, system).await,
        "idle_enqueue" => idle_enqueue::run(case, system).await,
        other => Err(format!("no scenario {other:?}; there are {NAMES:?}").into()),
    }
}

fn scaled(full: usize, scale: f64) -> usize {
    ((full as f64 * scale) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_tells_lost_from_doubled() {
        let left = |unfinished| Left { unfinished };
        assert_eq!(Balance::new(10, 7, 0, left(3)), Balance { lost: 0, doubled: 0 });
        assert_eq!(Balance::new(10, 7, 0, left(2)), Balance { lost: 1, doubled: 0 });
        assert_eq!(Balance::new(10, 10, 2, left(1)), Balance { lost: 0, doubled: 3 });
    }

    #[test]
    fn every_name_has_cases_with_names_of_their_own() {
        for name in NAMES {
            let labels: Vec<_> = cases(name, 1.0).unwrap().iter().map(Case::label).collect();
            let mut distinct = labels.clone();
            distinct.sort();
            distinct.dedup();
            assert!(!labels.is_empty() && labels.len() == distinct.len(), "{name}: {labels:?}");
        }
        assert!(cases("no such", 1.0).is_err());
    }
}
