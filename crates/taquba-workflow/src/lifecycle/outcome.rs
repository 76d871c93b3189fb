//! What a step can come to: the runner's answer and its errors. Values only.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::error::Error;

/// When the next step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as a worker is free.
    Immediate,
    /// After this delay, counted from the settlement by the queue's clock, in milliseconds rounded up.
    After(Duration),
    /// When a signal of this key arrives, or after the timeout without one. A signal that came earlier and is still
    /// buffered is taken at once. One run at a time may wait for a key.
    OnSignal {
        /// The signal's key: at most 256 bytes, scoped to the runtime's queue.
        correlation_key: String,
        /// How long to wait, by the queue's clock; at least 1 ms.
        timeout: Duration,
    },
}

/// What a step returns when it did its work.
///
/// Whichever it is, the step's staged effects commit with it (unless the run was cancelled from outside meanwhile).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// The run goes on with another step.
    Continue {
        /// The next step's payload: at most 1 MiB. What is larger belongs in a memo, its key here.
        payload: Vec<u8>,
        /// When it runs.
        when: Trigger,
    },
    /// The run ends, its work done.
    Succeed {
        /// What [`RunOutcome::result`](crate::RunOutcome) carries. Up to 128 KiB it commits with the step; a larger
        /// one becomes an object of its own first.
        result: Vec<u8>,
    },
    /// The run ends, its work not done.
    Fail {
        /// Why; kept to 8 KiB.
        reason: String,
    },
    /// The run ends because it is no longer wanted.
    Cancel {
        /// Why; kept to 8 KiB.
        reason: String,
    },
}

impl StepOutcome {
    /// The next step runs as soon as a worker is free.
    #[must_use]
    pub fn continue_now(payload: Vec<u8>) -> Self {
        Self::Continue { payload, when: Trigger::Immediate }
    }

    /// The next step runs after `delay`.
    #[must_use]
    pub fn continue_after(payload: Vec<u8>, delay: Duration) -> Self {
        Self::Continue { payload, when: Trigger::After(delay) }
    }

    /// The next step runs when a signal of this key arrives, or after `timeout` without one. Nothing is held while it
    /// waits.
    #[must_use]
    pub fn continue_on_signal(
        payload: Vec<u8>,
        correlation_key: impl Into<String>,
        timeout: Duration,
    ) -> Self {
        let correlation_key = correlation_key.into();
        Self::Continue { payload, when: Trigger::OnSignal { correlation_key, timeout } }
    }
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepErrorKind {
    /// It may: the step is tried again with the queue's backoff, until it is out of attempts.
    Transient,
    /// It will not: the run ends as failed at once.
    Permanent,
}

/// A step's failure. Its staged effects are dropped.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{message}")]
pub struct StepError {
    /// What happened; kept to 8 KiB.
    pub message: String,
    /// Whether trying again may help.
    pub kind: StepErrorKind,
}

impl StepError {
    /// A failure that another attempt may get past.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: StepErrorKind::Transient }
    }

    /// A failure that no other attempt gets past.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: StepErrorKind::Permanent }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        if error.is_of_the_run() {
            Self::permanent(error.to_string())
        } else {
            Self::transient(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_class_on_its_way_into_a_step() {
        let sealed = StepError::from(Error::EffectsSealed);
        assert_eq!(sealed.kind, StepErrorKind::Permanent);
        let late = StepError::from(Error::Queue(taquba::Error::NotConfirmed {
            waited_ms: 9,
            cause: None,
        }));
        assert_eq!(late.kind, StepErrorKind::Transient);
        assert!(late.message.contains("9 ms"));
        // The process that owns the store now may get further: the run must not end for it.
        let fenced = Error::Queue(taquba::Error::Closed(taquba::CloseReason::Fenced));
        assert_eq!(StepError::from(fenced).kind, StepErrorKind::Transient);
    }

    #[test]
    fn constructors_say_what_their_names_say() {
        assert_eq!(
            StepOutcome::continue_now(vec![1]),
            StepOutcome::Continue { payload: vec![1], when: Trigger::Immediate }
        );
        let delay = Duration::from_secs(1);
        assert_eq!(
            StepOutcome::continue_after(vec![], delay),
            StepOutcome::Continue { payload: vec![], when: Trigger::After(delay) }
        );
        assert_eq!(
            StepOutcome::continue_on_signal(vec![], "k", delay),
            StepOutcome::Continue {
                payload: vec![],
                when: Trigger::OnSignal { correlation_key: "k".into(), timeout: delay }
            }
        );
    }
}
