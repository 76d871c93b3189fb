//! The two records of a run and their codec: MessagePack maps with named fields, so that a field can be added without
//! a new format. Owns no key.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::lifecycle::outcome::StepErrorKind;
use crate::lifecycle::run::{RunOutcome, RunTermination, TerminalStatus};
use crate::lifecycle::settle::Ending;
use crate::run_id::RunId;

/// The one row of an active run, replaced by every settlement of a step. A cancel request is not here: the current
/// job itself carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunRow {
    /// SHA-256 of the run's input.
    #[serde(with = "serde_bytes")]
    pub(crate) input_hash: [u8; 32],
    pub(crate) submitted_at_ms: u64,
    pub(crate) step_number: u32,
    /// The job of the current step.
    pub(crate) job_id: String,
}

impl RunRow {
    /// The row of the same run at another step.
    pub(crate) fn at(&self, step_number: u32, job_id: String) -> Self {
        Self { step_number, job_id, ..*self }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        Ok(rmp_serde::to_vec_named(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(rmp_serde::from_slice(bytes)?)
    }

    /// The current job that an encoded row names.
    pub(crate) fn job_id_in(bytes: &[u8]) -> Option<String> {
        Self::decode(bytes).ok().map(|row| row.job_id)
    }
}

/// How a run ended, with what it produced. It is both the record under the run's outcome key and the payload of the
/// notification job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminalRecord {
    pub(crate) run_id: RunId,
    pub(crate) status: TerminalStatus,
    pub(crate) error: Option<String>,
    pub(crate) error_kind: Option<StepErrorKind>,
    pub(crate) final_step: u32,
    pub(crate) terminated_at_ms: u64,
    /// Sorted, so that equal ends have equal bytes.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) result: Option<StoredResult>,
}

/// Where a run's result is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredResult {
    /// Here.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// In an object.
    Object(ResultObject),
}

/// A result in an object of its own, and what its bytes must hash to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultObject {
    /// The job of the step that produced it. Together with the hash it names the object, so that neither a later run
    /// of the same id nor a slow attempt that lost its lease can change what a committed record names.
    pub(crate) job_id: String,
    #[serde(with = "serde_bytes")]
    pub(crate) sha256: [u8; 32],
    pub(crate) size: u64,
}

/// What a terminal record takes from the run, beside its ending.
#[derive(Debug, Clone)]
pub(crate) struct RunSite<'a> {
    pub(crate) run_id: &'a RunId,
    pub(crate) step_number: u32,
    pub(crate) headers: &'a HashMap<String, String>,
}

impl TerminalRecord {
    pub(crate) fn new(
        site: &RunSite<'_>,
        ending: &Ending,
        result: Option<StoredResult>,
        terminated_at_ms: u64,
    ) -> Self {
        Self {
            run_id: site.run_id.clone(),
            status: ending.status,
            error: ending.error.clone(),
            error_kind: ending.error_kind,
            final_step: site.step_number,
            terminated_at_ms,
            headers: site.headers.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            result,
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        Ok(rmp_serde::to_vec_named(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(rmp_serde::from_slice(bytes)?)
    }

    pub(crate) fn termination(&self) -> RunTermination {
        RunTermination {
            status: self.status,
            error: self.error.clone(),
            error_kind: self.error_kind,
            final_step: self.final_step,
            terminated_at_ms: self.terminated_at_ms,
        }
    }

    /// The outcome, its result's bytes given.
    pub(crate) fn into_outcome(self, result: Option<Vec<u8>>) -> RunOutcome {
        RunOutcome {
            run_id: self.run_id,
            status: self.status,
            result,
            error: self.error,
            headers: self.headers.into_iter().collect(),
            final_step: self.final_step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> RunRow {
        RunRow {
            input_hash: [7; 32],
            submitted_at_ms: 1_700_000_000_000,
            step_number: 3,
            job_id: "J1".into(),
        }
    }

    fn record(result: Option<StoredResult>) -> TerminalRecord {
        TerminalRecord {
            run_id: RunId::new("r1").unwrap(),
            status: TerminalStatus::Failed,
            error: Some("why".into()),
            error_kind: Some(StepErrorKind::Transient),
            final_step: 2,
            terminated_at_ms: 5,
            headers: BTreeMap::from([("b".into(), "2".into()), ("a".into(), "1".into())]),
            result,
        }
    }

    #[test]
    fn golden_run_row() {
        let mut want = b"\x84\xaainput_hash\xc4\x20".to_vec();
        want.extend([7; 32]);
        want.extend(b"\xafsubmitted_at_ms\xcf\x00\x00\x01\x8b\xcf\xe5\x68\x00");
        want.extend(b"\xabstep_number\x03\xa6job_id\xa2J1");
        assert_eq!(row().encode().unwrap(), want);
        assert_eq!(RunRow::decode(&want).unwrap(), row());
        assert_eq!(RunRow::job_id_in(&want).as_deref(), Some("J1"));
        assert_eq!(RunRow::job_id_in(b"\x81"), None);
    }

    #[test]
    fn golden_terminal_record() {
        let head = b"\x88\xa6run_id\xa2r1\xa6status\xa6failed\xa5error\xa3why\xaaerror_kind\xa9transient\
            \xaafinal_step\x02\xb0terminated_at_ms\x05\xa7headers\x82\xa1a\xa11\xa1b\xa12\xa6result";
        let object = ResultObject { job_id: "J1".into(), sha256: [9; 32], size: 300_000 };
        let mut as_object = b"\x81\xa6object\x83\xa6job_id\xa2J1\xa6sha256\xc4\x20".to_vec();
        as_object.extend([9; 32]);
        as_object.extend(b"\xa4size\xce\x00\x04\x93\xe0");
        for (result, tail) in [
            (None, b"\xc0".to_vec()),
            (Some(StoredResult::Inline(vec![1, 2])), b"\x81\xa6inline\xc4\x02\x01\x02".to_vec()),
            (Some(StoredResult::Object(object)), as_object),
        ] {
            let want = [head.to_vec(), tail].concat();
            let record = record(result);
            assert_eq!(record.encode().unwrap(), want);
            assert_eq!(TerminalRecord::decode(&want).unwrap(), record);
        }
    }

    #[test]
    fn a_row_of_a_later_version_with_more_fields_is_still_read() {
        let mut bytes = row().encode().unwrap();
        bytes[0] = 0x85;
        bytes.extend(b"\xa5newer\x01");
        assert_eq!(RunRow::decode(&bytes).unwrap(), row());
    }
}
