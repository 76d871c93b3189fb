//! Payload objects: their paths, and putting, getting, deleting and listing them. Which of them a record names is not
//! known here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::db::Location;
use super::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Object, ObjectName};
use crate::object_store::path::Path;
use crate::object_store::{self, ObjectStore, ObjectStoreExt, PutPayload};

/// The folders that a queue store itself keeps under its path.
const STORE_FOLDERS: [&str; 5] = ["wal", "manifest", "compacted", "compactions", "gc"];

/// Whether a queue store and a folder of other objects would lie in each other.
pub(crate) fn overlap(queue: &Path, folder: &Path) -> bool {
    if queue.is_root() {
        // Everything lies in the root: only the folders that the store itself uses are taken.
        let first = folder.parts().next();
        return first.is_none_or(|first| STORE_FOLDERS.contains(&first.as_ref()));
    }
    folder.prefix_matches(queue) || queue.prefix_matches(folder)
}

/// Why a payload could not be had.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It is not there, or not what was written; in words.
    Lost(String),
    /// It may be had later.
    Passing(object_store::Error),
}

impl Unreadable {
    /// As the error of a call that wanted the payload of job `id`.
    pub(crate) fn into_error(self, id: &str) -> Error {
        match self {
            Self::Lost(_) => Error::PayloadMissing { id: id.to_owned() },
            Self::Passing(error) => Error::PayloadStore(error),
        }
    }
}

/// Where the payload objects of a store are.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    inner: Arc<dyn ObjectStore>,
    root: Path,
}

impl Objects {
    /// Where the payloads of the store at `location` are, in the store and at the path that were chosen, if any.
    pub(crate) fn of(
        location: &Location,
        (store, path): (Option<Arc<dyn ObjectStore>>, Option<&str>),
        request_timeout: Duration,
    ) -> Result<Self> {
        let inner = match store {
            Some(store) => Arc::new(Deadline::aside(store, request_timeout, &location.path)),
            None => Arc::clone(&location.main),
        };
        Self::new(inner, &location.path, path).ok_or(Error::InvalidOption {
            option: "payload_path",
            reason: "must neither lie within the path of the queue nor contain it",
        })
    }

    /// `inner` bounds its requests. `path` is where the queue store is, `chosen` where the caller wants its payloads;
    /// `None` when the two would lie in each other.
    pub(crate) fn new(
        inner: Arc<dyn ObjectStore>,
        path: &str,
        chosen: Option<&str>,
    ) -> Option<Self> {
        let queue = Path::from(path);
        let root = match chosen {
            Some(chosen) => Path::from(chosen),
            None => Path::from(format!("{}-payloads", path.trim_end_matches('/'))),
        };
        (!overlap(&queue, &root)).then_some(Self { inner, root })
    }

    fn path(&self, name: &ObjectName) -> Path {
        let folder = self.root.clone().join(format!("{:016x}", name.store));
        folder.join(format!("{:016x}-{:032x}", name.epoch, name.upload))
    }

    /// Writes a payload. It is there once this returned.
    pub(crate) async fn put(
        &self,
        name: ObjectName,
        bytes: Bytes,
    ) -> Result<Object, object_store::Error> {
        let object = Object { name, size: bytes.len() as u64, crc: crc32fast::hash(&bytes) };
        self.inner.put(&self.path(&name), PutPayload::from_bytes(bytes)).await?;
        Ok(object)
    }

    /// Reads a payload: exactly what was written, or why not.
    pub(crate) async fn get(&self, object: &Object) -> Result<Bytes, Unreadable> {
        let path = self.path(&object.name);
        let read = async { self.inner.get(&path).await?.bytes().await };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(Unreadable::Lost(format!("its payload object {path} is missing")));
            }
            Err(error) => return Err(Unreadable::Passing(error)),
        };
        if bytes.len() as u64 != object.size || crc32fast::hash(&bytes) != object.crc {
            let reason = format!("its payload object {path} is not what was written");
            return Err(Unreadable::Lost(reason));
        }
        Ok(bytes)
    }

    /// Deletes objects; answers how many deletions failed. One that is gone already is no failure.
    pub(crate) async fn delete(&self, names: &[ObjectName]) -> usize {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
        let mut deletions = self.inner.delete_stream(futures_util::stream::iter(paths).boxed());
        let mut done = 0;
        while let Some(deleted) = deletions.next().await {
            match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => done += 1,
                Err(error) => {
                    tracing::warn!(%error, "a payload object could not be deleted; a sweep will");
                }
            }
        }
        names.len().saturating_sub(done)
    }

    /// All objects in the folder of a store, in no order that may be relied on; `None` for those that are none of ours.
    pub(crate) fn list(
        &self,
        store: u64,
    ) -> BoxStream<'static, Result<Option<ObjectName>, object_store::Error>> {
        let folder = self.root.clone().join(format!("{store:016x}"));
        let listed = self.inner.list(Some(&folder));
        let name = move |path: &Path| match path.prefix_match(&folder)?.collect::<Vec<_>>() {
            parts if parts.len() == 1 => ObjectName::parse(store, parts.first()?.as_ref()),
            _ => None,
        };
        listed.map(move |meta| Ok(name(&meta?.location))).boxed()
    }
}
