//! From a stored job to the record that callers see.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lifecycle::history::Entry;
use crate::lifecycle::job::{Job, Payload, State};
use crate::record::{JobAttempt, JobProgress, JobRecord, JobStatus, Quarantined};
use crate::store::keys;
use crate::store::quarantine::{self, Aside};
use crate::store::record::decode_headers;

/// Shapes a job. A payload whose bytes are not at hand, as those in objects never are, shows empty.
pub(crate) fn job_record(job: &Job) -> Result<JobRecord> {
    let body = &job.body;
    let headers = decode_headers(&body.headers)
        .map_err(|e| Error::Deserialization(format!("headers of job {:?}: {e}", body.id)))?;
    let mut record = JobRecord {
        id: body.id.as_ref().to_owned(),
        queue: body.queue.clone(),
        payload: body.payload.bytes().map(|bytes| bytes.to_vec()).unwrap_or_default(),
        payload_ref: body.payload.object().map(|object| object.name.to_string()),
        headers,
        status: JobStatus::Pending,
        attempts: job.attempts_shown(),
        max_attempts: body.max_attempts,
        enqueued_at: body.enqueued_at,
        claimed_at: None,
        run_at: None,
        priority: body.priority,
        last_error: job.last_error.as_deref().map(str::to_owned),
        dedup_key: job.owned_dedup().map(|key| key.as_ref().to_owned()),
        completed_at: None,
        failed_at: None,
        progress: None,
        cancel_requested: job.wants_cancel(),
        woken_at: job.woken.as_ref().map(|woken| woken.at),
        wake_payload: job.woken.as_ref().and_then(|w| w.payload.as_ref()).map(|p| p.to_vec()),
        max_run: body.rules.max_run_ms.map(Duration::from_millis),
        expire_at: body.rules.expire_at,
        result: job.result.as_ref().map(|result| result.to_vec()),
    };
    match &job.state {
        State::Pending => {}
        State::Scheduled { run_at } => {
            record.status = JobStatus::Scheduled;
            record.run_at = Some(*run_at);
        }
        State::Claimed(hold) => {
            record.status = JobStatus::Claimed;
            record.claimed_at = Some(hold.claimed_at);
            record.progress = hold.progress.as_ref().map(|progress| JobProgress {
                percent: progress.percent,
                note: progress.note.as_ref().to_owned(),
                at: progress.at,
            });
        }
        State::Done { completed_at } => {
            record.status = JobStatus::Done;
            record.completed_at = Some(*completed_at);
        }
        State::Dead { failed_at } => {
            record.status = JobStatus::Dead;
            record.failed_at = Some(*failed_at);
        }
    }
    Ok(record)
}

/// Shapes an entry of a job's history.
pub(crate) fn attempt(entry: Entry) -> JobAttempt {
    JobAttempt {
        attempt: entry.attempt,
        claimed_at: entry.claimed_at,
        recorded_at: entry.recorded_at,
        outcome: entry.outcome,
        error: entry.error.map(|error| error.as_ref().to_owned()),
    }
}

/// Shapes a row that was put aside.
pub(crate) fn quarantined(aside: Aside) -> Quarantined {
    let known = quarantine::salvage(&aside.value);
    let in_key = match aside.key.first() {
        Some(&keys::SCHEDULED) => None,
        _ => keys::queue_of(&aside.key).map(str::to_owned),
    };
    let (id, queue) = known.unzip();
    Quarantined {
        key: aside.key.to_vec(),
        value: aside.value.to_vec(),
        reason: aside.reason,
        at: aside.at,
        id,
        queue: in_key.or(queue),
    }
}

/// Shapes a job for a listing: a payload that has a row of its own is left out, at hand or not.
pub(crate) fn listed(job: &Job) -> Result<JobRecord> {
    let mut record = job_record(job)?;
    if matches!(job.body.payload, Payload::Apart { .. }) {
        record.payload.clear();
    }
    Ok(record)
}

/// Whether the payload's bytes still have to be read from their own row.
pub(crate) fn lacks_payload(job: &Job) -> bool {
    matches!(job.body.payload, Payload::Apart { bytes: None, .. })
}
