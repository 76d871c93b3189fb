//! Which job of the queue is what: a step of a run, a notification of a run's end, or neither. Reads headers only.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::names::{HEADER_RUN_ID, HEADER_STEP, HEADER_TERMINAL, is_reserved_header};
use crate::run_id::RunId;

/// What a job is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Step(StepAddress),
    Notification,
}

/// The step that a job stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepAddress {
    pub(crate) run_id: RunId,
    pub(crate) step_number: u32,
}

impl Role {
    /// Reads what a job is.
    pub(crate) fn of(headers: &HashMap<String, String>) -> Result<Self> {
        if headers.contains_key(HEADER_TERMINAL) {
            return Ok(Self::Notification);
        }
        let run_id = headers.get(HEADER_RUN_ID).ok_or(Error::MissingHeader(HEADER_RUN_ID))?;
        let step = headers.get(HEADER_STEP).ok_or(Error::MissingHeader(HEADER_STEP))?;
        let run_id = RunId::new(run_id.clone())?;
        let step_number = step
            .parse()
            .map_err(|_| Error::InvalidStepHeader { header: HEADER_STEP, value: step.clone() })?;
        Ok(Self::Step(StepAddress { run_id, step_number }))
    }
}

/// Returns the headers that the caller of `submit` gave.
pub(crate) fn caller_headers(headers: &HashMap<String, String>) -> HashMap<String, String> {
    headers
        .iter()
        .filter(|(name, _)| !is_reserved_header(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_job_is_what_its_headers_say() {
        let step = headers(&[(HEADER_RUN_ID, "r"), (HEADER_STEP, "7"), ("mine", "x")]);
        let address = StepAddress { run_id: RunId::new("r").unwrap(), step_number: 7 };
        assert_eq!(Role::of(&step).unwrap(), Role::Step(address));
        let end = headers(&[(HEADER_RUN_ID, "r"), (HEADER_TERMINAL, "failed")]);
        assert_eq!(Role::of(&end).unwrap(), Role::Notification);
        assert_eq!(caller_headers(&step), headers(&[("mine", "x")]));
    }

    #[test]
    fn a_job_without_valid_headers_is_refused_with_the_header_named() {
        for (pairs, says) in [
            (&[][..], "workflow.run_id"),
            (&[(HEADER_RUN_ID, "r")][..], "workflow.step"),
            (&[(HEADER_RUN_ID, "r"), (HEADER_STEP, "one")][..], "\"one\""),
            (&[(HEADER_RUN_ID, "r"), (HEADER_STEP, "-1")][..], "\"-1\""),
            (&[(HEADER_RUN_ID, "a/b"), (HEADER_STEP, "0")][..], "\"a/b\""),
        ] {
            let error = Role::of(&headers(pairs)).unwrap_err();
            assert!(error.is_permanent());
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
