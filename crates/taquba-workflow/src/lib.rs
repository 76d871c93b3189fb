//! Durable workflows whose only infrastructure is an object-store bucket, on [`taquba`]'s queue.
//!
//! A run is a chain of steps. Each step is a job; when it settles, the run's next step, its KV effects and its place in
//! the run commit together, or not at all. A run can wait for a time or a signal for as long as it likes and holds
//! nothing meanwhile. Whatever process opens the store next goes on where the last one stopped.
//!
//! Write a [`StepRunner`], hand it to a [`WorkflowRuntime`], submit a [`RunSpec`]. The floors inside: `lifecycle`
//! decides (pure), `store` encodes, `runtime` acts; each names only those before it.
#![doc(test(attr(deny(deprecated))))]

mod error;
mod lifecycle;
mod names;
mod run_id;
mod runtime;
mod store;

pub use error::{Error, Result};
pub use lifecycle::outcome::{StepError, StepErrorKind, StepOutcome, Trigger};
pub use lifecycle::run::{
    RunEnd, RunOptions, RunOutcome, RunSpec, RunState, RunStatus, RunTermination, SignalOutcome,
    SubmitOutcome, TerminalStatus,
};
pub use names::{
    HEADER_RUN_ID, HEADER_SIGNAL_DELIVERED, HEADER_SIGNAL_WAIT, HEADER_STEP, HEADER_TERMINAL,
    MAX_RUN_ID_LEN, RESERVED_HEADER_PREFIX, RESERVED_KV_PREFIX,
};
pub use run_id::RunId;
pub use runtime::WorkflowRuntime;
pub use runtime::builder::WorkflowRuntimeBuilder;
pub use runtime::delivery::{Delivery, KvReadHandle, Step};
pub use runtime::effects::{EffectsHandle, TerminalEffects};
pub use runtime::run::RunnerHandle;
pub use runtime::runner::{NoopTerminalHook, StepRunner, TerminalHook};
pub use runtime::view::WorkflowView;
pub use store::memo::{Memo, MemoStore, MemoWork};

/// The README's programs, compiled and run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
