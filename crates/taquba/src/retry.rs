//! How long a failed job waits before its next attempt. A value and a pure function of it.

use std::time::Duration;

use crate::env::millis;

/// How long a failed job waits before its next attempt: of a queue
/// ([`QueueConfig::retry`](crate::QueueConfig::retry)) or of one job
/// ([`EnqueueOptions::retry`](crate::EnqueueOptions::retry)).
///
/// ```
/// use std::time::Duration;
/// use taquba::RetryPolicy;
///
/// // 1 s, 2 s, 4 s, ... at most a minute, each up to a fifth shorter or longer.
/// let calls = RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).jitter(20);
/// // At once, then after 5 s, then every minute.
/// let list = RetryPolicy::list([0, 5, 60].map(Duration::from_secs));
/// # assert_ne!(calls, list);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    pub(crate) delays: Delays,
    pub(crate) jitter_percent: u8,
}

/// In milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delays {
    Exponential { base_ms: u64, max_ms: u64 },
    List(Vec<u64>),
}

/// Most delays of a list (100).
pub(crate) const MAX_DELAYS: usize = 100;

impl RetryPolicy {
    /// `base` after the first attempt, doubled with each further one, at most `max`. A zero base retries at once.
    #[must_use]
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Delays::Exponential { base_ms: millis(base), max_ms: millis(max) }.into()
    }

    /// The same delay after every attempt.
    #[must_use]
    pub fn fixed(delay: Duration) -> Self {
        Self::list([delay])
    }

    /// The first delay after the first attempt, the second after the second, and so on; past the end the last one. An
    /// empty list retries at once. At most 100 delays.
    #[must_use]
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Delays::List(delays.into_iter().map(millis).collect()).into()
    }

    /// Makes each delay up to `percent` (0..=100, default 0) shorter or longer, so that jobs that failed together do not
    /// come back together. Drawn from the job and its attempt: the same on every machine.
    #[must_use]
    pub fn jitter(mut self, percent: u8) -> Self {
        self.jitter_percent = percent.min(100);
        self
    }

    /// The delay after attempt `attempt` (1 is the first) of the job with this order number.
    pub(crate) fn delay_ms(&self, attempt: u32, order: u64) -> u64 {
        let step = attempt.saturating_sub(1);
        let delay = match &self.delays {
            Delays::Exponential { base_ms: 0, .. } => 0,
            Delays::Exponential { base_ms, max_ms } => {
                let factor = 1_u64.checked_shl(step).unwrap_or(u64::MAX);
                base_ms.saturating_mul(factor).min(*max_ms)
            }
            Delays::List(delays) => {
                let at = delays.get(step as usize).or(delays.last());
                at.copied().unwrap_or(0)
            }
        };
        let span = delay.saturating_mul(u64::from(self.jitter_percent)) / 100;
        if span == 0 {
            return delay;
        }
        let drawn = scatter(order, attempt) % span.saturating_mul(2).saturating_add(1);
        (delay - span).saturating_add(drawn)
    }
}

impl From<Delays> for RetryPolicy {
    fn from(delays: Delays) -> Self {
        Self { delays, jitter_percent: 0 }
    }
}

/// A number that differs as if by chance between jobs and attempts (the finalizer of SplitMix64).
fn scatter(order: u64, attempt: u32) -> u64 {
    let mut n = order.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(attempt));
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn first(policy: &RetryPolicy) -> Vec<u64> {
        [1, 2, 3, 4, 64, 65, u32::MAX].map(|attempt| policy.delay_ms(attempt, 7)).to_vec()
    }

    #[test]
    fn delays_follow_their_policy_and_never_overflow() {
        let doubling = RetryPolicy::exponential(10 * MS, 35 * MS);
        assert_eq!(first(&doubling), [10, 20, 35, 35, 35, 35, 35]);
        let unbounded = RetryPolicy::exponential(Duration::MAX, Duration::MAX);
        assert_eq!(first(&unbounded), [u64::MAX; 7]);
        assert_eq!(first(&RetryPolicy::exponential(Duration::ZERO, 35 * MS)), [0; 7]);
        assert_eq!(first(&RetryPolicy::fixed(9 * MS)), [9; 7]);
        let list = RetryPolicy::list([Duration::ZERO, 5 * MS, 60 * MS]);
        assert_eq!(first(&list), [0, 5, 60, 60, 60, 60, 60]);
        assert_eq!(first(&RetryPolicy::list([])), [0; 7]);
        assert!(first(&unbounded.jitter(100)).iter().all(|delay| *delay > 0));
    }

    #[test]
    fn jitter_spreads_jobs_that_failed_together_over_its_whole_range() {
        let policy = RetryPolicy::fixed(1_000 * MS).jitter(20);
        let delays: Vec<u64> = (0..10_000).map(|order| policy.delay_ms(1, order)).collect();
        assert!(delays.iter().all(|delay| (800..=1_200).contains(delay)));
        // Ten slices of the range, each with about a tenth of the jobs.
        for slice in 0..10 {
            let range = 800 + slice * 40..840 + slice * 40_u64;
            let share = delays.iter().filter(|delay| range.contains(*delay)).count();
            assert!((800..=1_200).contains(&share), "{share} of 10,000 in {range:?}");
        }
        assert_ne!(policy.delay_ms(1, 5), policy.delay_ms(2, 5));
    }
}
