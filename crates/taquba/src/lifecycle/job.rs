//! A job as the engine thinks of it: what never changes, what does, and the state that owns its own data.

use std::sync::Arc;

use bytes::Bytes;

use crate::name::QueueName;
use crate::retry::RetryPolicy;

/// A job's id.
pub(crate) type JobId = Arc<str>;

/// What never changes in a job's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) id: JobId,
    pub(crate) queue: QueueName,
    pub(crate) priority: u32,
    /// Given once, at enqueue; with the priority it is the job's place in line.
    pub(crate) order: u64,
    pub(crate) enqueued_at: u64,
    pub(crate) max_attempts: u32,
    /// The headers, encoded by the caller.
    pub(crate) headers: Bytes,
    pub(crate) payload: Payload,
    pub(crate) rules: Rules,
}

/// What is special about this one job; most have nothing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) max_run_ms: Option<u64>,
    /// No attempt starts at this time or later.
    pub(crate) expire_at: Option<u64>,
}

/// Where a payload's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    /// In the job's own row.
    Inline(Bytes),
    /// In a row of its own, written once, of this many bytes; `bytes` when they are at hand.
    Apart { size: u64, bytes: Option<Bytes> },
    /// In an object of its own, beside the store. Its bytes never come into the engine.
    Object(Object),
}

/// A payload's object: written once, before the job that names it, and deleted after the job's record is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) name: ObjectName,
    pub(crate) size: u64,
    /// CRC-32 of its bytes.
    pub(crate) crc: u32,
}

/// Names one upload. Nothing ever has the name of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    /// The queue store that it belongs to: drawn when that was created, so that stores that share a payload path keep
    /// their hands off each other's objects.
    pub(crate) store: u64,
    /// The opening that uploaded it. Only that opening's process can make a record name it.
    pub(crate) epoch: u64,
    /// The upload: milliseconds since the Unix epoch, then 80 random bits.
    pub(crate) upload: u128,
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}/{:016x}-{:032x}", self.store, self.epoch, self.upload)
    }
}

impl ObjectName {
    /// The name of an object in the folder of a store; `None` when none of ours looks so.
    pub(crate) fn parse(store: u64, file: &str) -> Option<Self> {
        let (epoch, upload) = file.split_once('-')?;
        let name = Self {
            store,
            epoch: u64::from_str_radix(epoch, 16).ok()?,
            upload: u128::from_str_radix(upload, 16).ok()?,
        };
        // Exactly as we write it: no sign, no capitals, no missing zeros.
        (file.len() == 49 && name.to_string().ends_with(file)).then_some(name)
    }
}

impl Payload {
    /// The bytes, if they are at hand.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Inline(bytes) => Some(bytes),
            Self::Apart { bytes, .. } => bytes.as_ref(),
            Self::Object(_) => None,
        }
    }

    /// The object that holds it, if one does.
    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            Self::Inline(_) | Self::Apart { .. } => None,
        }
    }
}

/// Where a job stands, with what only that state has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Scheduled { run_at: u64 },
    Claimed(Hold),
    Done { completed_at: u64 },
    Dead { failed_at: u64 },
}

/// What a claim adds to a job. The job's own row stays as it was: a claim writes only this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The claim's row; slots are reused, so that open finds all claims in a short scan. `None` while the claim is
    /// held back: a job that is done soon never has one, and a crash that takes the claim back leaves it pending.
    pub(crate) slot: Option<u32>,
    pub(crate) claimed_at: u64,
    pub(crate) cancel_requested: bool,
    pub(crate) progress: Option<Arc<Progress>>,
}

/// How far an attempt says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) percent: u8,
    pub(crate) at: u64,
    pub(crate) note: Arc<str>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) body: Arc<Body>,
    /// Attempts that have ended and were charged; a claimed job is in attempt `attempts + 1`.
    pub(crate) attempts: u32,
    /// The opening in which a claim of it was last known to be durable, or in which it was enqueued.
    pub(crate) epoch: u64,
    pub(crate) last_error: Option<Arc<str>>,
    /// Held while pending or scheduled, until the first claim.
    pub(crate) dedup: Option<Arc<str>>,
    /// Asked for in an earlier attempt; later claims start cancelled.
    pub(crate) cancel_requested: bool,
    /// The signal it waits for while scheduled.
    pub(crate) signal_key: Option<Arc<str>>,
    pub(crate) woken: Option<Woken>,
    /// What the worker left with its acknowledgement.
    pub(crate) result: Option<Bytes>,
    /// Entries that its history was ever given.
    pub(crate) history: u32,
    pub(crate) state: State,
}

/// How a wait ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Woken {
    pub(crate) at: u64,
    pub(crate) payload: Option<Bytes>,
}

/// A place in line: unique in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) priority: u32,
    pub(crate) order: u64,
}

impl Job {
    pub(crate) fn id(&self) -> &JobId {
        &self.body.id
    }

    pub(crate) fn queue(&self) -> &QueueName {
        &self.body.queue
    }

    pub(crate) fn place(&self) -> Place {
        Place { priority: self.body.priority, order: self.body.order }
    }

    /// The attempts as a caller counts them: the running one included.
    pub(crate) fn attempts_shown(&self) -> u32 {
        match self.state {
            State::Claimed(_) => self.attempts.saturating_add(1),
            _ => self.attempts,
        }
    }

    /// Whether it waits for its turn, and so still owns its dedup key.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Pending | State::Scheduled { .. })
    }

    /// The dedup key that it owns now.
    pub(crate) fn owned_dedup(&self) -> Option<&Arc<str>> {
        if self.is_waiting() { self.dedup.as_ref() } else { None }
    }

    /// The signal key that it waits for now.
    pub(crate) fn awaited_signal(&self) -> Option<&Arc<str>> {
        match self.state {
            State::Scheduled { .. } => self.signal_key.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn hold(&self) -> Option<&Hold> {
        match &self.state {
            State::Claimed(hold) => Some(hold),
            _ => None,
        }
    }

    /// When its wait for an attempt ends for good.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        if self.is_waiting() { self.body.rules.expire_at } else { None }
    }

    /// Whether it waits although its time is over.
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now_ms)
    }

    /// Whether a claim holds it that has no row yet.
    pub(crate) fn is_held_back(&self) -> bool {
        self.hold().is_some_and(|hold| hold.slot.is_none())
    }

    pub(crate) fn wants_cancel(&self) -> bool {
        self.cancel_requested || self.hold().is_some_and(|hold| hold.cancel_requested)
    }

    /// The job in another state, all else equal.
    pub(crate) fn with(&self, state: State) -> Self {
        Self { state, ..self.clone() }
    }

    /// Its state in a word, for errors.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Pending => "pending",
            State::Scheduled { .. } => "scheduled",
            State::Claimed(_) => "claimed",
            State::Done { .. } => "done",
            State::Dead { .. } => "dead",
        }
    }
}
