//! An object store that can be told to refuse or hold kinds of requests and that dawdles at random; it lists in no order
//! and lies about times. It keeps what the store below it keeps.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use taquba::object_store::path::Path;
use taquba::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

use super::rng::Rng;

/// Kinds of requests, as bits.
pub(crate) const PUT: usize = 1;
pub(crate) const GET: usize = 2;
pub(crate) const DELETE: usize = 4;
pub(crate) const LIST: usize = 8;
/// Writes that have their effect and lose their answer.
pub(crate) const PUT_ANSWER: usize = 16;

/// See the module. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    inner: Arc<dyn ObjectStore>,
    refused: Arc<AtomicUsize>,
    held: watch::Sender<usize>,
    waiting: Arc<AtomicUsize>,
    /// Writes that succeed before `refused` counts for writes.
    puts_left: Arc<AtomicUsize>,
    rng: Arc<Mutex<Rng>>,
    dawdle: u64,
}

impl Shelf {
    /// `dawdle`: the most steps that a request takes before and after it is done.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, rng: Rng, dawdle: u64) -> Self {
        Self {
            inner,
            refused: Arc::default(),
            held: watch::Sender::new(0),
            waiting: Arc::default(),
            puts_left: Arc::default(),
            rng: Arc::new(Mutex::new(rng)),
            dawdle,
        }
    }

    /// Refuses these kinds from now on, the first `puts` writes apart.
    pub(crate) fn refuse(&self, kinds: usize, puts: usize) {
        self.puts_left.store(puts, Ordering::SeqCst);
        self.refused.store(kinds, Ordering::SeqCst);
    }

    /// Lets no request of these kinds through from now on.
    pub(crate) fn hold(&self, kinds: usize) {
        self.held.send_replace(kinds);
    }

    /// Requests that are being held.
    pub(crate) fn held_now(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    async fn steps(&self) {
        let steps = self.rng.lock().unwrap().below(self.dawdle);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }

    fn refuses(&self, kind: usize) -> Result<()> {
        let spared = |left: usize| left.checked_sub(1);
        let spare =
            || self.puts_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spared).is_ok();
        if self.refused.load(Ordering::SeqCst) & kind == 0
            || (kind & (PUT | PUT_ANSWER) != 0 && spare())
        {
            return Ok(());
        }
        Err(Error::Generic { store: "shelf", source: "the shelf is out of reach".into() })
    }

    async fn pass<T>(&self, kind: usize, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.steps().await;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.subscribe();
        drop(held.wait_for(|kinds| kinds & kind == 0).await);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.refuses(kind)?;
        let done = call.await;
        self.steps().await;
        done
    }
}

impl fmt::Display for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shelf")
    }
}

#[async_trait]
impl ObjectStore for Shelf {
    async fn put_opts(&self, at: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let done = self.pass(PUT, self.inner.put_opts(at, body, opts)).await?;
        self.refuses(PUT_ANSWER)?;
        Ok(done)
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.pass(PUT, self.inner.put_multipart_opts(at, opts)).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass(GET, self.inner.get_opts(at, options)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let shelf = self.clone();
        let each = move |location: Result<Path>| {
            let shelf = shelf.clone();
            async move {
                let one = stream::iter([location]).boxed();
                let mut gone = shelf.inner.delete_stream(one);
                shelf.pass(DELETE, async { gone.next().await.expect("one deletion") }).await
            }
        };
        locations.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (shelf, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let all = shelf.inner.list(prefix.as_ref()).try_collect::<Vec<_>>();
            let mut all = match shelf.pass(LIST, all).await {
                Ok(all) => all,
                Err(error) => return stream::iter(vec![Err(error)]),
            };
            let mut rng = shelf.rng.lock().unwrap();
            for meta in &mut all {
                let days = i64::try_from(rng.below(60)).unwrap() - 30;
                meta.last_modified += chrono::TimeDelta::days(days);
            }
            all.sort_by_cached_key(|_| rng.next());
            stream::iter(all.into_iter().map(Ok).collect::<Vec<_>>())
        };
        stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(LIST, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass(PUT, self.inner.copy_opts(from, to, options)).await
    }
}
