//! A job by its id: index row, record, claim row, payload row, all of one moment.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::db::{Snapshot, Store};
use super::keys;
use super::record::{self, ClaimRow};
use super::scan::Row;
use super::wire::Malformed;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Body, Job, Payload, State};

/// Says which record cannot be decoded.
pub(crate) fn undecodable(key: &[u8], reason: Malformed) -> Error {
    Error::Deserialization(format!("row {:?}: {reason}", String::from_utf8_lossy(key)))
}

/// Finds a job. `slot` is where its claim is believed to be; a claim elsewhere is found by a scan of all claims.
pub(crate) async fn job(store: &Store, id: &str, slot: Option<u32>) -> Result<Option<Job>> {
    let at = store.snapshot()?;
    let Some(main) = at.get(&keys::index(id)).await? else {
        return Ok(None);
    };
    let Some(mut job) = record_at(&at, &main).await? else {
        return Ok(None);
    };
    if matches!(job.state, State::Pending)
        && let Some(claim) = claim_on(&at, &main, slot).await?
    {
        job.state = State::Claimed(claim.hold);
    }
    Ok(Some(job))
}

/// The record at a key, its payload with it.
pub(crate) async fn record_at(at: &Snapshot, main: &[u8]) -> Result<Option<Job>> {
    let Some(value) = at.get(main).await? else {
        return Ok(None);
    };
    let job = record::decode_job(value).map_err(|e| undecodable(main, e))?;
    with_payload(at, job).await.map(Some)
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
        ..*job.body
    };
    Job {
        body: Arc::new(body),
        ..job
    }
}

async fn claim_on(at: &Snapshot, main: &[u8], slot: Option<u32>) -> Result<Option<ClaimRow>> {
    if let Some(slot) = slot {
        let key = keys::claim(slot);
        if let Some(value) = at.get(&key).await? {
            let claim = record::decode_claim(&key, value).map_err(|e| undecodable(&key, e))?;
            if claim.main == main {
                return Ok(Some(claim));
            }
        }
    }
    Ok(claims(at)
        .await?
        .into_iter()
        .find(|claim| claim.main == main))
}

/// All claims. Slots are reused, so this is as long as the most jobs that were ever claimed at once.
pub(crate) async fn claims(at: &Snapshot) -> Result<Vec<ClaimRow>> {
    let mut scan = at
        .scan(
            Bound::Included(vec![keys::CLAIM]),
            Some(vec![keys::CLAIM + 1]),
        )
        .await?;
    let mut claims = Vec::new();
    while let Some(Row { key, value, .. }) = scan.next().await? {
        match record::decode_claim(&key, value) {
            Ok(claim) => claims.push(claim),
            Err(e) => tracing::error!(error = %undecodable(&key, e), "a claim is left in place"),
        }
    }
    Ok(claims)
}
