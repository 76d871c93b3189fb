//! What a runner gets: the step, the attempt, and handles into the stores. Values and read access only.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use taquba::{LeaseHandle, QueueView};
use tokio_util::sync::CancellationToken;

use super::effects::EffectsHandle;
use crate::error::Result;
use crate::run_id::RunId;
use crate::store::memo::Memo;

/// One attempt at a step, with what the attempt may use.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The run.
    pub run_id: RunId,
    /// The headers that the run was submitted with.
    pub headers: HashMap<String, String>,
    /// The step's job; the same for every attempt.
    pub job_id: String,
    /// Which attempt this is, from 1.
    pub attempts: u32,
    /// How many attempts the step has.
    pub max_attempts: u32,
    /// Fires when the run is cancelled from outside, when the store is lost, and when the attempt has run too long.
    /// Cancelling it from here reaches nobody else.
    pub cancel_token: CancellationToken,
    /// The claim's lease. The runtime renews it while the step runs.
    pub lease: LeaseHandle,
    /// What this step has computed before, in any attempt.
    pub memo: Memo,
    /// What any step of this run has computed before.
    pub run_memo: Memo,
    /// Changes to commit with the step's settlement.
    pub effects: EffectsHandle,
    /// Reads of what is committed.
    pub kv: KvReadHandle,
}

impl Delivery {
    /// Attempt 1 of 3 of a run called `detached`, connected to nothing, for a runner's own tests.
    #[must_use]
    pub fn detached() -> Self {
        Self {
            run_id: RunId::detached(),
            headers: HashMap::new(),
            job_id: "detached".into(),
            attempts: 1,
            max_attempts: 3,
            cancel_token: CancellationToken::new(),
            lease: LeaseHandle::detached(),
            memo: Memo::detached(Some(0)),
            run_memo: Memo::detached(None),
            effects: EffectsHandle::detached(),
            kv: KvReadHandle::detached(),
        }
    }

    /// Tells whether a failure of this attempt ends the run.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempts >= self.max_attempts
    }
}

/// One step of a run, as one attempt sees it.
#[derive(Debug, Clone)]
pub struct Step {
    /// The attempt; also reached by dereferencing the step.
    pub delivery: Delivery,
    /// Which step of the run this is, from 0.
    pub step_number: u32,
    /// The run's input, or what the step before gave.
    pub payload: Vec<u8>,
    /// The signal that ended the wait before this step; `None` if it did not wait for one, or the wait timed out.
    /// The same for every attempt.
    pub signal: Option<Vec<u8>>,
}

impl Step {
    /// Step 0 of [`Delivery::detached`], for a runner's own tests.
    #[must_use]
    pub fn detached(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            delivery: Delivery::detached(),
            step_number: 0,
            payload: payload.into(),
            signal: None,
        }
    }
}

impl Deref for Step {
    type Target = Delivery;
    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}

impl DerefMut for Step {
    fn deref_mut(&mut self) -> &mut Delivery {
        &mut self.delivery
    }
}

/// Reads KV rows as they are committed; a step's own staged effects are not seen.
#[derive(Clone)]
pub struct KvReadHandle {
    view: Option<QueueView>,
}

impl fmt::Debug for KvReadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvReadHandle").field("detached", &self.view.is_none()).finish()
    }
}

impl KvReadHandle {
    pub(crate) fn new(view: QueueView) -> Self {
        Self { view: Some(view) }
    }

    /// A handle that finds nothing, for a runner's own tests.
    #[must_use]
    pub fn detached() -> Self {
        Self { view: None }
    }

    /// Returns a row's value; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue) when the store could not be read.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.view {
            Some(view) => Ok(view.kv_get(key).await?),
            None => Ok(None),
        }
    }
}
