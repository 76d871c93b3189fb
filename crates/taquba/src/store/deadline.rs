//! A deadline on every request to the object store: one that never answers becomes an error that SlateDB retries.
//! Everything else passes through untouched, put attributes above all: SlateDB knows its own retried PUT by them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::env;
use crate::object_store::path::Path;
use crate::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result, UploadPart,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Deadline {
    inner: Arc<dyn ObjectStore>,
    limit: Duration,
    /// A write that the credentials do not allow is not retried: for readers, to whom that is no outage.
    denial_is_final: bool,
}

impl Deadline {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, limit: Duration) -> Self {
        Self { inner, limit, denial_is_final: false }
    }

    /// The same for a reader.
    pub(crate) fn for_reader(inner: Arc<dyn ObjectStore>, limit: Duration) -> Self {
        Self { inner, limit, denial_is_final: true }
    }

    async fn bound<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        bound(self.limit, what, call).await
    }
}

async fn bound<T>(
    limit: Duration,
    what: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    env::within(limit, call).await.unwrap_or_else(|| Err(late(what, limit)))
}

fn late(what: &'static str, limit: Duration) -> Error {
    Error::Generic {
        store: "deadline",
        source: format!("{what} had no answer in {limit:?}").into(),
    }
}

/// A stream whose every item must come within the limit; after a late one it ends.
fn bound_stream<T: Send + 'static>(
    limit: Duration,
    what: &'static str,
    stream: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    futures_util::stream::unfold(Some(stream), move |state| async move {
        let mut stream = state?;
        match env::within(limit, stream.next()).await {
            Some(item) => item.map(|item| (item, Some(stream))),
            None => Some((Err(late(what, limit)), None)),
        }
    })
    .boxed()
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (each request within {:?})", self.inner, self.limit)
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
        let done = self.bound("PUT", self.inner.put_opts(at, payload, opts)).await;
        match done {
            Err(error @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }))
                if self.denial_is_final =>
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
        let upload = self.bound("multipart PUT", self.inner.put_multipart_opts(at, opts)).await?;
        Ok(Box::new(Upload { inner: upload, limit: self.limit }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.bound("GET", self.inner.get_opts(at, options)).await?;
        result.payload = match result.payload {
            GetResultPayload::Stream(stream) => {
                GetResultPayload::Stream(bound_stream(self.limit, "GET", stream))
            }
            other => other,
        };
        Ok(result)
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.bound("ranged GET", self.inner.get_ranges(at, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        bound_stream(self.limit, "DELETE", self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        bound_stream(self.limit, "LIST", self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        bound_stream(self.limit, "LIST", self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.bound("LIST", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.bound("COPY", self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.bound("RENAME", self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    limit: Duration,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        Box::pin(bound(self.limit, "part PUT", part))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        bound(self.limit, "multipart completion", self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        bound(self.limit, "multipart abort", self.inner.abort()).await
    }
}
