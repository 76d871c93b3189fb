//! How a plan becomes one set of changes of the queue: the next step's job and the run's row, or the end's record and
//! its notification. Everything is encoded before the commit; the commit only picks.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taquba::{Changes, EnqueueOptions, EnqueueRequest, Facts, Reads, SettlementEffects};

use super::keys::RunKeys;
use super::record::{RunRow, TerminalRecord};
use crate::error::Result;
use crate::lifecycle::outcome::Trigger;
use crate::lifecycle::settle::EndedBy;
use crate::names::{HEADER_RUN_ID, HEADER_SIGNAL_WAIT, HEADER_STEP, HEADER_TERMINAL};
use crate::run_id::RunId;

/// What every job of a run has in common.
#[derive(Debug, Clone)]
pub(crate) struct JobShape<'a> {
    pub(crate) queue: &'a str,
    pub(crate) run_id: &'a RunId,
    /// The headers that the caller of `submit` gave.
    pub(crate) headers: &'a HashMap<String, String>,
    pub(crate) priority: Option<u32>,
    pub(crate) max_attempts: Option<u32>,
}

impl JobShape<'_> {
    /// The request for the job of a step that runs at once.
    pub(crate) fn step(&self, step_number: u32, payload: Vec<u8>) -> EnqueueRequest {
        let mut headers = self.headers.clone();
        headers.insert(HEADER_RUN_ID.to_owned(), self.run_id.to_string());
        headers.insert(HEADER_STEP.to_owned(), step_number.to_string());
        self.request(headers, payload)
    }

    /// The request for the job that tells the hook of the end. The caller's headers ride in the record.
    pub(crate) fn notification(&self, record: &TerminalRecord, payload: Vec<u8>) -> EnqueueRequest {
        let headers = HashMap::from([
            (HEADER_RUN_ID.to_owned(), self.run_id.to_string()),
            (HEADER_TERMINAL.to_owned(), record.status.to_string()),
        ]);
        self.request(headers, payload)
    }

    fn request(&self, headers: HashMap<String, String>, payload: Vec<u8>) -> EnqueueRequest {
        let options = EnqueueOptions {
            headers,
            priority: self.priority,
            max_attempts: self.max_attempts,
            ..EnqueueOptions::default()
        };
        EnqueueRequest { queue: self.queue.to_owned(), payload, options }
    }
}

/// A run's end, ready to commit.
#[derive(Debug, Clone)]
pub(crate) struct EndCommit {
    keys: RunKeys,
    record: Vec<u8>,
    notification: Option<EnqueueRequest>,
    by: EndedBy,
    reason: String,
}

impl EndCommit {
    /// Encodes an end.
    pub(crate) fn new(
        shape: &JobShape<'_>,
        record: &TerminalRecord,
        by: EndedBy,
        notify: bool,
    ) -> Result<Self> {
        let bytes = record.encode()?;
        Ok(Self {
            keys: RunKeys::new(shape.queue, shape.run_id),
            notification: notify.then(|| shape.notification(record, bytes.clone())),
            record: bytes,
            by,
            reason: record.error.clone().unwrap_or_default(),
        })
    }

    /// Ends the run; the job of its step is dealt with elsewhere.
    pub(crate) fn apply(self, changes: &mut Changes) {
        changes.kv_delete(self.keys.row);
        changes.kv_put(self.keys.outcome, self.record);
        if let Some(request) = self.notification {
            changes.enqueue(request);
        }
    }

    /// Ends the run and settles the job of its step, with the step's effects if its outcome is what ended the run.
    fn settle(self, effects: SettlementEffects, changes: &mut Changes) {
        match self.by {
            EndedBy::Outcome => {
                changes.ack();
                changes.extend(effects);
            }
            EndedBy::Request => changes.ack(),
            EndedBy::Failure => changes.dead_letter(self.reason.clone()),
        }
        self.apply(changes);
    }
}

/// A run's next step, ready to commit.
#[derive(Debug, Clone)]
pub(crate) struct NextCommit {
    row_key: Vec<u8>,
    row: Vec<u8>,
    job_id: String,
    request: EnqueueRequest,
    when: Trigger,
}

impl NextCommit {
    /// Encodes a next step, its job's id given.
    pub(crate) fn new(
        shape: &JobShape<'_>,
        row: &RunRow,
        payload: Vec<u8>,
        when: Trigger,
    ) -> Result<Self> {
        Ok(Self {
            row_key: RunKeys::new(shape.queue, shape.run_id).row,
            row: row.encode()?,
            job_id: row.job_id.clone(),
            request: shape.step(row.step_number, payload),
            when,
        })
    }

    fn signal_key(&self) -> Option<&str> {
        match &self.when {
            Trigger::OnSignal { correlation_key, .. } => Some(correlation_key),
            _ => None,
        }
    }

    fn settle(mut self, now_ms: u64, effects: SettlementEffects, changes: &mut Changes) {
        match self.when {
            Trigger::Immediate => {}
            Trigger::After(delay) => self.request.options.run_at = Some(time_after(now_ms, delay)),
            Trigger::OnSignal { correlation_key, timeout } => {
                // A job waits only until a later moment, so the shortest wait is one tick.
                let timeout = timeout.max(Duration::from_millis(1));
                self.request.options.run_at = Some(time_after(now_ms, timeout));
                self.request
                    .options
                    .headers
                    .insert(HEADER_SIGNAL_WAIT.into(), correlation_key.clone());
                self.request.options.signal_key = Some(correlation_key);
            }
        }
        changes.ack();
        changes.extend(effects);
        changes.kv_put(self.row_key, self.row);
        changes.enqueue_issued(self.job_id, self.request);
    }
}

/// What a step's own answer leads to, ready to commit.
#[derive(Debug, Clone)]
pub(crate) enum Planned {
    Retry { error: String },
    Next(NextCommit),
    End(EndCommit),
}

/// A step's settlement, ready to commit: what its answer leads to, and what takes its place when the commit finds that
/// the run was cancelled or that the key it wants to wait for is taken.
#[derive(Debug, Clone)]
pub(crate) struct StepCommit {
    pub(crate) queue: String,
    pub(crate) planned: Planned,
    pub(crate) if_cancelled: Option<EndCommit>,
    pub(crate) if_key_taken: Option<EndCommit>,
    pub(crate) effects: SettlementEffects,
}

impl StepCommit {
    /// What the commit has to read: nothing, unless the next step waits for a signal.
    pub(crate) fn reads(&self) -> Reads {
        let signals = match &self.planned {
            Planned::Next(next) => next.signal_key(),
            _ => None,
        };
        let signals = signals.map(|key| (self.queue.clone(), key.to_owned())).into_iter().collect();
        Reads { signals, ..Reads::default() }
    }

    /// Fills in the changes.
    pub(crate) fn settle(self, facts: &Facts, changes: &mut Changes) {
        if facts.cancel_requested
            && let Some(end) = self.if_cancelled
        {
            return end.settle(SettlementEffects::default(), changes);
        }
        match self.planned {
            Planned::Retry { error } => changes.nack(error),
            Planned::End(end) => end.settle(self.effects, changes),
            Planned::Next(next) => {
                let taken = next
                    .signal_key()
                    .is_some_and(|key| facts.signal(&self.queue, key).waiter.is_some());
                match self.if_key_taken {
                    Some(end) if taken => end.settle(SettlementEffects::default(), changes),
                    _ => next.settle(facts.now_ms, self.effects, changes),
                }
            }
        }
    }
}

/// The time `delay` after `now_ms`, in whole milliseconds, rounded up: never earlier than asked for.
fn time_after(now_ms: u64, delay: Duration) -> SystemTime {
    let delay_ms = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    // No host's time ends before a u64 of milliseconds does; if one did, a year from its epoch is past, so: at once.
    UNIX_EPOCH
        .checked_add(Duration::from_millis(now_ms.saturating_add(delay_ms)))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_and_never_overflows() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        assert_eq!(time_after(10, Duration::ZERO), at(10));
        assert_eq!(time_after(10, Duration::from_nanos(1)), at(11));
        assert_eq!(time_after(10, Duration::from_micros(2_000)), at(12));
        assert_eq!(time_after(10, Duration::MAX), at(u64::MAX));
    }

    #[test]
    fn a_job_of_a_run_carries_its_address_and_the_callers_headers() {
        let run_id = RunId::new("r").unwrap();
        let headers = HashMap::from([("mine".to_owned(), "x".to_owned())]);
        let shape = JobShape {
            queue: "q",
            run_id: &run_id,
            headers: &headers,
            priority: Some(5),
            max_attempts: Some(2),
        };
        let step = shape.step(3, vec![1]);
        assert_eq!(step.queue, "q");
        assert_eq!(step.payload, [1]);
        assert_eq!(step.options.priority, Some(5));
        assert_eq!(step.options.max_attempts, Some(2));
        let want = [("mine", "x"), (HEADER_RUN_ID, "r"), (HEADER_STEP, "3")];
        assert_eq!(step.options.headers, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }
}
