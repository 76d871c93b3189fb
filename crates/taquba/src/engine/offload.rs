//! Large payloads on their way out: uploaded in the caller's task before the command is sent, owned by the command
//! until the engine says whether a record names them. Who owns an upload when it comes to nothing throws it away.
//!
//! An upload belongs to exactly one command, and only that command can make a record name it. So once the command is
//! gone without having done so, whatever the store's state, nothing ever will, and the object may go. Once it has, the
//! record owns the object, also when its commit is not confirmed: from then on only the record's durable removal
//! deletes it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;

use super::bin::Bin;
use super::request::{Prepared, Reply};
use crate::env;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Object, ObjectName, Payload};
use crate::record::OrphanSweep;
use crate::store::objects::Objects;

/// Uploads of one call that are under way at once.
const UPLOADS: usize = 16;

/// What this process knows about payload objects.
#[derive(Debug)]
pub(crate) struct Offload {
    pub(crate) objects: Objects,
    /// Strictly larger payloads go out; `None`: none does.
    above: Option<usize>,
    pub(crate) store: u64,
    pub(crate) epoch: u64,
    pub(crate) bin: Bin,
    /// Uploads of this process whose fate is open. One is in here from before its PUT until a record that names it is
    /// in the store's memory, or until no record can.
    open: Mutex<HashSet<ObjectName>>,
    /// Wishes for a sweep now.
    pub(crate) sweeps: mpsc::UnboundedSender<Reply<OrphanSweep>>,
}

impl Offload {
    pub(crate) fn new(
        objects: Objects,
        above: Option<usize>,
        (store, epoch): (u64, u64),
        bin: Bin,
        sweeps: mpsc::UnboundedSender<Reply<OrphanSweep>>,
    ) -> Self {
        Self { objects, above, store, epoch, bin, open: Mutex::default(), sweeps }
    }

    fn open(&self) -> MutexGuard<'_, HashSet<ObjectName>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a command of this process may still make a record name it.
    pub(crate) fn is_open(&self, name: &ObjectName) -> bool {
        self.open().contains(name)
    }

    /// Uploads the large payloads of a command; from then on its jobs name them. What is uploaded already stays so
    /// when another upload fails: the call may be repeated, or `what` dropped.
    pub(crate) async fn upload(self: &Arc<Self>, what: &mut Prepared, now_ms: u64) -> Result<()> {
        let Some(above) = self.above else {
            return Ok(());
        };
        let large =
            |payload: &Payload| payload.bytes().filter(|bytes| bytes.len() > above).cloned();
        let jobs = what.jobs.iter().enumerate();
        let large: Vec<_> =
            jobs.filter_map(|(index, job)| Some((index, large(&job.payload)?))).collect();
        let puts = large.into_iter().map(|(index, bytes)| {
            let own = Arc::clone(self);
            async move { own.put(bytes, now_ms).await.map(|done| (index, done)) }
        });
        let mut puts = stream::iter(puts).buffer_unordered(UPLOADS);
        while let Some(done) = puts.next().await {
            let (index, (object, upload)) = done?;
            what.uploads.push(upload);
            if let Some(job) = what.jobs.get_mut(index) {
                job.payload = Payload::Object(object);
            }
        }
        Ok(())
    }

    async fn put(self: Arc<Self>, bytes: Bytes, now_ms: u64) -> Result<(Object, Upload)> {
        let upload = (u128::from(now_ms) << 80) | (env::id_entropy() & ((1 << 80) - 1));
        let name = ObjectName { store: self.store, epoch: self.epoch, upload };
        // Known before it can be listed. A PUT that fails may have had its effect, so it is thrown away all the same.
        self.open().insert(name);
        let upload = Upload { name, named: false, of: Arc::clone(&self) };
        let object = self.objects.put(name, bytes).await.map_err(Error::PayloadStore)?;
        Ok((object, upload))
    }
}

/// An object whose fate is open.
#[derive(Debug)]
pub(crate) struct Upload {
    name: ObjectName,
    /// A record names it.
    named: bool,
    of: Arc<Offload>,
}

impl Upload {
    /// The uploads that records name now, to be held until those records are in the store's memory. The others go.
    pub(crate) fn keep_named(uploads: Vec<Self>, named: &HashSet<ObjectName>) -> Vec<Self> {
        let mut kept: Vec<Self> =
            uploads.into_iter().filter(|upload| named.contains(&upload.name)).collect();
        for upload in &mut kept {
            upload.named = true;
        }
        kept
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.named {
            self.of.bin.throw(self.name);
        }
        self.of.open().remove(&self.name);
    }
}
