//! A run's result: in its terminal record when small, else in an object that is written before the record and checked
//! when read. Object layout: `results/{run id}/{job id}-{sha256 of the bytes}` under the memo prefix.

use super::digest::{hex, sha256};
use super::memo::MemoStore;
use super::record::{ResultObject, StoredResult};
use crate::error::Result;
use crate::lifecycle::limits::MAX_INLINE_RESULT;
use crate::run_id::RunId;

/// What a stored result turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadedResult {
    /// The run produced this, or nothing.
    Bytes(Option<Vec<u8>>),
    /// Its object is gone, or holds other bytes than were written.
    Lost,
}

/// Puts a result where it belongs. When this returns, an object is durable; it is referenced by nothing yet.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store) when the object could not be written.
pub(crate) async fn store(
    memos: &MemoStore,
    run_id: &RunId,
    job_id: &str,
    result: Vec<u8>,
) -> Result<StoredResult> {
    if result.len() <= MAX_INLINE_RESULT {
        return Ok(StoredResult::Inline(result));
    }
    let sha256 = sha256(&[&result]);
    let size = u64::try_from(result.len()).unwrap_or(u64::MAX);
    let object = ResultObject { job_id: job_id.to_owned(), sha256, size };
    memos.write(&path_of(run_id, &object), result).await?;
    Ok(StoredResult::Object(object))
}

/// Reads a result.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store) when the object store could not be asked.
pub(crate) async fn load(
    memos: &MemoStore,
    run_id: &RunId,
    stored: Option<StoredResult>,
) -> Result<LoadedResult> {
    let object = match stored {
        None => return Ok(LoadedResult::Bytes(None)),
        Some(StoredResult::Inline(bytes)) => return Ok(LoadedResult::Bytes(Some(bytes))),
        Some(StoredResult::Object(object)) => object,
    };
    let bytes = memos.read(&path_of(run_id, &object)).await?;
    match bytes {
        Some(bytes) if sha256(&[&bytes]) == object.sha256 => {
            Ok(LoadedResult::Bytes(Some(bytes.to_vec())))
        }
        found => {
            tracing::warn!(%run_id, job_id = %object.job_id, found = found.is_some(), "result object is lost");
            Ok(LoadedResult::Lost)
        }
    }
}

fn path_of(run_id: &RunId, object: &ResultObject) -> [String; 3] {
    let name = format!("{}-{}", object.job_id, hex(&object.sha256));
    ["results".into(), run_id.to_string(), name]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_small_result_stays_in_the_record_and_a_large_one_becomes_an_object() {
        let memos = MemoStore::in_memory();
        let run = RunId::new("r").unwrap();
        let small = vec![1; MAX_INLINE_RESULT];
        let stored = store(&memos, &run, "J", small.clone()).await.unwrap();
        assert_eq!(stored, StoredResult::Inline(small.clone()));
        let large = vec![2; MAX_INLINE_RESULT + 1];
        let stored = store(&memos, &run, "J", large.clone()).await.unwrap();
        assert!(matches!(&stored, StoredResult::Object(o) if o.size == 131_073));
        let loaded = load(&memos, &run, Some(stored.clone())).await.unwrap();
        assert_eq!(loaded, LoadedResult::Bytes(Some(large)));

        let StoredResult::Object(object) = stored.clone() else { panic!("inline") };
        memos.write(&path_of(&run, &object), vec![3]).await.unwrap();
        assert_eq!(load(&memos, &run, Some(stored.clone())).await.unwrap(), LoadedResult::Lost);
        let other = RunId::new("other").unwrap();
        assert_eq!(load(&memos, &other, Some(stored)).await.unwrap(), LoadedResult::Lost);
        assert_eq!(load(&memos, &run, None).await.unwrap(), LoadedResult::Bytes(None));
    }
}
