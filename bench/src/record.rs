//! One line of JSON per scenario, case, system and repeat: what is written to stdout and read back
//! for the report.

use serde::{Deserialize, Serialize};

use crate::scenarios::{Case, Outcome};

/// One run, as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) scenario: String,
    /// `ours`, `peer` or `peer-1ms`: the system and how it was opened.
    pub(crate) system: String,
    /// The case: producers, workers, jobs.
    pub(crate) settings: String,
    pub(crate) repeat: usize,
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) per_s: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    #[serde(default)]
    pub(crate) stall_ms: Option<f64>,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) cpu_us_per_job: Option<f64>,
    /// Peak resident memory of the process that ran this case alone, in MiB.
    pub(crate) rss_mb: Option<f64>,
}

impl Record {
    pub(crate) fn new(
        scenario: &str,
        system: &str,
        case: &Case,
        repeat: usize,
        outcome: &Outcome,
        rss_mb: Option<f64>,
    ) -> Self {
        let jobs = outcome.jobs as f64;
        let us_per_job = |seconds: f64| {
            if jobs > 0.0 { Some(seconds * 1e6 / jobs) } else { None }
        };
        Self {
            scenario: scenario.to_owned(),
            system: system.to_owned(),
            settings: case.label(),
            repeat,
            jobs: outcome.jobs,
            seconds: rounded(outcome.seconds),
            per_s: rounded(jobs / outcome.seconds),
            p50_ms: outcome.p50_ms.map(rounded),
            p99_ms: outcome.p99_ms.map(rounded),
            stall_ms: outcome.stall_ms.map(rounded),
            lost: outcome.lost,
            doubled: outcome.doubled,
            cpu_us_per_job: outcome.cpu_seconds.and_then(us_per_job).map(rounded),
            rss_mb: rss_mb.map(rounded),
        }
    }
}

/// Three decimals are more than any of these figures can carry.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
