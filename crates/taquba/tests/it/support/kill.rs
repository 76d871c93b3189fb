//! An object store that dies at a chosen call: from then on every call answers `NotSupported`, which SlateDB does not
//! retry, while what was stored stays. It also counts calls, by kind. It injects no delays and no passing errors.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;
use taquba::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};

/// When the store dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kill {
    /// The call of this number (from 0) and all later ones have no effect.
    At(u64),
    /// Of the calls that change something, the one of this number (from 0) does, but its answer is lost; all later
    /// calls have no effect.
    AfterEffect(u64),
}

#[derive(Debug)]
struct Life {
    kill: Kill,
    calls: u64,
    effects: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

/// What one call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lives,
    LosesItsAnswer,
    Dies,
}

/// See the module. Clones share one life.
#[derive(Debug, Clone)]
pub(crate) struct KillStore {
    inner: Arc<InMemory>,
    life: Arc<Mutex<Life>>,
}

fn dead(kind: &'static str) -> Error {
    Error::NotSupported { source: format!("the store was killed ({kind})").into() }
}

impl KillStore {
    /// Wraps what `inner` holds.
    pub(crate) fn new(inner: Arc<InMemory>, kill: Kill) -> Self {
        let life = Life { kill, calls: 0, effects: 0, by_kind: BTreeMap::new() };
        Self { inner, life: Arc::new(Mutex::new(life)) }
    }

    /// How many calls were made, those after death included.
    pub(crate) fn calls(&self) -> u64 {
        self.life.lock().unwrap().calls
    }

    /// How many calls changed something.
    pub(crate) fn effects(&self) -> u64 {
        self.life.lock().unwrap().effects
    }

    /// How many calls of each kind were made.
    pub(crate) fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.life.lock().unwrap().by_kind.clone()
    }

    /// Whether the fatal call was made.
    pub(crate) fn is_dead(&self) -> bool {
        let life = self.life.lock().unwrap();
        match life.kill {
            Kill::At(k) => life.calls > k,
            Kill::AfterEffect(n) => life.effects > n,
        }
    }

    fn count(&self, kind: &'static str) -> Fate {
        let mut life = self.life.lock().unwrap();
        let number = life.calls;
        life.calls += 1;
        *life.by_kind.entry(kind).or_default() += 1;
        let reads = kind.starts_with("GET") || kind == "LIST";
        let fate = match life.kill {
            Kill::At(k) if number >= k => Fate::Dies,
            Kill::AfterEffect(n) if life.effects > n => Fate::Dies,
            Kill::AfterEffect(n) if life.effects == n && !reads => Fate::LosesItsAnswer,
            _ => Fate::Lives,
        };
        if fate != Fate::Dies && !reads {
            life.effects += 1;
        }
        fate
    }

    async fn call<T>(
        &self,
        kind: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.count(kind) {
            Fate::Lives => call.await,
            Fate::LosesItsAnswer => {
                // Its effect is wanted, its answer is what gets lost.
                drop(call.await);
                Err(dead(kind))
            }
            Fate::Dies => Err(dead(kind)),
        }
    }

    fn stream<T: Send + 'static>(
        &self,
        kind: &'static str,
        stream: impl FnOnce() -> BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        match self.count(kind) {
            Fate::Lives => stream(),
            _ => futures_util::stream::iter([Err(dead(kind))]).boxed(),
        }
    }
}

impl fmt::Display for KillStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KillStore")
    }
}

#[async_trait]
impl ObjectStore for KillStore {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.call("PUT", self.inner.put_opts(at, payload, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.call("multipart", self.inner.put_multipart_opts(at, opts)).await?;
        Ok(Box::new(Upload { inner: upload, store: self.clone() }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { "GET head" } else { "GET" };
        self.call(kind, self.inner.get_opts(at, options)).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.call("GET ranges", self.inner.get_ranges(at, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.stream("DELETE", || self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stream("LIST", || self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stream("LIST", || self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call("LIST", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call("COPY", self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.call("RENAME", self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    store: KillStore,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, store) = (self.inner.put_part(data), self.store.clone());
        Box::pin(async move { store.call("part", part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let store = self.store.clone();
        store.call("complete", self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let store = self.store.clone();
        store.call("abort", self.inner.abort()).await
    }
}
