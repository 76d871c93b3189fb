//! An object store that counts what is asked of it, by kind, and can be told that one object cannot be read. It keeps what
//! the store below it keeps.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use taquba::object_store::path::Path;
use taquba::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// How often what was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) heads: usize,
    pub(crate) gets: usize,
    pub(crate) puts: usize,
    pub(crate) lists: usize,
    pub(crate) deletes: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Toll {
    inner: Arc<dyn ObjectStore>,
    asked: Arc<Mutex<Asked>>,
    unreadable: Mutex<Option<String>>,
}

impl Toll {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self { inner, asked: Arc::default(), unreadable: Mutex::default() })
    }

    /// What was asked since this was asked last.
    pub(crate) fn take(&self) -> Asked {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// From now on no object whose path ends so can be read.
    pub(crate) fn hide(&self, end: &str) {
        *self.unreadable.lock().unwrap() = Some(end.to_owned());
    }

    fn count(&self, one: fn(&mut Asked) -> &mut usize) {
        *one(&mut self.asked.lock().unwrap()) += 1;
    }
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toll")
    }
}

#[async_trait]
impl ObjectStore for Toll {
    async fn put_opts(&self, at: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.count(|asked| &mut asked.puts);
        self.inner.put_opts(at, body, opts).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.count(|asked| &mut asked.puts);
        self.inner.put_multipart_opts(at, opts).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.count(if options.head { |asked| &mut asked.heads } else { |asked| &mut asked.gets });
        let hidden = self.unreadable.lock().unwrap().clone();
        if hidden.is_some_and(|end| at.as_ref().ends_with(&end)) {
            return Err(Error::Generic { store: "toll", source: "it is out of reach".into() });
        }
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let asked = Arc::clone(&self.asked);
        let counted = locations.inspect(move |_| asked.lock().unwrap().deletes += 1);
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count(|asked| &mut asked.lists);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.count(|asked| &mut asked.lists);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.count(|asked| &mut asked.puts);
        self.inner.copy_opts(from, to, options).await
    }
}
