//! Memos: what a run has computed and need not compute again, one object per entry beside the queue. They are written
//! at once, outside any settlement, and survive whatever becomes of the step.
//!
//! ```text
//! {prefix}/memos/{run id}/{step number}/{hex sha256 of the key}   entries of one step
//! {prefix}/memos/{run id}/run/{hex sha256 of the key}             entries of the whole run
//! entry = "tqm1" · first 16 bytes of sha256(key length as u64 BE · key · value) · value
//! ```

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use taquba::object_store::path::Path;
use taquba::object_store::{self, ObjectStore, ObjectStoreExt, PutPayload, memory::InMemory};

use super::digest::{hex, sha256};
use crate::error::{Error, Result};
use crate::run_id::RunId;

const MAGIC: &[u8; 4] = b"tqm1";
const CHECK_LEN: usize = 16;
/// Deletes of one clear that are in flight together.
const CLEAR_CONCURRENCY: usize = 16;

/// Where the memos of a runtime's runs are. Clones share the store.
#[derive(Clone)]
pub struct MemoStore {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl fmt::Debug for MemoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl MemoStore {
    /// Takes a store and the path under which the objects go.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> Self {
        Self { store, prefix: Path::from(prefix.into()) }
    }

    /// The store of a runtime that names no prefix. The queue's name is one path segment here, slashes escaped, so
    /// that two queues never share entries.
    pub(crate) fn for_queue(store: Arc<dyn ObjectStore>, queue: &str) -> Self {
        Self { store, prefix: Path::from_iter([format!("{queue}-memo")]) }
    }

    /// A store that lives as long as its clones.
    pub(crate) fn in_memory() -> Self {
        Self::new(Arc::new(InMemory::new()), "memo")
    }

    /// Returns the memo of one step of a run.
    #[must_use]
    pub fn new_memo(&self, run_id: &RunId, step_number: u32) -> Memo {
        Memo { store: self.clone(), run_id: run_id.clone(), step_number: Some(step_number) }
    }

    /// Returns the memo that all steps of a run share.
    #[must_use]
    pub fn new_run_memo(&self, run_id: &RunId) -> Memo {
        Memo { store: self.clone(), run_id: run_id.clone(), step_number: None }
    }

    /// Removes all memo entries of a run and returns how many there were. Clear the memos of ended runs only: a step
    /// that runs meanwhile computes again, and may leave new entries.
    ///
    /// # Errors
    /// [`Error::Store`]; some entries may be gone then, call it again.
    ///
    /// # Cancel safety
    /// Dropped halfway, some entries are gone; call it again.
    pub async fn clear_memos_for_run(&self, run_id: &RunId) -> Result<usize> {
        // A listing goes by whole path segments, so run "a" never reaches the entries of run "ab".
        let prefix = self.path(&["memos", run_id]);
        let removed = self
            .store
            .list(Some(&prefix))
            .map_ok(|entry| async move {
                match self.store.delete(&entry.location).await {
                    Err(object_store::Error::NotFound { .. }) => Ok(0),
                    deleted => deleted.map(|()| 1),
                }
            })
            .try_buffer_unordered(CLEAR_CONCURRENCY)
            .try_fold(0, |sum, one| std::future::ready(Ok(sum + one)))
            .await?;
        Ok(removed)
    }

    /// Writes one object; durable on return.
    pub(crate) async fn write<S: AsRef<str>>(&self, path: &[S], bytes: Vec<u8>) -> Result<()> {
        self.store.put(&self.path(path), PutPayload::from(bytes)).await?;
        Ok(())
    }

    /// Reads one object; `None` if there is none.
    pub(crate) async fn read<S: AsRef<str>>(&self, path: &[S]) -> Result<Option<Bytes>> {
        match self.store.get(&self.path(path)).await {
            Ok(object) => Ok(Some(object.bytes().await?)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn path<S: AsRef<str>>(&self, segments: &[S]) -> Path {
        segments.iter().fold(self.prefix.clone(), |path, segment| path.join(segment.as_ref()))
    }
}

/// What one step, or one whole run, has computed and need not compute again. Clones share the entries.
///
/// Every attempt of the step sees the same memo. An entry is durable when its `put` returns, whether or not the step
/// settles; a run that is submitted again under the same id finds the entries of its predecessor.
#[derive(Debug, Clone)]
pub struct Memo {
    store: MemoStore,
    run_id: RunId,
    step_number: Option<u32>,
}

impl Memo {
    /// A memo in memory, for a runner's own tests.
    pub(crate) fn detached(step_number: Option<u32>) -> Self {
        Self { store: MemoStore::in_memory(), run_id: RunId::detached(), step_number }
    }

    /// Returns the run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns the step; `None` for the memo of a whole run.
    #[must_use]
    pub fn step_number(&self) -> Option<u32> {
        self.step_number
    }

    /// Returns an entry; `None` if there is none, or if its bytes are damaged.
    ///
    /// # Errors
    /// [`Error::Store`] when the object store could not be asked.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let Some(bytes) = self.store.read(&self.path_of(key)).await? else {
            return Ok(None);
        };
        let value = decode_entry(key, &bytes);
        if value.is_none() {
            tracing::warn!(run_id = %self.run_id, step = ?self.step_number, key, "memo entry is damaged; ignored");
        }
        Ok(value)
    }

    /// Writes an entry, in place of an earlier one. Durable on return.
    ///
    /// # Errors
    /// [`Error::Store`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, the entry may or may not be there; never half of it.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.write(&self.path_of(key), encode_entry(key, value)).await
    }

    /// Returns the entry's value, or computes it (`work` is a future, or a closure that returns one), stores it and
    /// returns it. An error is returned and not stored; an entry that does not decode as `R` is computed again.
    ///
    /// Two attempts that run at the same time may both compute; the later `put` stays.
    ///
    /// # Errors
    /// The work's own error; [`Error::Store`] or [`Error::Serialization`], converted, when the memo fails.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the work may have been done and not stored.
    pub async fn memoized<R, F, E, Kind>(&self, key: &str, work: F) -> Result<R, E>
    where
        F: MemoWork<R, E, Kind>,
        R: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        if let Some(bytes) = self.get(key).await? {
            if let Ok(value) = rmp_serde::from_slice(&bytes) {
                return Ok(value);
            }
            tracing::warn!(run_id = %self.run_id, key, "memo entry has another type; computed again");
        }
        let value = work.start().await?;
        let bytes = rmp_serde::to_vec_named(&value).map_err(Error::from)?;
        self.put(key, &bytes).await?;
        Ok(value)
    }

    fn path_of(&self, key: &str) -> [String; 4] {
        let scope = self.step_number.map_or_else(|| "run".to_owned(), |step| step.to_string());
        let name = hex(&sha256(&[key.as_bytes()]));
        ["memos".into(), self.run_id.to_string(), scope, name]
    }
}

/// What [`Memo::memoized`] accepts as work: a future, or a closure that returns one. `Kind` is inferred; it keeps the
/// two apart, and names no future's type, so that work may borrow from the step.
pub trait MemoWork<R, E, Kind> {
    /// Begins the work.
    fn start(self) -> impl Future<Output = std::result::Result<R, E>>;
}

/// Marks work that is a future.
#[derive(Debug)]
pub struct FutureWork;

/// Marks work that is a closure.
#[derive(Debug)]
pub struct ClosureWork;

impl<R, E, F> MemoWork<R, E, FutureWork> for F
where
    F: Future<Output = std::result::Result<R, E>>,
{
    fn start(self) -> impl Future<Output = std::result::Result<R, E>> {
        self
    }
}

impl<R, E, F> MemoWork<R, E, ClosureWork> for F
where
    F: AsyncFnOnce() -> std::result::Result<R, E>,
{
    fn start(self) -> impl Future<Output = std::result::Result<R, E>> {
        self()
    }
}

fn check_of(key: &str, value: &[u8]) -> [u8; 32] {
    let key_len = u64::try_from(key.len()).unwrap_or(u64::MAX).to_be_bytes();
    sha256(&[&key_len, key.as_bytes(), value])
}

fn encode_entry(key: &str, value: &[u8]) -> Vec<u8> {
    let check = check_of(key, value);
    let mut bytes = Vec::with_capacity(MAGIC.len() + CHECK_LEN + value.len());
    bytes.extend(MAGIC);
    bytes.extend(check.iter().take(CHECK_LEN));
    bytes.extend(value);
    bytes
}

fn decode_entry(key: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (check, value) = rest.split_at_checked(CHECK_LEN)?;
    check_of(key, value).starts_with(check).then(|| value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> RunId {
        RunId::new(id).unwrap()
    }

    #[test]
    fn golden_entry_and_paths() {
        let entry = encode_entry("k", b"value");
        assert_eq!(hex(&entry), GOLDEN_ENTRY);
        assert_eq!(decode_entry("k", &entry).unwrap(), b"value");
        let store = MemoStore::new(Arc::new(InMemory::new()), "some/prefix");
        let step = store.new_memo(&run("r"), 3);
        let key_hash = hex(&sha256(&[b"k"]));
        assert_eq!(
            store.path(&step.path_of("k")).to_string(),
            format!("some/prefix/memos/r/3/{key_hash}")
        );
        let whole = store.new_run_memo(&run("r"));
        assert_eq!(
            store.path(&whole.path_of("k")).to_string(),
            format!("some/prefix/memos/r/run/{key_hash}")
        );
    }

    const GOLDEN_ENTRY: &str = "74716d31527b5cc6ffc35492192436a2a58ed42e76616c7565";

    #[test]
    fn damaged_bytes_are_no_entry() {
        let entry = encode_entry("k", b"value");
        for i in 0..entry.len() {
            let mut flipped = entry.clone();
            flipped[i] ^= 1;
            assert_eq!(decode_entry("k", &flipped), None, "byte {i}");
            assert_eq!(decode_entry("k", &entry[..i]), None, "cut at {i}");
        }
        assert_eq!(decode_entry("other", &entry), None);
    }

    #[test]
    fn queues_whose_names_look_alike_have_prefixes_of_their_own() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let names = ["a/b", "a//b", "a%2Fb", "/a/b", "a/b/", "", "..", "."];
        let prefixes: std::collections::HashSet<_> = names
            .iter()
            .map(|queue| MemoStore::for_queue(Arc::clone(&store), queue).prefix.to_string())
            .collect();
        assert_eq!(prefixes.len(), names.len());
    }

    #[tokio::test]
    async fn entries_of_steps_runs_and_keys_are_apart_and_cleared_by_run() {
        let store = MemoStore::in_memory();
        let memos = [
            store.new_memo(&run("a"), 0),
            store.new_memo(&run("a"), 1),
            store.new_run_memo(&run("a")),
        ];
        for (i, memo) in memos.iter().enumerate() {
            memo.put("k", &[u8::try_from(i).unwrap()]).await.unwrap();
        }
        let neighbour = store.new_run_memo(&run("ab"));
        neighbour.put("k", b"n").await.unwrap();
        for (i, memo) in memos.iter().enumerate() {
            assert_eq!(memo.get("k").await.unwrap().unwrap(), [u8::try_from(i).unwrap()]);
            assert_eq!(memo.get("other").await.unwrap(), None);
        }
        assert_eq!(store.clear_memos_for_run(&run("a")).await.unwrap(), 3);
        assert_eq!(store.clear_memos_for_run(&run("a")).await.unwrap(), 0);
        assert_eq!(memos[2].get("k").await.unwrap(), None);
        assert_eq!(neighbour.get("k").await.unwrap().unwrap(), b"n");
    }

    #[tokio::test]
    async fn memoized_work_runs_once_and_its_errors_are_not_kept() {
        let memo = Memo::detached(Some(0));
        let failed: Result<u32, Error> =
            memo.memoized("k", async { Err(Error::EffectsSealed) }).await;
        assert!(failed.is_err());
        let first: Result<u32, Error> = memo.memoized("k", async { Ok(7) }).await;
        assert_eq!(first.unwrap(), 7);
        let again: Result<u32, Error> = memo.memoized("k", || async { Ok(8) }).await;
        assert_eq!(again.unwrap(), 7);
        memo.put("k", b"\xc1 no MessagePack").await.unwrap();
        let anew = memo.memoized("k", async || Ok::<u32, Error>(9)).await;
        assert_eq!(anew.unwrap(), 9);
        assert_eq!(memo.get("k").await.unwrap().unwrap(), [9]);
    }
}
