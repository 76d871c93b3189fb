//! What follows a step: from the runner's answer, a cancel request, the attempts left and a taken signal key to a plan.
//! Pure; the plan's keys and records are made by `store`.

use super::limits::{MAX_SIGNAL_KEY_LEN, MAX_STEP_PAYLOAD, clip};
use super::outcome::{StepError, StepErrorKind, StepOutcome, Trigger};
use super::run::TerminalStatus;

/// What the decision needs to know of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepFacts {
    pub(crate) step_number: u32,
    pub(crate) is_last_attempt: bool,
}

/// What follows a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The same step again, after the queue's backoff.
    Retry { error: String },
    /// Another step.
    Continue { payload: Vec<u8>, step_number: u32, when: Trigger },
    /// No further step.
    End(Ending),
}

/// Who ended the run; it decides how the step's job is settled and what becomes of its effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The step's own outcome: its job is acknowledged, its effects commit.
    Outcome,
    /// The step's failure: its job is dead-lettered, its effects are dropped.
    Failure,
    /// A cancel from outside: its job is acknowledged, its effects are dropped.
    Request,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) by: EndedBy,
    pub(crate) status: TerminalStatus,
    pub(crate) result: Option<Vec<u8>>,
    pub(crate) error: Option<String>,
    pub(crate) error_kind: Option<StepErrorKind>,
}

impl Ending {
    /// The end of a run whose step failed for good.
    pub(crate) fn failed(error: StepError) -> Self {
        Self {
            by: EndedBy::Failure,
            status: TerminalStatus::Failed,
            result: None,
            error: Some(clip(error.message)),
            error_kind: Some(error.kind),
        }
    }

    /// The end of a run that was cancelled from outside.
    pub(crate) fn cancelled() -> Self {
        Self {
            by: EndedBy::Request,
            status: TerminalStatus::Cancelled,
            result: None,
            error: None,
            error_kind: None,
        }
    }

    /// The end of a run whose step wants to wait for a key that another run waits for.
    pub(crate) fn key_taken(key: &str) -> Self {
        let message = format!(
            "a waiter is already registered for signal key {key:?}; one run at a time may wait for a key"
        );
        Self::failed(StepError::permanent(message))
    }

    /// The end of a run whose step the queue itself gave up: its process or its lease was lost at the last attempt.
    pub(crate) fn given_up(last_error: Option<String>, cancel_requested: bool) -> Self {
        if cancel_requested {
            return Self::cancelled();
        }
        let message = last_error.unwrap_or_else(|| "the step was given up without a reason".into());
        Self::failed(StepError::transient(message))
    }

    fn by_outcome(
        status: TerminalStatus,
        result: Option<Vec<u8>>,
        error: Option<String>,
        error_kind: Option<StepErrorKind>,
    ) -> Self {
        Self { by: EndedBy::Outcome, status, result, error: error.map(clip), error_kind }
    }
}

/// What follows a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The same step again, after the queue's backoff.
    Retry { error: String },
    /// No further step.
    End(Ending),
}

/// Decides what follows a failed attempt.
pub(crate) fn after_failure(error: StepError, step: StepFacts) -> AfterFailure {
    if error.kind == StepErrorKind::Permanent || step.is_last_attempt {
        AfterFailure::End(Ending::failed(error))
    } else {
        AfterFailure::Retry { error: clip(error.message) }
    }
}

/// Decides what follows a step, as far as its own answer goes.
pub(crate) fn plan(answer: Result<StepOutcome, StepError>, step: StepFacts) -> Plan {
    match answer {
        Ok(StepOutcome::Continue { payload, when }) => plan_next(payload, when, step),
        Ok(StepOutcome::Succeed { result }) => {
            Plan::End(Ending::by_outcome(TerminalStatus::Succeeded, Some(result), None, None))
        }
        Ok(StepOutcome::Fail { reason }) => Plan::End(Ending::by_outcome(
            TerminalStatus::Failed,
            None,
            Some(reason),
            Some(StepErrorKind::Permanent),
        )),
        Ok(StepOutcome::Cancel { reason }) => {
            Plan::End(Ending::by_outcome(TerminalStatus::Cancelled, None, Some(reason), None))
        }
        Err(error) => match after_failure(error, step) {
            AfterFailure::Retry { error } => Plan::Retry { error },
            AfterFailure::End(ending) => Plan::End(ending),
        },
    }
}

/// A next step, unless it is one that the queue would refuse: the run ends with a reason instead of being stuck.
fn plan_next(payload: Vec<u8>, when: Trigger, step: StepFacts) -> Plan {
    let refused = |message: String| Plan::End(Ending::failed(StepError::permanent(message)));
    if payload.len() > MAX_STEP_PAYLOAD {
        return refused(format!(
            "payload of the next step has {} bytes, over the cap of {MAX_STEP_PAYLOAD}; put it in a memo or an object",
            payload.len()
        ));
    }
    if let Trigger::OnSignal { correlation_key: key, .. } = &when
        && key.len() > MAX_SIGNAL_KEY_LEN
    {
        return refused(format!(
            "signal key has {} bytes, over the cap of {MAX_SIGNAL_KEY_LEN}",
            key.len()
        ));
    }
    match step.step_number.checked_add(1) {
        Some(step_number) => Plan::Continue { payload, step_number, when },
        None => refused("a run has at most 4,294,967,296 steps".into()),
    }
}

/// The end that a cancel from outside puts in place of the plan: it wins over every plan, but for a step that cancels
/// the run itself.
pub(crate) fn under_cancel(plan: &Plan) -> Option<Ending> {
    match plan {
        Plan::End(Ending { by: EndedBy::Outcome, status: TerminalStatus::Cancelled, .. }) => None,
        _ => Some(Ending::cancelled()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FIRST: StepFacts = StepFacts { step_number: 4, is_last_attempt: false };
    const LAST: StepFacts = StepFacts { step_number: 4, is_last_attempt: true };

    fn ended(plan: &Plan) -> (EndedBy, TerminalStatus, Option<StepErrorKind>) {
        match plan {
            Plan::End(ending) => (ending.by, ending.status, ending.error_kind),
            other => panic!("{other:?} is no end"),
        }
    }

    #[test]
    fn an_outcome_leads_to_its_plan() {
        assert_eq!(
            plan(Ok(StepOutcome::continue_now(vec![1])), FIRST),
            Plan::Continue { payload: vec![1], step_number: 5, when: Trigger::Immediate }
        );
        use StepErrorKind::{Permanent, Transient};
        use TerminalStatus::{Cancelled, Failed, Succeeded};
        let reason = || "why".to_owned();
        for (answer, step, want) in [
            (
                Ok(StepOutcome::Succeed { result: vec![] }),
                FIRST,
                (EndedBy::Outcome, Succeeded, None),
            ),
            (
                Ok(StepOutcome::Fail { reason: reason() }),
                FIRST,
                (EndedBy::Outcome, Failed, Some(Permanent)),
            ),
            (
                Ok(StepOutcome::Cancel { reason: reason() }),
                FIRST,
                (EndedBy::Outcome, Cancelled, None),
            ),
            (Err(StepError::permanent("why")), FIRST, (EndedBy::Failure, Failed, Some(Permanent))),
            (Err(StepError::transient("why")), LAST, (EndedBy::Failure, Failed, Some(Transient))),
        ] {
            let plan = plan(answer, step);
            assert_eq!(ended(&plan), want);
            let Plan::End(ending) = plan else { unreachable!() };
            let wants_reason = want.1 != Succeeded;
            assert_eq!(ending.error, wants_reason.then(reason));
            assert_eq!(ending.result, (!wants_reason).then(Vec::new));
        }
        assert_eq!(
            plan(Err(StepError::transient("why")), FIRST),
            Plan::Retry { error: "why".into() }
        );
    }

    #[test]
    fn a_cancel_from_outside_wins_over_everything_but_a_steps_own_cancel() {
        let cancelled = Some(Ending::cancelled());
        for answer in [
            Ok(StepOutcome::continue_now(vec![])),
            Ok(StepOutcome::Succeed { result: vec![] }),
            Ok(StepOutcome::Fail { reason: String::new() }),
            Err(StepError::transient("")),
            Err(StepError::permanent("")),
        ] {
            assert_eq!(under_cancel(&plan(answer.clone(), FIRST)), cancelled, "{answer:?}");
            assert_eq!(under_cancel(&plan(answer, LAST)), cancelled);
        }
        let own = plan(Ok(StepOutcome::Cancel { reason: "mine".into() }), FIRST);
        assert_eq!(under_cancel(&own), None);
        assert_eq!(Ending::cancelled().by, EndedBy::Request);
    }

    #[test]
    fn what_the_queue_would_refuse_ends_the_run_with_a_reason() {
        let big = StepOutcome::continue_now(vec![0; MAX_STEP_PAYLOAD + 1]);
        let timeout = Duration::from_secs(1);
        let long = StepOutcome::continue_on_signal(vec![], "k".repeat(257), timeout);
        let fits =
            StepOutcome::continue_on_signal(vec![0; MAX_STEP_PAYLOAD], "k".repeat(256), timeout);
        for outcome in [big, long] {
            assert_eq!(
                ended(&plan(Ok(outcome), FIRST)),
                (EndedBy::Failure, TerminalStatus::Failed, Some(StepErrorKind::Permanent))
            );
        }
        assert!(matches!(plan(Ok(fits), FIRST), Plan::Continue { step_number: 5, .. }));
        let end = StepFacts { step_number: u32::MAX, is_last_attempt: false };
        ended(&plan(Ok(StepOutcome::continue_now(vec![])), end));
    }

    #[test]
    fn a_step_that_the_queue_gave_up_fails_the_run_unless_it_was_cancelled() {
        let failed = Ending::given_up(Some("lease expired".into()), false);
        assert_eq!(failed.status, TerminalStatus::Failed);
        assert_eq!(failed.error.as_deref(), Some("lease expired"));
        assert_eq!(Ending::given_up(Some("lease expired".into()), true), Ending::cancelled());
        assert!(Ending::given_up(None, false).error.is_some());
    }

    #[test]
    fn long_reasons_are_cut() {
        let Plan::End(end) = plan(Ok(StepOutcome::Fail { reason: "x".repeat(10_000) }), FIRST)
        else {
            panic!("no end")
        };
        assert_eq!(end.error.unwrap().len(), 8_192);
    }
}
