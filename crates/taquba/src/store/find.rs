//! A job by its id: index row, record, payload row, all of one moment; and all claims.

use std::sync::Arc;

use bytes::Bytes;

use super::keys;
use super::record::{self, ClaimRow, Counters};
use super::scan::Row;
use super::snapshot::Snapshot;
use super::wire::Malformed;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Body, Job, Payload};

/// Says which record cannot be decoded.
pub(crate) fn undecodable(key: &[u8], reason: Malformed) -> Error {
    Error::Deserialization(format!("row {:?}: {reason}", String::from_utf8_lossy(key)))
}

/// Finds a job, its payload with it. A claimed one is found as it was while pending: who owns the claims knows more.
pub(crate) async fn job(at: &Snapshot, id: &str) -> Result<Option<Job>> {
    match at.get(&keys::index(id)).await? {
        Some(main) => record_at(at, &main).await,
        None => Ok(None),
    }
}

/// As [`job`], without the payload when that has a row of its own.
pub(crate) async fn record(at: &Snapshot, id: &str) -> Result<Option<Job>> {
    match at.get(&keys::index(id)).await? {
        Some(main) => bare_record_at(at, &main).await,
        None => Ok(None),
    }
}

/// The record at a key, its payload with it.
pub(crate) async fn record_at(at: &Snapshot, main: &[u8]) -> Result<Option<Job>> {
    match bare_record_at(at, main).await? {
        Some(job) => with_payload(at, job).await.map(Some),
        None => Ok(None),
    }
}

async fn bare_record_at(at: &Snapshot, main: &[u8]) -> Result<Option<Job>> {
    let Some(value) = at.get(main).await? else {
        return Ok(None);
    };
    record::decode_job(value).map(Some).map_err(|e| undecodable(main, e))
}

/// The job with the bytes of a payload that has its own row; without them when that row is missing.
pub(crate) async fn with_payload(at: &Snapshot, job: Job) -> Result<Job> {
    let Payload::Apart { size, bytes: None } = job.body.payload else {
        return Ok(job);
    };
    let bytes = at.get(&keys::payload(job.queue(), job.place())).await?;
    Ok(attach(job, size, bytes))
}

/// The job with its payload's bytes at hand.
pub(crate) fn attach(job: Job, size: u64, bytes: Option<Bytes>) -> Job {
    let body = Body {
        id: Arc::clone(&job.body.id),
        queue: job.body.queue.clone(),
        headers: job.body.headers.clone(),
        payload: Payload::Apart { size, bytes },
        rules: job.body.rules.clone(),
        ..*job.body
    };
    Job { body: Arc::new(body), ..job }
}

/// Counts the jobs of a queue row by row: for counters that are damaged. How many were completed ever, nothing else says.
pub(crate) async fn recount(at: &Snapshot, queue: &str) -> Result<Counters> {
    let ready = keys::in_queue(keys::READY, queue);
    let claims = claims(at).await?;
    let claimed = claims.iter().filter(|claim| claim.main.starts_with(&ready)).count() as u64;
    let mut counters = Counters {
        claimed,
        pending: count(at, &ready).await?.saturating_sub(claimed),
        dead: count(at, &keys::in_queue(keys::DEAD, queue)).await?,
        ..Counters::default()
    };
    let mut scan = at.scan_prefix(&[keys::SCHEDULED]).await?;
    while let Some(row) = scan.next().await? {
        let job = record::decode_job(row.value);
        counters.scheduled += u64::from(job.is_ok_and(|job| **job.queue() == *queue));
    }
    Ok(counters)
}

async fn count(at: &Snapshot, prefix: &[u8]) -> Result<u64> {
    let mut scan = at.scan_prefix(prefix).await?;
    let mut count = 0;
    while scan.next().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// All claims. Slots are reused, so this is as long as the most jobs that were ever claimed at once.
pub(crate) async fn claims(at: &Snapshot) -> Result<Vec<ClaimRow>> {
    let mut scan = at.scan_prefix(&[keys::CLAIM]).await?;
    let mut claims = Vec::new();
    while let Some(Row { key, value, .. }) = scan.next().await? {
        match record::decode_claim(&key, value) {
            Ok(claim) => claims.push(claim),
            Err(e) => tracing::error!(error = %undecodable(&key, e), "a claim is left in place"),
        }
    }
    Ok(claims)
}
