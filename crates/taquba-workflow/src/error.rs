//! What can go wrong in a workflow call, said so that the caller knows what to do next. Owns no recovery.

use taquba::object_store;
use thiserror::Error as ThisError;

use crate::run_id::RunId;

/// Result of a workflow call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of a workflow call.
///
/// [`is_permanent`](Self::is_permanent) tells whether the same call can succeed later.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A job on the runtime's queue has no such header: it was not enqueued by a runtime. Enqueue other jobs elsewhere.
    #[error("job has no header {0:?}, so it is no step of a run")]
    MissingHeader(&'static str),
    /// A job's step header does not hold a step number.
    #[error("header {header:?} holds {value:?}, which is no step number")]
    InvalidStepHeader {
        /// The header.
        header: &'static str,
        /// What it holds.
        value: String,
    },
    /// Headers that begin with [`RESERVED_HEADER_PREFIX`](crate::RESERVED_HEADER_PREFIX) cannot be submitted.
    #[error("header {0:?} begins with \"workflow.\", which is reserved")]
    ReservedHeaderInSubmit(String),
    /// Effects cannot enqueue to the runtime's own queue; submit a run instead.
    #[error("queue {0:?} belongs to the runtime; submit a run instead of enqueuing to it")]
    ReservedQueue(String),
    /// A run id is not of the legal form.
    #[error("run id {run_id:?} {reason}")]
    InvalidRunId {
        /// The id.
        run_id: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A run with this id is active with another input. Choose another id, or wait for that run to end.
    #[error("run {0} is active with a different input")]
    InputMismatch(RunId),
    /// The run's record names a job that is not there, as after a step job was removed by hand. Cancel the run, or
    /// submit it again.
    #[error("run {0} names a step job that does not exist; cancel it or submit it again")]
    InconsistentRunState(RunId),
    /// KV keys that begin with [`RESERVED_KV_PREFIX`](crate::RESERVED_KV_PREFIX) cannot be written by effects.
    #[error("KV key {0:?} begins with \"workflow/\", which is reserved")]
    ReservedKvKey(String),
    /// One step both writes and deletes a KV key.
    #[error("one step both writes and deletes KV key {0:?}")]
    ConflictingKvEffect(String),
    /// The step has returned, so its effects take no more entries.
    #[error("effects are sealed: the step that owned them has returned")]
    EffectsSealed,
    /// A value could not be encoded.
    #[error("cannot encode: {0}")]
    Serialization(#[from] rmp_serde::encode::Error),
    /// A stored record could not be decoded.
    #[error("cannot decode: {0}")]
    Deserialization(#[from] rmp_serde::decode::Error),
    /// No run of this id is known to the runtime's queue.
    #[error("no run {0}")]
    RunNotFound(RunId),
    /// The queue failed; see its own kinds.
    #[error(transparent)]
    Queue(#[from] taquba::Error),
    /// The object store failed on a memo or a result; retry, it may pass.
    #[error("object store: {0}")]
    Store(#[from] object_store::Error),
}

impl Error {
    /// Tells whether the same call on the same handles is bound to fail again, whatever the stores do. So it is when the
    /// queue is closed, though another process may get further.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Queue(error) => error.is_permanent(),
            Self::Store(_) => false,
            _ => true,
        }
    }

    /// Whether it is the run, or the job, that is wrong: then no other attempt gets further, in no process. A store that
    /// failed or was closed is not the run's fault, whatever becomes of this handle.
    pub(crate) fn is_of_the_run(&self) -> bool {
        match self {
            Self::Queue(taquba::Error::Closed(_) | taquba::Error::Storage(_)) => false,
            other => other.is_permanent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_may_recover_and_everything_else_may_not() {
        let lost = object_store::Error::NotFound { path: "x".into(), source: "gone".into() };
        assert!(!Error::Store(lost).is_permanent());
        assert!(Error::Queue(taquba::Error::ClaimLost).is_permanent());
        assert!(
            !Error::Queue(taquba::Error::NotConfirmed { waited_ms: 1, cause: None }).is_permanent()
        );
        assert!(Error::EffectsSealed.is_permanent());
        assert!(Error::EffectsSealed.is_of_the_run());
        let closed = Error::Queue(taquba::Error::Closed(taquba::CloseReason::Fenced));
        assert!(closed.is_permanent());
        assert!(!closed.is_of_the_run());
        assert!(Error::RunNotFound(RunId::detached()).is_permanent());
    }
}
