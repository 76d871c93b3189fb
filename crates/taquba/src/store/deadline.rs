//! A deadline on every request to the object store: one that never answers becomes an error that SlateDB retries.
//! What fails is told to [`Trouble`]. Everything else passes through untouched, put attributes above all: SlateDB knows
//! its own retried PUT by them.
//!
//! One kind of request has no deadline: a conditional PUT that carries no attributes. SlateDB marks its conditional PUTs
//! with an attribute, so that a retry that finds an object there knows whether it is its own from an attempt given up;
//! where a store refuses attributes (a local folder does), it sends them without. A request given up is not undone: a
//! folder's write runs on in its thread and lands late. Its retry would find the object, could not know it for its own,
//! and SlateDB would take it for another owner's: fenced, by nobody. So whoever sends such a PUT waits for what became
//! of it. Callers are bounded by their own limit all the same.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::trouble::Trouble;
use crate::env;
use crate::object_store::path::Path;
use crate::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, Result, UploadPart,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Deadline {
    inner: Arc<dyn ObjectStore>,
    watch: Watch,
}

/// What bounds requests and hears of their ends.
#[derive(Debug, Clone)]
struct Watch {
    limit: Duration,
    trouble: Arc<Trouble>,
    /// A write that the credentials do not allow is not retried: for readers, to whom that is no outage.
    denial_is_final: bool,
}

impl Deadline {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, limit: Duration, trouble: Arc<Trouble>) -> Self {
        Self { inner, watch: Watch { limit, trouble, denial_is_final: false } }
    }

    /// For a store beside that of a queue: what fails there is told, and stops no open.
    pub(crate) fn aside(inner: Arc<dyn ObjectStore>, limit: Duration, path: &str) -> Self {
        Self::new(inner, limit, Arc::new(Trouble::new(path)))
    }

    /// The same for a reader.
    pub(crate) fn for_reader(
        inner: Arc<dyn ObjectStore>,
        limit: Duration,
        trouble: Arc<Trouble>,
    ) -> Self {
        Self { inner, watch: Watch { limit, trouble, denial_is_final: true } }
    }
}

impl Watch {
    async fn bound<T>(
        &self,
        what: &'static str,
        object: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.trouble.check_wanted()?;
        let done = env::within(self.limit, call).await;
        let done = done.unwrap_or_else(|| Err(late(what, self.limit)));
        self.trouble.note(what, object, &done);
        done
    }

    /// A stream whose every item must come within the limit; after a late one it ends.
    fn bound_stream<T: Send + 'static>(
        &self,
        what: &'static str,
        object: String,
        stream: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let watch = self.clone();
        let start = (Some(stream), watch, object);
        futures_util::stream::unfold(start, move |(stream, watch, object)| async move {
            let mut stream = stream?;
            let (item, rest) = match env::within(watch.limit, stream.next()).await {
                Some(Some(item)) => (item, Some(stream)),
                Some(None) => {
                    watch.trouble.note(what, &object, &Ok(()));
                    return None;
                }
                None => (Err(late(what, watch.limit)), None),
            };
            watch.trouble.note(what, &object, &item);
            Some((item, (rest, watch, object)))
        })
        .boxed()
    }
}

fn late(what: &'static str, limit: Duration) -> Error {
    Error::Generic {
        store: "object store",
        source: format!("{what} had no answer in {limit:?}").into(),
    }
}

fn prefix_text(prefix: Option<&Path>) -> &str {
    prefix.map_or("", |prefix| prefix.as_ref())
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (each request within {:?})", self.inner, self.watch.limit)
    }
}

#[async_trait]
impl ObjectStore for Deadline {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let unmarked = opts.mode != PutMode::Overwrite && opts.attributes.is_empty();
        let put = self.inner.put_opts(at, payload, opts);
        let done = if unmarked {
            self.watch.trouble.check_wanted()?;
            // Never given up: see the module.
            let done = put.await;
            self.watch.trouble.note("PUT", at.as_ref(), &done);
            done
        } else {
            self.watch.bound("PUT", at.as_ref(), put).await
        };
        match done {
            Err(error @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }))
                if self.watch.denial_is_final =>
            {
                Err(Error::NotSupported { source: error.into() })
            }
            done => done,
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.inner.put_multipart_opts(at, opts);
        let inner = self.watch.bound("multipart PUT", at.as_ref(), begun).await?;
        Ok(Box::new(Upload { inner, object: at.to_string(), watch: self.watch.clone() }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result =
            self.watch.bound("GET", at.as_ref(), self.inner.get_opts(at, options)).await?;
        result.payload = match result.payload {
            GetResultPayload::Stream(stream) => {
                GetResultPayload::Stream(self.watch.bound_stream("GET", at.to_string(), stream))
            }
            other => other,
        };
        Ok(result)
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.watch.bound("ranged GET", at.as_ref(), self.inner.get_ranges(at, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.watch.bound_stream("DELETE", String::new(), self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let at = prefix_text(prefix).to_owned();
        self.watch.bound_stream("LIST", at, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let at = prefix_text(prefix).to_owned();
        self.watch.bound_stream("LIST", at, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.inner.list_with_delimiter(prefix);
        self.watch.bound("LIST", prefix_text(prefix), listed).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.watch.bound("COPY", from.as_ref(), self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.watch.bound("RENAME", from.as_ref(), self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    object: String,
    watch: Watch,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let (watch, object) = (self.watch.clone(), self.object.clone());
        Box::pin(async move { watch.bound("part PUT", &object, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.watch.bound("multipart completion", &self.object, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.watch.bound("multipart abort", &self.object, self.inner.abort()).await
    }
}
