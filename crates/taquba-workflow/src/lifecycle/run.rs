//! What callers see of a run: how it is asked for, where it stands, how it ended. Shapes only.

use std::collections::HashMap;
use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use taquba::SettlementEffects;

use super::outcome::StepErrorKind;
use crate::run_id::RunId;

/// How every step of a run is enqueued. Unset fields fall back to the queue's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Free text pairs that every step and the terminal hook see. At most 8 KiB each and 60 KiB in all; names that
    /// begin with [`RESERVED_HEADER_PREFIX`](crate::RESERVED_HEADER_PREFIX) are refused.
    pub headers: HashMap<String, String>,
    /// Lower is claimed earlier.
    pub priority: Option<u32>,
    /// Attempts that each step (and the notification of the end) has.
    pub max_attempts_per_step: Option<u32>,
    /// The first step runs no earlier than this. A time that is past means at once.
    pub run_at: Option<SystemTime>,
}

/// A run to submit.
#[derive(Debug, Clone, Default)]
pub struct RunSpec {
    /// Its id; `None` generates one that sorts by submission.
    pub run_id: Option<RunId>,
    /// The payload of step 0: at most 1 MiB.
    pub input: Vec<u8>,
    /// How its steps are enqueued.
    pub options: RunOptions,
    /// Changes that commit with the submission; dropped when the run is already active.
    pub effects: SettlementEffects,
}

/// What a submission led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitOutcome {
    /// The run's id.
    pub run_id: RunId,
    /// Whether this call started the run; false when it was active with the same input.
    pub newly_submitted: bool,
    /// The job of the run's current step.
    pub job_id: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TerminalStatus {
    /// A step returned [`StepOutcome::Succeed`](crate::StepOutcome::Succeed).
    Succeeded,
    /// A step returned [`StepOutcome::Fail`](crate::StepOutcome::Fail), failed permanently, or ran out of attempts.
    Failed,
    /// A step returned [`StepOutcome::Cancel`](crate::StepOutcome::Cancel), or the run was cancelled from outside.
    Cancelled,
}

impl TerminalStatus {
    /// Returns the status in lower case.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for TerminalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of a run, without what it produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTermination {
    /// How it ended.
    pub status: TerminalStatus,
    /// Why it failed, or the reason of a step that cancelled it; `None` for success and for a cancel from outside.
    pub error: Option<String>,
    /// What kind of failure it was; only when failed.
    pub error_kind: Option<StepErrorKind>,
    /// The step that was current at the end.
    pub final_step: u32,
    /// When it ended, by the runtime's clock, in milliseconds since the Unix epoch.
    pub terminated_at_ms: u64,
}

/// The end of a run with what it produced: what the terminal hook gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: TerminalStatus,
    /// What it produced; only when succeeded.
    pub result: Option<Vec<u8>>,
    /// Why it failed, or the reason of a step that cancelled it; `None` for success and for a cancel from outside.
    pub error: Option<String>,
    /// The headers it was submitted with.
    pub headers: HashMap<String, String>,
    /// The step that was current at the end.
    pub final_step: u32,
}

/// What [`WorkflowRuntime::wait`](crate::WorkflowRuntime::wait) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// How the run ended.
    pub termination: RunTermination,
    /// The same with what the run produced; `None` when its result was an object that has since been removed.
    pub outcome: Option<RunOutcome>,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// Its current step waits: for a worker, a time or a signal.
    Pending,
    /// A worker runs its current step.
    Running,
    /// It was cancelled while its step ran, and ends when the step settles.
    Cancelling,
    /// It has ended.
    Terminated(RunTermination),
}

/// A run as seen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStatus {
    /// The run.
    pub run_id: RunId,
    /// Where it stands.
    pub state: RunState,
    /// The step it is at, or was at when it ended.
    pub current_step: u32,
}

/// What a signal led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalOutcome {
    /// A waiting run took it, and its next step is ready.
    Delivered,
    /// No run waits for the key; the next one that does takes it at once.
    Buffered,
}
