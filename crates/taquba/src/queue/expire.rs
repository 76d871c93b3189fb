//! The pass over an expiry index: oldest first, a page at a time, no read before the earliest entry is due.
//!
//! A pass takes the bound away before it reads and puts back the earliest time that it leaves. An entry's commit lowers
//! the bound once its row is visible: either the pass sees the row, or the lowering comes after the bound was taken and
//! so stands after the pass.

use std::ops::Bound;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::Queue;
use crate::effects::SettlementEffects;
use crate::env::millis;
use crate::error::Result;
use crate::expiry::{Expired, ExpiryIndex};

/// Entries that are read, and whose commits share their PUTs, at a time.
const PAGE: usize = 256;

/// Puts the bound back where it was if the pass fails or is dropped.
struct Pass<'a> {
    index: &'a ExpiryIndex,
    began_at: Option<u64>,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(began_at) = self.began_at {
            self.index.lower(began_at);
        }
    }
}

impl ExpiryIndex {
    /// Asks `each` what becomes of every entry whose time plus `retention` is not later than `now_ms`, oldest first, and
    /// commits that; returns how many are gone. Reads nothing while none can be due. A row under the prefix that is no
    /// entry is deleted. Durable on return; entries of one page of 256 commit together.
    ///
    /// # Errors
    /// As [`Queue::commit_effects`]. What was committed stays, the next pass finds the rest.
    ///
    /// # Cancel safety
    /// Dropped, the next pass begins where this one did.
    pub async fn pass<F: Future<Output = Expired>>(
        &self,
        queue: &Queue,
        now_ms: u64,
        retention: Duration,
        mut each: impl FnMut(u64, Vec<u8>) -> F,
    ) -> Result<usize> {
        let keep_ms = millis(retention);
        let over = |at: u64| at.saturating_add(keep_ms) <= now_ms;
        if !over(self.bound_ms()) {
            return Ok(0);
        }
        let began_at = self.take_bound();
        let mut pass = Pass { index: self, began_at: Some(began_at) };
        let (mut gone, mut left) = (0, u64::MAX);
        let mut from = Bound::Included(self.entry_key(began_at, b""));
        'pages: loop {
            let range = (from, Bound::<Vec<u8>>::Unbounded);
            let page = queue.view().kv_scan(self.prefix(), range, PAGE).await?;
            let mut commits = Vec::new();
            let mut end = !page.more;
            for (key, _) in &page.entries {
                let Some((at, suffix)) = self.parse(key) else {
                    commits.push((u64::MAX, key.clone(), Expired::Delete(Default::default())));
                    continue;
                };
                if !over(at) {
                    left = left.min(at);
                    end = true;
                    break;
                }
                commits.push((at, key.clone(), each(at, suffix.to_vec()).await));
            }
            let ends = commits.into_iter().map(|(at, key, what)| commit(queue, at, key, what));
            for kept in try_join_all(ends).await? {
                match kept {
                    Some(at) => left = left.min(at),
                    None => gone += 1,
                }
            }
            match page.entries.into_iter().next_back() {
                Some((last, _)) if !end => from = Bound::Excluded(last),
                _ => break 'pages,
            }
        }
        pass.began_at = None;
        self.lower(left);
        Ok(gone)
    }
}

/// Commits what becomes of one entry; its time if it stays.
async fn commit(queue: &Queue, at: u64, entry: Vec<u8>, what: Expired) -> Result<Option<u64>> {
    let without = |effects: SettlementEffects| effects.kv_delete(entry);
    match what {
        Expired::Keep => Ok(Some(at)),
        Expired::Delete(effects) => {
            queue.commit_effects(without(effects)).await?;
            Ok(None)
        }
        Expired::DeleteIf { key, expected, effects } => {
            let done = queue.kv_compare_commit(&key, expected.as_deref(), without(effects)).await?;
            Ok(if done.is_some() { None } else { Some(at) })
        }
    }
}
