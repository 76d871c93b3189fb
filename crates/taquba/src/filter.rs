//! Which jobs an operator means. A value and a pure test.

use std::time::Duration;

use crate::record::{JobRecord, JobStatus};

/// Which jobs of one queue in one state an operator means; every condition that is set must hold.
///
/// ```
/// use std::time::Duration;
/// use taquba::{JobFilter, JobStatus};
///
/// let timeouts = JobFilter::new("mail", JobStatus::Dead)
///     .error_contains("timeout")
///     .header("tenant", "acme")
///     .older_than(Duration::from_secs(3_600));
/// # drop(timeouts);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFilter {
    /// The queue.
    pub queue: String,
    /// The state.
    pub status: JobStatus,
    /// Headers that the job has, all of them.
    pub headers: Vec<(String, String)>,
    /// Enqueued at least this long ago by the queue's clock.
    pub older_than: Option<Duration>,
    /// A text that its last error contains, to the letter.
    pub error_contains: Option<String>,
}

impl JobFilter {
    /// All jobs of a queue in a state.
    pub fn new(queue: impl Into<String>, status: JobStatus) -> Self {
        Self {
            queue: queue.into(),
            status,
            headers: Vec::new(),
            older_than: None,
            error_contains: None,
        }
    }

    /// Only jobs with this header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Only jobs that were enqueued at least this long ago.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Only jobs whose last error contains this text.
    #[must_use]
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.error_contains = Some(text.into());
        self
    }

    /// Tells whether a job is meant, at a time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn matches(&self, job: &JobRecord, now_ms: u64) -> bool {
        let age_ms = u128::from(now_ms.saturating_sub(job.enqueued_at));
        let error = job.last_error.as_deref().unwrap_or_default();
        job.queue == *self.queue
            && job.status == self.status
            && self.headers.iter().all(|(name, value)| job.headers.get(name) == Some(value))
            && self.older_than.is_none_or(|age| age_ms >= age.as_millis())
            && self.error_contains.as_ref().is_none_or(|text| error.contains(text.as_str()))
    }
}

/// What an operator does to many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkAction {
    /// Dead jobs get all their attempts back, as [`Queue::requeue_dead_job`](crate::Queue::requeue_dead_job).
    Requeue,
    /// Waiting jobs are removed, claimed ones asked to stop, as [`Queue::cancel`](crate::Queue::cancel).
    Cancel,
    /// Dead and completed jobs are forgotten, waiting ones removed. Claimed ones stay.
    Delete,
}

/// How far a bulk call got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BulkReport {
    /// Jobs that the filter means.
    pub matched: u64,
    /// Jobs that were changed; none in a dry run. Fewer than matched where a job moved on meanwhile, or where the action
    /// does nothing to its state.
    pub changed: u64,
    /// Where to go on; `None` at the end.
    pub next_cursor: Option<Vec<u8>>,
}
