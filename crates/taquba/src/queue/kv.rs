//! A caller's own rows in the store. Every call here is durable when it returns.

use bytes::Bytes;

use super::Queue;
use crate::effects::SettlementEffects;
use crate::engine::Lane;
use crate::engine::prepare::size_of;
use crate::engine::request::Op;
use crate::error::Result;
use crate::limits;
use crate::record::EnqueueResult;
use crate::store::keys;

impl Queue {
    /// Writes a row. Keys of at most 1 KiB (empty is legal), values of at most 256 KiB. Durable on return.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::KvValueTooLarge`](crate::Error::KvValueTooLarge);
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); [`Error::Closed`](crate::Error::Closed).
    pub async fn kv_put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.commit_effects(SettlementEffects::default().kv_put(key, value)).await.map(drop)
    }

    /// Deletes a row, present or not. Durable on return.
    ///
    /// # Errors
    /// As [`kv_put`](Self::kv_put).
    pub async fn kv_delete(&self, key: &[u8]) -> Result<()> {
        self.commit_effects(SettlementEffects::default().kv_delete(key)).await.map(drop)
    }

    /// Writes a row if it has the expected value (`None`: is absent); whether it did. Durable on return, either way.
    ///
    /// # Errors
    /// As [`kv_put`](Self::kv_put).
    pub async fn kv_compare_put(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool> {
        let effects = SettlementEffects::default().kv_put(key, value);
        self.kv_compare_commit(key, expected, effects).await.map(|done| done.is_some())
    }

    /// Deletes a row if it has the expected value; whether it did. Durable on return, either way.
    ///
    /// # Errors
    /// As [`kv_put`](Self::kv_put).
    pub async fn kv_compare_delete(&self, key: &[u8], expected: &[u8]) -> Result<bool> {
        let effects = SettlementEffects::default().kv_delete(key);
        self.kv_compare_commit(key, Some(expected), effects).await.map(|done| done.is_some())
    }

    /// Applies effects if a row has the expected value (`None`: is absent); `None` when it has not, and then nothing
    /// is changed. Durable on return, either way.
    ///
    /// # Errors
    /// As [`kv_put`](Self::kv_put) and [`commit_effects`](Self::commit_effects).
    pub async fn kv_compare_commit(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        effects: SettlementEffects,
    ) -> Result<Option<Vec<EnqueueResult>>> {
        limits::check_kv(key, expected)?;
        let mut effects = self.shared.configs.effects(effects)?;
        self.shared.upload(&mut effects).await?;
        let compares = vec![(keys::kv(key), expected.map(Bytes::copy_from_slice))];
        let bytes = size_of(&effects);
        let op = |reply| Op::Compare { compares, effects, reply };
        self.shared.call(Lane::Intake, bytes, op).await
    }
}
