//! The bytes of a job's record, a claim, counters and the mark. docs/layout.md shows each byte; golden tests hold it.

use std::sync::Arc;

use bytes::Bytes;

use super::wire::{Malformed, Reader, put_bytes, put_u64};
use super::{keys, rules};
use crate::lifecycle::job::{
    Body, Hold, Job, Object, ObjectName, Payload, Progress, Rules, State, Woken,
};
use crate::name::QueueName;

/// Version of every value below; a record of another version is refused, never guessed.
pub(super) const VERSION: u8 = 1;

const HAS_ERROR: u64 = 1;
const HAS_DEDUP: u64 = 1 << 1;
const CANCEL_REQUESTED: u64 = 1 << 2;
const HAS_SIGNAL_KEY: u64 = 1 << 3;
const WOKEN: u64 = 1 << 4;
const WOKEN_WITH_PAYLOAD: u64 = 1 << 5;
const PAYLOAD_APART: u64 = 1 << 6;
const PAYLOAD_OBJECT: u64 = 1 << 7;
const HAS_HISTORY: u64 = 1 << 8;
const HAS_RULES: u64 = 1 << 9;
const HAS_RESULT: u64 = 1 << 10;
const ALL_FLAGS: u64 = (1 << 11) - 1;

const STATE_PENDING: u8 = 0;
const STATE_SCHEDULED: u8 = 1;
const STATE_DONE: u8 = 2;
const STATE_DEAD: u8 = 3;

/// Encodes a job's record. A claimed job's record is what it was while pending.
pub(crate) fn encode_job(job: &Job) -> Bytes {
    let body = &job.body;
    let (state, at) = match job.state {
        State::Pending | State::Claimed(_) => (STATE_PENDING, 0),
        State::Scheduled { run_at } => (STATE_SCHEDULED, run_at),
        State::Done { completed_at } => (STATE_DONE, completed_at),
        State::Dead { failed_at } => (STATE_DEAD, failed_at),
    };
    let inline = match &body.payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Apart { .. } => 0,
        Payload::Object(_) => 48,
    };
    let mut out = Vec::with_capacity(96 + body.queue.len() + body.headers.len() + inline);
    out.extend_from_slice(&[VERSION, state]);
    put_u64(&mut out, flags(job));
    for number in [
        at,
        body.enqueued_at,
        body.order,
        u64::from(body.priority),
        u64::from(job.attempts),
        u64::from(body.max_attempts),
        job.epoch,
    ] {
        put_u64(&mut out, number);
    }
    put_bytes(&mut out, body.id.as_bytes());
    put_bytes(&mut out, body.queue.as_bytes());
    for text in [&job.last_error, &job.dedup, &job.signal_key].into_iter().flatten() {
        put_bytes(&mut out, text.as_bytes());
    }
    if let Some(woken) = &job.woken {
        put_u64(&mut out, woken.at);
        if let Some(payload) = &woken.payload {
            put_bytes(&mut out, payload);
        }
    }
    if job.history > 0 {
        put_u64(&mut out, u64::from(job.history));
    }
    if body.rules != Rules::default() {
        rules::encode(&body.rules, &mut out);
    }
    if let Some(result) = &job.result {
        put_bytes(&mut out, result);
    }
    put_bytes(&mut out, &body.headers);
    match &body.payload {
        Payload::Inline(bytes) => out.extend_from_slice(bytes),
        Payload::Apart { size, .. } => put_u64(&mut out, *size),
        Payload::Object(object) => encode_object(&mut out, object),
    }
    out.into()
}

fn encode_object(out: &mut Vec<u8>, object: &Object) {
    put_u64(out, object.size);
    out.extend_from_slice(&object.crc.to_be_bytes());
    out.extend_from_slice(&object.name.store.to_be_bytes());
    put_u64(out, object.name.epoch);
    out.extend_from_slice(&object.name.upload.to_be_bytes());
}

fn decode_object(r: &mut Reader) -> Result<Object, Malformed> {
    let size = r.u64()?;
    let crc = u32::from_be_bytes(r.array()?);
    let store = u64::from_be_bytes(r.array()?);
    let epoch = r.u64()?;
    let upload = u128::from_be_bytes(r.array()?);
    Ok(Object { name: ObjectName { store, epoch, upload }, size, crc })
}

fn flags(job: &Job) -> u64 {
    let apart = matches!(job.body.payload, Payload::Apart { .. });
    let with_payload = job.woken.as_ref().is_some_and(|woken| woken.payload.is_some());
    [
        (job.last_error.is_some(), HAS_ERROR),
        (job.dedup.is_some(), HAS_DEDUP),
        (job.cancel_requested, CANCEL_REQUESTED),
        (job.signal_key.is_some(), HAS_SIGNAL_KEY),
        (job.woken.is_some(), WOKEN),
        (with_payload, WOKEN_WITH_PAYLOAD),
        (apart, PAYLOAD_APART),
        (job.body.payload.object().is_some(), PAYLOAD_OBJECT),
        (job.history > 0, HAS_HISTORY),
        (job.body.rules != Rules::default(), HAS_RULES),
        (job.result.is_some(), HAS_RESULT),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .sum()
}

/// Decodes a job's record.
pub(crate) fn decode_job(value: Bytes) -> Result<Job, Malformed> {
    let mut r = Reader::new(value);
    version(&mut r)?;
    let tag = r.u8()?;
    let flags = r.u64()?;
    if flags & !ALL_FLAGS != 0 {
        return Err("it has an unknown flag");
    }
    let at = r.u64()?;
    let state = match tag {
        STATE_PENDING => State::Pending,
        STATE_SCHEDULED => State::Scheduled { run_at: at },
        STATE_DONE => State::Done { completed_at: at },
        STATE_DEAD => State::Dead { failed_at: at },
        _ => return Err("it is in an unknown state"),
    };
    let enqueued_at = r.u64()?;
    let order = r.u64()?;
    let priority = r.u32()?;
    let attempts = r.u32()?;
    let max_attempts = r.u32()?;
    let epoch = r.u64()?;
    let id = r.text()?;
    let queue = QueueName::new(r.text()?).map_err(|_| "its queue name is too long")?;
    let mut text = |flag| -> Result<Option<Arc<str>>, Malformed> {
        if flags & flag == 0 { Ok(None) } else { Ok(Some(r.text()?.into())) }
    };
    let (last_error, dedup, signal_key) =
        (text(HAS_ERROR)?, text(HAS_DEDUP)?, text(HAS_SIGNAL_KEY)?);
    let woken = decode_woken(&mut r, flags)?;
    let history = if flags & HAS_HISTORY == 0 { 0 } else { r.u32()? };
    let rules = if flags & HAS_RULES == 0 { Rules::default() } else { rules::decode(&mut r)? };
    let result = if flags & HAS_RESULT == 0 { None } else { Some(r.bytes()?) };
    let headers = r.bytes()?;
    decode_headers(&headers)?;
    let payload = decode_payload(r, flags)?;
    let body = Body {
        id: id.into(),
        queue,
        priority,
        order,
        enqueued_at,
        max_attempts,
        headers,
        payload,
        rules,
    };
    Ok(Job {
        body: Arc::new(body),
        attempts,
        epoch,
        last_error,
        dedup,
        cancel_requested: flags & CANCEL_REQUESTED != 0,
        signal_key,
        woken,
        result,
        history,
        state,
    })
}

fn decode_payload(mut r: Reader, flags: u64) -> Result<Payload, Malformed> {
    let payload = match (flags & PAYLOAD_APART != 0, flags & PAYLOAD_OBJECT != 0) {
        (false, false) => return Ok(Payload::Inline(r.rest())),
        (true, false) => Payload::Apart { size: r.u64()?, bytes: None },
        (false, true) => Payload::Object(decode_object(&mut r)?),
        (true, true) => return Err("its payload is in two places"),
    };
    r.end()?;
    Ok(payload)
}

fn decode_woken(r: &mut Reader, flags: u64) -> Result<Option<Woken>, Malformed> {
    if flags & WOKEN == 0 {
        return Ok(None);
    }
    let at = r.u64()?;
    let payload = if flags & WOKEN_WITH_PAYLOAD == 0 { None } else { Some(r.bytes()?) };
    Ok(Some(Woken { at, payload }))
}

pub(super) fn version(r: &mut Reader) -> Result<(), Malformed> {
    match r.u8()? {
        VERSION => Ok(()),
        _ => Err("it was written by another version"),
    }
}

const CLAIM_CANCEL_REQUESTED: u8 = 1;
const CLAIM_PROGRESS: u8 = 2;

/// Encodes a claim's row: which job, since when, whether it is to stop, how far it is.
pub(crate) fn encode_claim(job: &Job, hold: &Hold) -> Bytes {
    let mut flags = 0;
    if hold.cancel_requested {
        flags |= CLAIM_CANCEL_REQUESTED;
    }
    if hold.progress.is_some() {
        flags |= CLAIM_PROGRESS;
    }
    let mut out = Vec::with_capacity(48);
    out.extend_from_slice(&[VERSION, flags]);
    put_u64(&mut out, hold.claimed_at);
    if let Some(progress) = &hold.progress {
        out.push(progress.percent);
        put_u64(&mut out, progress.at);
        put_bytes(&mut out, progress.note.as_bytes());
    }
    out.extend_from_slice(&keys::ready(job.queue(), job.place()));
    out.into()
}

/// What a claim's row says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClaimRow {
    pub(crate) hold: Hold,
    /// The key of the claimed job's record.
    pub(crate) main: Bytes,
}

/// Decodes a claim's row.
pub(crate) fn decode_claim(key: &[u8], value: Bytes) -> Result<ClaimRow, Malformed> {
    let slot = keys::claim_slot(key).ok_or("its key is malformed")?;
    let mut r = Reader::new(value);
    version(&mut r)?;
    let flags = r.u8()?;
    let claimed_at = r.u64()?;
    let progress = if flags & CLAIM_PROGRESS == 0 {
        None
    } else {
        let (percent, at) = (r.u8()?, r.u64()?);
        Some(Arc::new(Progress { percent, at, note: r.text()?.into() }))
    };
    let cancel_requested = flags & CLAIM_CANCEL_REQUESTED != 0;
    let hold = Hold { slot: Some(slot), claimed_at, cancel_requested, progress };
    Ok(ClaimRow { hold, main: r.rest() })
}

/// How many jobs of a queue are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) pending: u64,
    pub(crate) scheduled: u64,
    pub(crate) claimed: u64,
    /// Completed ever.
    pub(crate) done: u64,
    pub(crate) dead: u64,
}

impl Counters {
    /// The counter of a state; completions are counted by the ending, not by the state.
    pub(crate) fn of(&mut self, state: &State) -> Option<&mut u64> {
        match state {
            State::Pending => Some(&mut self.pending),
            State::Scheduled { .. } => Some(&mut self.scheduled),
            State::Claimed(_) => Some(&mut self.claimed),
            State::Done { .. } => None,
            State::Dead { .. } => Some(&mut self.dead),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        for number in [self.pending, self.scheduled, self.claimed, self.done, self.dead] {
            put_u64(&mut out, number);
        }
        out.into()
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, Malformed> {
        let mut r = Reader::new(value);
        version(&mut r)?;
        let counters = Self {
            pending: r.u64()?,
            scheduled: r.u64()?,
            claimed: r.u64()?,
            done: r.u64()?,
            dead: r.u64()?,
        };
        r.end()?;
        Ok(counters)
    }
}

/// The highest time, id and order number that were ever issued; rides in every batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) time_ms: u64,
    pub(crate) id: u128,
    pub(crate) order: u64,
    /// How often the store was opened.
    pub(crate) epoch: u64,
}

impl Mark {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(40);
        out.push(VERSION);
        put_u64(&mut out, self.time_ms);
        out.extend_from_slice(&self.id.to_be_bytes());
        put_u64(&mut out, self.order);
        put_u64(&mut out, self.epoch);
        out.into()
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, Malformed> {
        let mut r = Reader::new(value);
        version(&mut r)?;
        let time_ms = r.u64()?;
        let id = u128::from_be_bytes(r.array()?);
        let mark = Self { time_ms, id, order: r.u64()?, epoch: r.u64()? };
        r.end()?;
        Ok(mark)
    }
}

/// Encodes a low-water row.
pub(crate) fn encode_low(at: u64) -> Bytes {
    Bytes::copy_from_slice(&at.to_be_bytes())
}

/// Decodes a low-water row.
pub(crate) fn decode_low(value: &[u8]) -> Result<u64, Malformed> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| "it is not 8 bytes")
}

/// Encodes headers, sorted by name so that equal headers are equal bytes.
pub(crate) fn encode_headers<'a>(headers: impl Iterator<Item = (&'a String, &'a String)>) -> Bytes {
    let mut sorted: Vec<_> = headers.collect();
    if sorted.is_empty() {
        return Bytes::new();
    }
    sorted.sort_unstable();
    let mut out = Vec::new();
    for (name, value) in sorted {
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    out.into()
}

/// Decodes headers.
pub(crate) fn decode_headers(
    bytes: &Bytes,
) -> Result<std::collections::HashMap<String, String>, Malformed> {
    let mut r = Reader::new(bytes.clone());
    let mut headers = std::collections::HashMap::new();
    while !r.is_empty() {
        headers.insert(r.text()?, r.text()?);
    }
    Ok(headers)
}
