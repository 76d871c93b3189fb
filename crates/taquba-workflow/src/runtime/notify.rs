//! One attempt at telling the hook of a run's end: the notification job, from its payload to its settlement.

use taquba::worker::Settlement;
use taquba::{Claim, SettlementEffects};

use super::Inner;
use super::effects::TerminalEffects;
use super::runner::TerminalHook;
use super::step::{dead_letter, nack};
use crate::lifecycle::outcome::StepErrorKind;
use crate::store::record::TerminalRecord;
use crate::store::results::{self, LoadedResult};

impl<R: Send + Sync, H: TerminalHook> Inner<R, H> {
    /// Runs the hook for a claimed notification and returns the job's settlement.
    pub(crate) async fn notify(&self, claim: &Claim) -> Settlement {
        let mut record = match TerminalRecord::decode(&claim.payload) {
            Ok(record) => record,
            Err(error) => return dead_letter(format!("notification of a run's end: {error}")),
        };
        let stored = record.result.take();
        let result = match results::load(&self.shared.memos, &record.run_id, stored).await {
            Ok(LoadedResult::Bytes(result)) => result,
            Ok(LoadedResult::Lost) => {
                let run_id = &record.run_id;
                return dead_letter(format!("the object with the result of run {run_id} is lost"));
            }
            Err(error) => return nack(&error),
        };
        let outcome = record.into_outcome(result);
        if !self.observes(&outcome) {
            return Settlement::Ack(SettlementEffects::default());
        }
        let effects = TerminalEffects::new(&self.shared.name);
        let open = effects.open_until_sealed();
        let answer = self.hook.on_termination(&outcome, &effects).await;
        let staged = open.seal();
        match answer {
            Ok(()) => Settlement::Ack(staged),
            Err(error) if error.kind == StepErrorKind::Permanent => dead_letter(error.message),
            Err(error) => {
                Settlement::Nack { error: error.message, effects: SettlementEffects::default() }
            }
        }
    }
}
