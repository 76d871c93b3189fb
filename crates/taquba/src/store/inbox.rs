//! The bytes of what is remembered of an inbox entry.

use bytes::Bytes;

use super::wire::{Malformed, Reader, put_bytes, put_u64};
use crate::inbox::{InboxOutcome, InboxRecord, Rejection};
use crate::record::{CancelOutcome, EnqueueResult, SignalDelivery};

/// What the store remembers of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// From when its retention runs: when it was applied, or when its object was last found still there much later.
    pub(crate) since: u64,
    pub(crate) record: InboxRecord,
}

impl Kept {
    /// One whose bytes this version cannot read. It stays.
    pub(crate) fn unreadable() -> Self {
        let message = "what became of it is stored, and cannot be read".to_owned();
        let outcome = InboxOutcome::Rejected(Rejection::Failed { message });
        Self { since: u64::MAX, record: InboxRecord { applied_at_ms: 0, outcome } }
    }
}

const ENQUEUED: u8 = 0;
const HELD: u8 = 1;
const REMOVED: u8 = 2;
const REQUESTED: u8 = 3;
const NOT_FOUND: u8 = 4;
const DELIVERED: u8 = 5;
const BUFFERED: u8 = 6;
const UNKNOWN_KIND: u8 = 16;
const UNORDERED: u8 = 17;
const MALFORMED: u8 = 18;
const TOO_LARGE: u8 = 19;
const UNREADABLE: u8 = 20;
const QUEUE_NOT_ACCEPTED: u8 = 21;
const OTHER_QUEUE: u8 = 22;
const INVALID_ID: u8 = 23;
const DUPLICATE_JOB_ID: u8 = 24;
const WITHOUT_TIMEOUT: u8 = 25;
const SIGNAL_KEY_TAKEN: u8 = 26;
const FAILED: u8 = 27;

/// Encodes it.
pub(crate) fn encode(kept: &Kept) -> Bytes {
    let (code, text) = match &kept.record.outcome {
        InboxOutcome::Enqueue(EnqueueResult::New(id)) => (ENQUEUED, Some(id.as_str())),
        InboxOutcome::Enqueue(EnqueueResult::AlreadyEnqueued(id)) => (HELD, Some(id.as_str())),
        InboxOutcome::Cancel(CancelOutcome::Removed) => (REMOVED, None),
        InboxOutcome::Cancel(CancelOutcome::Requested) => (REQUESTED, None),
        InboxOutcome::Cancel(CancelOutcome::NotFound) => (NOT_FOUND, None),
        InboxOutcome::Signal(SignalDelivery::Delivered) => (DELIVERED, None),
        InboxOutcome::Signal(SignalDelivery::Buffered) => (BUFFERED, None),
        InboxOutcome::Rejected(rejection) => rejected(rejection),
    };
    let mut out = Vec::with_capacity(24 + text.map_or(0, str::len));
    out.push(super::record::VERSION);
    put_u64(&mut out, kept.since);
    put_u64(&mut out, kept.record.applied_at_ms);
    out.push(code);
    if let InboxOutcome::Rejected(Rejection::TooLarge { size }) = &kept.record.outcome {
        put_u64(&mut out, *size);
    }
    if let Some(text) = text {
        put_bytes(&mut out, text.as_bytes());
    }
    out.into()
}

fn rejected(rejection: &Rejection) -> (u8, Option<&str>) {
    match rejection {
        Rejection::UnknownKind => (UNKNOWN_KIND, None),
        Rejection::Unordered => (UNORDERED, None),
        Rejection::Malformed { detail } => (MALFORMED, Some(detail)),
        Rejection::TooLarge { .. } => (TOO_LARGE, None),
        Rejection::Unreadable { detail } => (UNREADABLE, Some(detail)),
        Rejection::QueueNotAccepted => (QUEUE_NOT_ACCEPTED, None),
        Rejection::OtherQueue { job_queue } => (OTHER_QUEUE, Some(job_queue)),
        Rejection::InvalidId { reason } => (INVALID_ID, Some(reason)),
        Rejection::DuplicateJobId => (DUPLICATE_JOB_ID, None),
        Rejection::SignalKeyWithoutTimeout => (WITHOUT_TIMEOUT, None),
        Rejection::SignalKeyTaken => (SIGNAL_KEY_TAKEN, None),
        Rejection::Failed { message } => (FAILED, Some(message)),
    }
}

/// Decodes it.
pub(crate) fn decode(value: Bytes) -> Result<Kept, Malformed> {
    let mut r = Reader::new(value);
    super::record::version(&mut r)?;
    let (since, applied_at_ms) = (r.u64()?, r.u64()?);
    let outcome = match r.u8()? {
        ENQUEUED => InboxOutcome::Enqueue(EnqueueResult::New(r.text()?)),
        HELD => InboxOutcome::Enqueue(EnqueueResult::AlreadyEnqueued(r.text()?)),
        REMOVED => InboxOutcome::Cancel(CancelOutcome::Removed),
        REQUESTED => InboxOutcome::Cancel(CancelOutcome::Requested),
        NOT_FOUND => InboxOutcome::Cancel(CancelOutcome::NotFound),
        DELIVERED => InboxOutcome::Signal(SignalDelivery::Delivered),
        BUFFERED => InboxOutcome::Signal(SignalDelivery::Buffered),
        code => InboxOutcome::Rejected(rejection(code, &mut r)?),
    };
    r.end()?;
    Ok(Kept { since, record: InboxRecord { applied_at_ms, outcome } })
}

fn rejection(code: u8, r: &mut Reader) -> Result<Rejection, Malformed> {
    Ok(match code {
        UNKNOWN_KIND => Rejection::UnknownKind,
        UNORDERED => Rejection::Unordered,
        MALFORMED => Rejection::Malformed { detail: r.text()? },
        TOO_LARGE => Rejection::TooLarge { size: r.u64()? },
        UNREADABLE => Rejection::Unreadable { detail: r.text()? },
        QUEUE_NOT_ACCEPTED => Rejection::QueueNotAccepted,
        OTHER_QUEUE => Rejection::OtherQueue { job_queue: r.text()? },
        INVALID_ID => Rejection::InvalidId { reason: r.text()? },
        DUPLICATE_JOB_ID => Rejection::DuplicateJobId,
        WITHOUT_TIMEOUT => Rejection::SignalKeyWithoutTimeout,
        SIGNAL_KEY_TAKEN => Rejection::SignalKeyTaken,
        FAILED => Rejection::Failed { message: r.text()? },
        _ => return Err("it has an unknown outcome"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_these_bytes_and_come_back() {
        let text = || "t".to_owned();
        let outcomes = [
            (InboxOutcome::Enqueue(EnqueueResult::New(text())), r"\x00\x01t"),
            (InboxOutcome::Enqueue(EnqueueResult::AlreadyEnqueued(text())), r"\x01\x01t"),
            (InboxOutcome::Cancel(CancelOutcome::Removed), r"\x02"),
            (InboxOutcome::Cancel(CancelOutcome::Requested), r"\x03"),
            (InboxOutcome::Cancel(CancelOutcome::NotFound), r"\x04"),
            (InboxOutcome::Signal(SignalDelivery::Delivered), r"\x05"),
            (InboxOutcome::Signal(SignalDelivery::Buffered), r"\x06"),
            (InboxOutcome::Rejected(Rejection::UnknownKind), r"\x10"),
            (InboxOutcome::Rejected(Rejection::Unordered), r"\x11"),
            (InboxOutcome::Rejected(Rejection::Malformed { detail: text() }), r"\x12\x01t"),
            (InboxOutcome::Rejected(Rejection::TooLarge { size: 300 }), r"\x13\xac\x02"),
            (InboxOutcome::Rejected(Rejection::Unreadable { detail: text() }), r"\x14\x01t"),
            (InboxOutcome::Rejected(Rejection::QueueNotAccepted), r"\x15"),
            (InboxOutcome::Rejected(Rejection::OtherQueue { job_queue: text() }), r"\x16\x01t"),
            (InboxOutcome::Rejected(Rejection::InvalidId { reason: text() }), r"\x17\x01t"),
            (InboxOutcome::Rejected(Rejection::DuplicateJobId), r"\x18"),
            (InboxOutcome::Rejected(Rejection::SignalKeyWithoutTimeout), r"\x19"),
            (InboxOutcome::Rejected(Rejection::SignalKeyTaken), r"\x1a"),
            (InboxOutcome::Rejected(Rejection::Failed { message: text() }), r"\x1b\x01t"),
        ];
        for (outcome, shown) in outcomes {
            let kept = Kept { since: 301, record: InboxRecord { applied_at_ms: 300, outcome } };
            let bytes = encode(&kept);
            assert_eq!(bytes.escape_ascii().to_string(), format!(r"\x01\xad\x02\xac\x02{shown}"));
            assert_eq!(decode(bytes.clone()), Ok(kept));
            for end in 0..bytes.len() {
                assert!(decode(bytes.slice(..end)).is_err(), "cut at {end}");
            }
        }
        assert!(decode(Bytes::from_static(&[1, 0, 0, 99])).is_err());
    }
}
