//! The bytes of one entry of a job's history, and reading all entries of a job.

use std::sync::Arc;

use bytes::Bytes;

use super::find::{self, undecodable};
use super::keys;
use super::record::VERSION;
use super::snapshot::Snapshot;
use super::wire::{Malformed, Reader, put_bytes, put_u64};
use crate::error::Result;
use crate::lifecycle::history::Entry;
use crate::record::AttemptOutcome;

const HAS_CLAIMED_AT: u8 = 1;
const HAS_ERROR: u8 = 2;

/// Outcomes by their number.
const OUTCOMES: [AttemptOutcome; 6] = [
    AttemptOutcome::Completed,
    AttemptOutcome::Retried,
    AttemptOutcome::DeadLettered,
    AttemptOutcome::LeaseExpired,
    AttemptOutcome::Interrupted,
    AttemptOutcome::Requeued,
];

/// Encodes an entry.
pub(crate) fn encode(entry: &Entry) -> Bytes {
    let outcome = OUTCOMES.iter().position(|outcome| *outcome == entry.outcome);
    let mut flags = 0;
    if entry.claimed_at.is_some() {
        flags |= HAS_CLAIMED_AT;
    }
    if entry.error.is_some() {
        flags |= HAS_ERROR;
    }
    let error = entry.error.as_ref().map_or("", |error| error);
    let mut out = Vec::with_capacity(24 + error.len());
    out.extend_from_slice(&[
        VERSION,
        outcome.and_then(|n| u8::try_from(n).ok()).unwrap_or(u8::MAX),
        flags,
    ]);
    put_u64(&mut out, u64::from(entry.attempt));
    put_u64(&mut out, entry.recorded_at);
    if let Some(claimed_at) = entry.claimed_at {
        put_u64(&mut out, claimed_at);
    }
    if entry.error.is_some() {
        put_bytes(&mut out, error.as_bytes());
    }
    out.into()
}

/// Decodes an entry.
pub(crate) fn decode(value: Bytes) -> std::result::Result<Entry, Malformed> {
    let mut r = Reader::new(value);
    super::record::version(&mut r)?;
    let outcome = OUTCOMES.get(usize::from(r.u8()?)).copied().ok_or("it has an unknown outcome")?;
    let flags = r.u8()?;
    let (attempt, recorded_at) = (r.u32()?, r.u64()?);
    let claimed_at = if flags & HAS_CLAIMED_AT == 0 { None } else { Some(r.u64()?) };
    let error = if flags & HAS_ERROR == 0 { None } else { Some(Arc::from(r.text()?)) };
    r.end()?;
    Ok(Entry { attempt, claimed_at, recorded_at, outcome, error })
}

/// All entries of the job of this id, oldest first; none when there is no such job.
pub(crate) async fn of_id(at: &Snapshot, id: &str) -> Result<Vec<Entry>> {
    match find::job(at, id).await? {
        Some(job) => of_job(at, job.body.order).await,
        None => Ok(Vec::new()),
    }
}

/// All entries of the job with this order number, oldest first. One that cannot be decoded is left out and logged.
pub(crate) async fn of_job(at: &Snapshot, order: u64) -> Result<Vec<Entry>> {
    let prefix = keys::histories(order);
    let mut scan = at.scan_prefix(&prefix).await?;
    let mut entries = Vec::new();
    while let Some(row) = scan.next().await? {
        match decode(row.value) {
            Ok(entry) => entries.push(entry),
            Err(e) => {
                tracing::error!(error = %undecodable(&row.key, e), "an attempt is not listed");
            }
        }
    }
    Ok(entries)
}
