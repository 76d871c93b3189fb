//! Commands of a queue as values, and the answers to them: one vocabulary for the real queue and for the naive one.

use taquba::{
    CancelOutcome, EnqueueRequest, EnqueueResult, Error, JobRecord, NackOutcome, SettlementEffects,
    SignalDelivery, WakeOutcome,
};

/// One command. Claims are named by the number of their hand-over, from 0, over all openings.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Enqueue(EnqueueRequest),
    EnqueueWith(EnqueueRequest, SettlementEffects),
    Batch(String, Vec<Vec<u8>>),
    Commit(SettlementEffects),
    Claim {
        queue: String,
        max: usize,
        lease_ms: u64,
    },
    ClaimById(String, u64),
    Pause(String, bool),
    /// A claim whose future is dropped after its first poll and so many yields.
    DroppedClaim(String, usize),
    Ack(usize, SettlementEffects),
    Nack(usize, String, SettlementEffects),
    DeadLetter(usize, String, SettlementEffects),
    Renew(usize, u64),
    Cancel(String, SettlementEffects),
    Wake(String, Option<Vec<u8>>),
    Signal(String, String, Vec<u8>),
    ClearSignal(String, String),
    Requeue(String),
    KvPut(Vec<u8>, Vec<u8>),
    KvDelete(Vec<u8>),
    ComparePut(Vec<u8>, Option<Vec<u8>>, Vec<u8>),
    CompareDelete(Vec<u8>, Vec<u8>),
    CompareCommit(Vec<u8>, Option<Vec<u8>>, SettlementEffects),
    /// Time passes, then timers and leases are looked at.
    Advance(u64),
}

/// What a command answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Unit,
    Results(Vec<EnqueueResult>),
    Claims(Vec<(JobRecord, bool)>),
    NotClaimed(&'static str),
    Nacked(NackOutcome),
    Cancelled(CancelOutcome, Vec<EnqueueResult>),
    Woken(WakeOutcome),
    Signalled(SignalDelivery),
    Did(bool),
    Compared(Option<Vec<EnqueueResult>>),
    Until(u64),
    /// Refused, and nothing changed.
    Refused(String),
}

impl Answer {
    /// The ids of new jobs in it, in order.
    pub(crate) fn new_ids(&self) -> Vec<String> {
        let results = match self {
            Self::Results(results)
            | Self::Cancelled(_, results)
            | Self::Compared(Some(results))
            | Self::Nacked(NackOutcome::DeadLettered(results)) => results.as_slice(),
            _ => &[],
        };
        let new = |result: &EnqueueResult| match result {
            EnqueueResult::New(id) => Some(id.clone()),
            EnqueueResult::AlreadyEnqueued(_) => None,
        };
        results.iter().filter_map(new).collect()
    }
}

/// A refusal in a word or two; `None` for errors that are no refusals but news of the store.
pub(crate) fn refusal(error: &Error) -> Option<String> {
    let kind = match error {
        Error::ClaimLost => "claim lost",
        Error::CancelRequested => "cancel requested",
        Error::JobNotFound(_) => "job not found",
        Error::InvalidState { state, .. } => return Some(format!("invalid state {state}")),
        Error::DuplicateJobId { .. } => "duplicate id",
        Error::InvalidId { .. } => "invalid id",
        Error::SignalKeyTaken { .. } => "signal key taken",
        Error::SignalKeyWithoutTimeout { .. } => "signal key without timeout",
        Error::KvValueTooLarge { .. } => "value too large",
        Error::ConflictingKvEffect { .. } => "conflicting effect",
        Error::TooLarge { .. } => "too large",
        _ => return None,
    };
    Some(kind.to_owned())
}
