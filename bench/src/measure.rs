//! Reads what the operating system knows of this process, and turns samples into percentiles.

use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks of `/proc/self/stat` per second: a constant of Linux's user interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// The timed part of a scenario: wall time and processor time from one moment to another.
pub(crate) struct Stopwatch {
    began: Instant,
    cpu_seconds: Option<f64>,
}

/// What a [`Stopwatch`] saw.
pub(crate) struct Elapsed {
    pub(crate) seconds: f64,
    /// None where `/proc` has no answer.
    pub(crate) cpu_seconds: Option<f64>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), cpu_seconds: cpu_seconds() }
    }

    pub(crate) fn running(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn stop(self) -> Elapsed {
        let seconds = self.began.elapsed().as_secs_f64();
        let spent = cpu_seconds().zip(self.cpu_seconds).map(|(now, then)| now - then);
        Elapsed { seconds, cpu_seconds: spent }
    }
}

/// User and system time of this process, all threads, in seconds.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    cpu_seconds_of(&stat)
}

/// The second field is the name in parentheses and may hold spaces: count from behind it.
fn cpu_seconds_of(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// The largest resident memory of this process so far, in MiB.
pub(crate) fn peak_rss_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// The sample that `percent` of all samples do not exceed, in milliseconds; sorts the samples.
pub(crate) fn percentile_ms(samples_ns: &mut [u64], percent: f64) -> Option<f64> {
    samples_ns.sort_unstable();
    let last = samples_ns.len().checked_sub(1)?;
    let rank = (percent / 100.0 * samples_ns.len() as f64).ceil() as usize;
    samples_ns.get(rank.saturating_sub(1).min(last)).map(|ns| *ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut ns: Vec<u64> = (1..=100).rev().map(|ms| ms * 1_000_000).collect();
        assert_eq!(percentile_ms(&mut ns, 50.0), Some(50.0));
        assert_eq!(percentile_ms(&mut ns, 99.0), Some(99.0));
        assert_eq!(percentile_ms(&mut ns, 100.0), Some(100.0));
        assert_eq!(percentile_ms(&mut [], 50.0), None);
    }

    #[test]
    fn processor_time_is_read_behind_the_name() {
        let stat = "7 (a b) c) R 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3";
        assert_eq!(cpu_seconds_of(stat), Some(3.0));
    }
}
