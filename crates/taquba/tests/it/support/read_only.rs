//! A bucket seen with credentials that may read and list, and do nothing else. It counts what is asked of it, by kind,
//! what it refuses included.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use taquba::object_store::path::Path;
use taquba::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    inner: Arc<dyn ObjectStore>,
    heads: AtomicUsize,
    gets: AtomicUsize,
    lists: AtomicUsize,
    refused: AtomicUsize,
}

/// How often what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) heads: usize,
    pub(crate) gets: usize,
    pub(crate) lists: usize,
    /// Everything that would have changed something.
    pub(crate) writes: usize,
}

impl ReadOnly {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        let zero = AtomicUsize::default;
        Arc::new(Self { inner, heads: zero(), gets: zero(), lists: zero(), refused: zero() })
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked {
            heads: self.heads.load(SeqCst),
            gets: self.gets.load(SeqCst),
            lists: self.lists.load(SeqCst),
            writes: self.refused.load(SeqCst),
        }
    }

    fn refuse<T>(&self, at: &Path) -> Result<T> {
        self.refused.fetch_add(1, SeqCst);
        let source = "these credentials may only read".into();
        Err(Error::PermissionDenied { path: at.to_string(), source })
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}

#[async_trait]
impl ObjectStore for ReadOnly {
    async fn put_opts(&self, at: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.refuse(at)
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.refuse(at)
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { &self.heads } else { &self.gets };
        kind.fetch_add(1, SeqCst);
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.gets.fetch_add(1, SeqCst);
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let refused = self.refuse(&Path::default());
        futures_util::stream::iter([refused]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, SeqCst);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, SeqCst);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.lists.fetch_add(1, SeqCst);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        self.refuse(from)
    }
}
