//! Cold facts: what a command must know from the store, which keys that reserves, and the read itself.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::request::{Op, Prepared};
use super::retention::Sweep;
use crate::decide::{IdInValue, SignalFacts};
use crate::error::Result;
use crate::filter::BulkAction;
use crate::lifecycle::admit::NewJob;
use crate::lifecycle::job::{Job, JobId};
use crate::lifecycle::term::Kind;
use crate::name::QueueName;
use crate::state::reserve::Key;
use crate::store::db::Store;
use crate::store::inbox::Kept;
use crate::store::quarantine::{self, Aside};
use crate::store::snapshot::Snapshot;
use crate::store::wire::Malformed;
use crate::store::{find, inbox, keys, record};

/// One read.
#[derive(Debug, Clone)]
pub(crate) enum Read {
    Dedup(QueueName, Arc<str>),
    Job(JobId),
    /// A job without its payload.
    Record(JobId),
    /// A row that was put aside, and the job of its id that there may be by now.
    Aside(Bytes),
    /// A job whose id a caller's row names.
    JobInKv(Vec<u8>, IdInValue),
    Kv(Vec<u8>),
    Signal(QueueName, Arc<str>),
    /// What is remembered of an inbox entry.
    Entry(QueueName, Arc<str>),
}

impl Read {
    /// What it reserves.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Dedup(queue, key) => Key::dedup(queue, key),
            Self::Job(id) | Self::Record(id) => Key::job(id),
            Self::JobInKv(key, _) | Self::Kv(key) => Key::kv(key),
            Self::Aside(key) => Key::aside(key),
            Self::Signal(queue, key) => Key::signal(queue, key),
            Self::Entry(queue, id) => Key::entry(queue, id),
        }
    }
}

/// What was read, all of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) dedup: HashMap<(QueueName, Arc<str>), Option<JobId>>,
    /// Jobs as stored: a claimed one looks pending, the engine knows better.
    pub(crate) jobs: HashMap<JobId, Option<Arc<Job>>>,
    pub(crate) kv: HashMap<Vec<u8>, Option<Bytes>>,
    pub(crate) signals: HashMap<(QueueName, Arc<str>), SignalFacts>,
    /// The job that waits for a signal key, by the key.
    pub(crate) waiters: HashMap<(QueueName, Arc<str>), Arc<Job>>,
    /// A row that was put aside, and the job that it is if it can be decoded now.
    pub(crate) aside: Option<Box<(Aside, std::result::Result<Job, Malformed>)>>,
    /// What is remembered of inbox entries.
    pub(crate) entries: HashMap<(QueueName, Arc<str>), Kept>,
    /// Keys that the facts turned out to depend on.
    pub(crate) also: Vec<Key>,
}

impl Found {
    /// The facts once a waiting job is gone: its id, its dedup key and its signal key are free.
    pub(crate) fn without(&self, id: &JobId) -> Self {
        let mut rest = self.clone();
        rest.forget(id);
        rest
    }

    /// The same, in place.
    pub(super) fn forget(&mut self, id: &JobId) {
        self.jobs.entry(Arc::clone(id)).and_modify(|job| *job = None);
        for holder in self.dedup.values_mut() {
            holder.take_if(|holder| holder == id);
        }
        for facts in self.signals.values_mut() {
            facts.waiter.take_if(|waiter| *waiter == **id);
        }
        self.waiters.retain(|_, job| job.id() != id);
    }
}

impl Op {
    /// What the command must read first. Empty on the hot path.
    pub(crate) fn reads(&self, release: impl Fn(u64) -> Option<Read>) -> Vec<Read> {
        match self {
            Self::Enqueue { what, .. } => job_reads(&what.jobs),
            Self::Settle { effects, .. } => job_reads(&effects.jobs),
            Self::Cancel { id, effects, .. } => {
                let mut reads = job_reads(&effects.jobs);
                reads.push(Read::Job(Arc::clone(id)));
                reads
            }
            Self::Wake { id, .. }
            | Self::Requeue { id, .. }
            | Self::Watch { id, .. }
            | Self::ClaimById { id, .. } => {
                vec![Read::Job(Arc::clone(id))]
            }
            Self::Pause { .. } => Vec::new(),
            Self::Signal { queue, key, .. } | Self::ClearSignal { queue, key, .. } => {
                vec![Read::Signal(queue.clone(), Arc::clone(key))]
            }
            Self::Compare { compares, effects, .. } => {
                let mut reads = job_reads(&effects.jobs);
                reads.extend(compares.iter().map(|(key, _)| Read::Kv(caller_key(key))));
                reads
            }
            Self::Decide { reads, .. } => decide_reads(reads),
            Self::Aside { key, .. } => vec![Read::Aside(key.clone())],
            // A waiting or dead job brought back needs its payload in memory.
            Self::Each { ids, action: BulkAction::Requeue, .. } => {
                ids.iter().cloned().map(Read::Job).collect()
            }
            Self::Each { ids, .. } => ids.iter().cloned().map(Read::Record).collect(),
            Self::Inbox { queue, arrivals, .. } => {
                arrivals.iter().flat_map(|arrival| arrival.reads(queue)).collect()
            }
            Self::Sweep(Sweep { shelf: (queue, Kind::Entry), ids, .. }) => {
                ids.iter().map(|id| Read::Entry(queue.clone(), Arc::clone(id))).collect()
            }
            Self::Sweep(sweep) => sweep.ids.iter().cloned().map(Read::Record).collect(),
            Self::Release { claim } => release(*claim).into_iter().collect(),
        }
    }

    /// What the command touches without reading it.
    pub(crate) fn touches(&self, job_of: impl Fn(u64) -> Option<JobId>) -> Vec<Key> {
        let mut touched = Vec::new();
        match self {
            Self::Enqueue { what, .. } => touch_kv(what, &mut touched),
            Self::Settle { claim, effects, .. } => {
                touch_kv(effects, &mut touched);
                touched.extend(job_of(*claim).map(|id| Key::job(&id)));
            }
            Self::Cancel { effects, .. } | Self::Compare { effects, .. } => {
                touch_kv(effects, &mut touched);
            }
            Self::Decide { claim, .. } => {
                touched.extend(claim.and_then(job_of).map(|id| Key::job(&id)));
            }
            Self::Inbox { queue, .. } => touched.push(Key::inbox(queue)),
            Self::Release { claim } => touched.extend(job_of(*claim).map(|id| Key::job(&id))),
            _ => {}
        }
        touched
    }
}

fn touch_kv(what: &Prepared, touched: &mut Vec<Key>) {
    touched.extend(what.kv.iter().map(|(key, _)| Key::kv(&caller_key(key))));
}

/// A caller's key, from its stored form.
fn caller_key(stored: &Bytes) -> Vec<u8> {
    stored.get(1..).unwrap_or_default().to_vec()
}

pub(super) fn job_reads(jobs: &[NewJob]) -> Vec<Read> {
    let mut reads = Vec::new();
    for job in jobs {
        if let Some(key) = &job.dedup {
            reads.push(Read::Dedup(job.queue.clone(), Arc::clone(key)));
        }
        if let Some(key) = &job.signal_key {
            reads.push(Read::Signal(job.queue.clone(), Arc::clone(key)));
        }
        if let Some(id) = job.id.as_ref().filter(|_| !job.id_issued) {
            reads.push(Read::Job(Arc::clone(id)));
        }
    }
    reads
}

fn decide_reads(reads: &crate::decide::Reads) -> Vec<Read> {
    let queue = |name: &String| QueueName::new(name.clone()).ok();
    let mut all: Vec<Read> = reads.kv.iter().cloned().map(Read::Kv).collect();
    all.extend(reads.jobs.iter().chain(&reads.new_ids).map(|id| Read::Job(id.as_str().into())));
    all.extend(reads.jobs_in_kv.iter().map(|(key, id)| Read::JobInKv(key.clone(), *id)));
    for (name, key) in &reads.signals {
        all.extend(queue(name).map(|name| Read::Signal(name, key.as_str().into())));
    }
    for (name, key) in &reads.dedup_keys {
        all.extend(queue(name).map(|name| Read::Dedup(name, key.as_str().into())));
    }
    all
}

/// Reads everything at one moment.
pub(crate) async fn load(store: &Store, reads: &[Read]) -> Result<Found> {
    let at = store.snapshot()?;
    let mut found = Found::default();
    for read in reads {
        load_one(&at, read, &mut found).await?;
    }
    Ok(found)
}

async fn load_one(at: &Snapshot, read: &Read, found: &mut Found) -> Result<()> {
    match read {
        Read::Dedup(queue, key) => {
            let holder = dedup_holder(at, queue, key).await?;
            found.dedup.insert((queue.clone(), Arc::clone(key)), holder);
        }
        Read::Job(id) => {
            let job = load_job(at, id).await?;
            found.jobs.insert(Arc::clone(id), job);
        }
        Read::Record(id) => {
            let job = find::record(at, id).await?.map(Arc::new);
            found.jobs.insert(Arc::clone(id), job);
        }
        Read::Aside(key) => {
            let Some(aside) = quarantine::get(at, key).await? else { return Ok(()) };
            let mut job = record::decode_job(aside.value.clone());
            if let Ok(bare) = job {
                job = Ok(find::with_payload(at, bare).await?);
            }
            if let Ok(job) = &job {
                found.also.push(Key::job(job.id()));
                found.jobs.insert(job.id().clone(), load_job(at, job.id()).await?);
                if let Some(dedup) = &job.dedup {
                    found.also.push(Key::dedup(job.queue(), dedup));
                    let holder = dedup_holder(at, job.queue(), dedup).await?;
                    found.dedup.insert((job.queue().clone(), Arc::clone(dedup)), holder);
                }
            }
            found.aside = Some(Box::new((aside, job)));
        }
        Read::Kv(key) => {
            let value = at.get(&keys::kv(key)).await?;
            found.kv.insert(key.clone(), value);
        }
        Read::JobInKv(key, id_in) => {
            let value = at.get(&keys::kv(key)).await?;
            if let Some(id) = value.as_ref().and_then(|value| id_in(value)) {
                let id: JobId = id.into();
                found.also.push(Key::job(&id));
                let job = load_job(at, &id).await?;
                found.jobs.insert(id, job);
            }
            found.kv.insert(key.clone(), value);
        }
        Read::Entry(queue, id) => {
            if let Some(kept) = load_entry(at, queue, id).await? {
                found.entries.insert((queue.clone(), Arc::clone(id)), kept);
            }
        }
        Read::Signal(queue, key) => {
            let waiter = at.get(&keys::wait(queue, key)).await?.and_then(|id| job_id(&id));
            let at_key = (queue.clone(), Arc::clone(key));
            let job = match &waiter {
                Some(id) => load_job(at, id).await?,
                None => None,
            };
            // A row whose job is gone (its record was put aside) waits for nothing.
            let waiter = waiter.filter(|_| job.is_some());
            found.waiters.extend(job.map(|job| (at_key.clone(), job)));
            let buffered = at.get(&keys::signal(queue, key)).await?;
            let facts = SignalFacts { waiter: waiter.map(|id| id.as_ref().to_owned()), buffered };
            found.signals.insert(at_key, facts);
        }
    }
    Ok(())
}

/// The job that holds a dedup key. A row whose job is gone (its record was put aside) holds nothing.
async fn dedup_holder(at: &Snapshot, queue: &QueueName, key: &str) -> Result<Option<JobId>> {
    let Some(id) = at.get(&keys::dedup(queue, key)).await?.and_then(|id| job_id(&id)) else {
        return Ok(None);
    };
    let there = at.get(&keys::index(&id)).await?.is_some();
    Ok(there.then_some(id))
}

/// What is remembered of an inbox entry. A row that cannot be decoded says that the entry came before: that holds, and
/// none of the others waits for it.
async fn load_entry(at: &Snapshot, queue: &str, id: &str) -> Result<Option<Kept>> {
    let row = keys::entry(queue, id);
    let value = at.get(&row).await?;
    Ok(value.map(|value| {
        inbox::decode(value).unwrap_or_else(|e| {
            tracing::error!(error = %find::undecodable(&row, e), "it is left in place");
            Kept::unreadable()
        })
    }))
}

fn job_id(value: &[u8]) -> Option<JobId> {
    std::str::from_utf8(value).ok().map(Into::into)
}

async fn load_job(at: &Snapshot, id: &str) -> Result<Option<Arc<Job>>> {
    Ok(find::job(at, id).await?.map(Arc::new))
}
