//! The two things that a user of this crate writes: the runner of steps and the hook at a run's end. Traits only.

use std::future::Future;

use super::delivery::Step;
use super::effects::TerminalEffects;
use crate::lifecycle::outcome::{StepError, StepOutcome};
use crate::lifecycle::run::RunOutcome;

/// Runs the steps of a runtime's runs.
///
/// A step runs at least once. It may run again after a crash, after a lost lease and after an error, so whatever it
/// does outside of its [`effects`](crate::Delivery::effects) must be idempotent per run and step number.
pub trait StepRunner: Send + Sync {
    /// Does one step's work and says how the run goes on. Nothing that it returns counts until its settlement has
    /// committed. A panic is a failed attempt.
    ///
    /// # Errors
    /// [`StepError::transient`] to try again, [`StepError::permanent`] to end the run as failed.
    fn run_step(&self, step: &Step) -> impl Future<Output = Result<StepOutcome, StepError>> + Send;
}

/// Is told of the end of runs.
pub trait TerminalHook: Send + Sync {
    /// Learns of a run's end. It runs as a job of the runtime's queue that was enqueued with the end itself: at least
    /// once, with the priority and the attempts of the run's last step, and only for ends that have committed.
    ///
    /// # Errors
    /// [`StepError::transient`] to be told again after the queue's backoff; [`StepError::permanent`] to give up, which
    /// leaves the notification as a dead job.
    fn on_termination(
        &self,
        outcome: &RunOutcome,
        effects: &TerminalEffects,
    ) -> impl Future<Output = Result<(), StepError>> + Send;

    /// Tells whether the hook wants to know of this end. If not, no notification is enqueued. Must answer at once and
    /// from the outcome alone: it is asked before a settlement commits, also about the cancel that the settlement may
    /// meet, and again before the hook runs.
    fn observes(&self, _outcome: &RunOutcome) -> bool {
        true
    }
}

/// The hook of a runtime whose callers wait for their runs, or do not care.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopTerminalHook;

impl TerminalHook for NoopTerminalHook {
    async fn on_termination(
        &self,
        _outcome: &RunOutcome,
        _effects: &TerminalEffects,
    ) -> Result<(), StepError> {
        Ok(())
    }

    fn observes(&self, _outcome: &RunOutcome) -> bool {
        false
    }
}
