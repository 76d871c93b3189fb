//! From new jobs and facts to moves: all of a command's jobs come in, or none. Numbers are drawn here, and the jobs of
//! one command see each other.

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use super::found::Found;
use super::offload::Upload;
use super::request::{KvChanges, Prepared};
use super::round::Round;
use crate::error::{Error, Result};
use crate::expiry::ExpiryIndex;
use crate::lifecycle::Move;
use crate::lifecycle::admit::{AdmitFacts, Admitted, NewJob, Refusal, admit};
use crate::lifecycle::job::JobId;
use crate::name::QueueName;
use crate::record::EnqueueResult;
use crate::state::ids;
use crate::store::keys;

/// What a command's effects lead to, before any of it is applied.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) moves: Vec<Move>,
    pub(crate) kv: KvChanges,
    pub(crate) expiry: Vec<(ExpiryIndex, u64)>,
    pub(crate) results: Vec<EnqueueResult>,
    pub(crate) uploads: Vec<Upload>,
}

/// What the earlier jobs of the same command hold already.
#[derive(Default)]
struct Earlier {
    dedup: HashMap<(QueueName, Arc<str>), JobId>,
    ids: Vec<JobId>,
    signals: Vec<(QueueName, Arc<str>)>,
}

impl Engine {
    /// Plans effects. With `lead`, a first job that is a duplicate voids the rest.
    pub(crate) fn plan(
        &mut self,
        what: Prepared,
        found: &Found,
        lead: bool,
        round: &Round,
    ) -> Result<Plan> {
        let mut plan =
            Plan { kv: what.kv, expiry: what.expiry, uploads: what.uploads, ..Plan::default() };
        let mut earlier = Earlier::default();
        for (index, new) in what.jobs.iter().enumerate() {
            let result = self.plan_job(new, found, &mut earlier, &mut plan, round)?;
            let duplicate = matches!(result, EnqueueResult::AlreadyEnqueued(_));
            plan.results.push(result);
            if lead && index == 0 && duplicate {
                plan.kv.clear();
                plan.expiry.clear();
                break;
            }
        }
        Ok(plan)
    }

    fn plan_job(
        &mut self,
        new: &NewJob,
        found: &Found,
        earlier: &mut Earlier,
        plan: &mut Plan,
        round: &Round,
    ) -> Result<EnqueueResult> {
        let facts = admit_facts(new, found, earlier)?;
        let id = match &new.id {
            Some(id) => Arc::clone(id),
            None => ids::text(self.shared.ids.next(round.stamp.now_ms)).into(),
        };
        match admit(new, &facts, Arc::clone(&id), self.mark.order + 1, round.stamp) {
            Ok(Admitted { job, used_signal }) => {
                self.mark.order += 1;
                if let (Some(key), true) = (&new.signal_key, used_signal) {
                    plan.kv.push((keys::signal(&new.queue, key), None));
                }
                if let Some(key) = job.owned_dedup() {
                    earlier.dedup.insert((new.queue.clone(), Arc::clone(key)), Arc::clone(&id));
                }
                if let Some(key) = &new.signal_key {
                    earlier.signals.push((new.queue.clone(), Arc::clone(key)));
                }
                earlier.ids.extend(new.id.clone());
                plan.moves.push(Move::born(job));
                Ok(EnqueueResult::New(id.as_ref().to_owned()))
            }
            Err(Refusal::Duplicate(holder)) => {
                Ok(EnqueueResult::AlreadyEnqueued(holder.as_ref().to_owned()))
            }
            Err(refusal) => Err(refused(refusal, new, &id)),
        }
    }
}

fn refused(refusal: Refusal, new: &NewJob, id: &JobId) -> Error {
    let signal_key = || new.signal_key.as_deref().unwrap_or_default().to_owned();
    match refusal {
        Refusal::SignalKeyTaken => Error::SignalKeyTaken { key: signal_key() },
        Refusal::SignalWithoutTimeout => Error::SignalKeyWithoutTimeout { key: signal_key() },
        Refusal::IdTaken | Refusal::Duplicate(_) => {
            Error::DuplicateJobId { id: id.as_ref().to_owned() }
        }
    }
}

fn admit_facts(new: &NewJob, found: &Found, earlier: &Earlier) -> Result<AdmitFacts> {
    let not_read = |what, key: &str| Error::NotRead { what, key: key.to_owned() };
    let mut facts = AdmitFacts::default();
    if let Some(key) = &new.dedup {
        let at = (new.queue.clone(), Arc::clone(key));
        let stored = found.dedup.get(&at).ok_or_else(|| not_read("dedup key", key))?;
        facts.dedup_holder = earlier.dedup.get(&at).or(stored.as_ref()).cloned();
    }
    if let Some(id) = &new.id {
        let stored = match (found.jobs.get(id), new.id_issued) {
            (Some(job), _) => job.is_some(),
            (None, true) => false,
            (None, false) => return Err(not_read("job id", id)),
        };
        facts.id_taken = stored || earlier.ids.contains(id);
    }
    if let Some(key) = &new.signal_key {
        let at = (new.queue.clone(), Arc::clone(key));
        let stored = found.signals.get(&at).ok_or_else(|| not_read("signal key", key))?;
        facts.signal_waiter = stored.waiter.as_deref().map(Arc::from);
        facts.signal_buffered = stored.buffered.clone();
        if earlier.signals.contains(&at) {
            facts.signal_waiter = Some("an earlier job of the same command".into());
        }
    }
    Ok(facts)
}
