//! Changes that a step or a hook stages and that commit with its settlement: checked when staged, so that nothing a
//! runner stages can make its settlement fail. Owns no commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use taquba::{EnqueueRequest, MAX_KV_VALUE_SIZE, SettlementEffects};

use crate::error::{Error, Result};
use crate::lifecycle::limits::{MAX_KV_KEY_LEN, MAX_STAGED_BYTES, MAX_STAGED_ENTRIES};
use crate::names::{is_reserved_header, is_reserved_key};

/// What has been staged so far.
#[derive(Debug, Default)]
struct Staged {
    puts: BTreeMap<Vec<u8>, Vec<u8>>,
    deletes: BTreeSet<Vec<u8>>,
    enqueues: Vec<EnqueueRequest>,
    size: usize,
    sealed: bool,
}

impl Staged {
    fn entries(&self) -> usize {
        self.puts.len() + self.deletes.len() + self.enqueues.len()
    }

    /// Books an entry of `added` bytes that takes the place of one of `removed` bytes, if it fits.
    fn book(&mut self, added: usize, removed: Option<usize>) -> Result<()> {
        let entries = self.entries() + usize::from(removed.is_none());
        check("number of staged effects", entries, MAX_STAGED_ENTRIES)?;
        let size = self.size + added - removed.unwrap_or(0);
        check("staged effects", size, MAX_STAGED_BYTES)?;
        self.size = size;
        Ok(())
    }
}

/// What is staged, shared by all clones of a handle.
#[derive(Debug, Clone, Default)]
struct Staging(Arc<Mutex<Staged>>);

impl Staging {
    fn open(&self) -> Result<MutexGuard<'_, Staged>> {
        let staged = self.lock();
        if staged.sealed { Err(Error::EffectsSealed) } else { Ok(staged) }
    }

    fn lock(&self) -> MutexGuard<'_, Staged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        check_key(&key)?;
        if value.len() > MAX_KV_VALUE_SIZE {
            let size = value.len();
            return Err(taquba::Error::KvValueTooLarge { size, max: MAX_KV_VALUE_SIZE }.into());
        }
        let mut staged = self.open()?;
        if staged.deletes.contains(&key) {
            return Err(conflict(&key));
        }
        let replaced = staged.puts.get(&key).map(|old| key.len() + old.len());
        staged.book(key.len() + value.len(), replaced)?;
        staged.puts.insert(key, value);
        Ok(())
    }

    fn delete(&self, key: Vec<u8>) -> Result<()> {
        check_key(&key)?;
        let mut staged = self.open()?;
        if staged.puts.contains_key(&key) {
            return Err(conflict(&key));
        }
        let replaced = staged.deletes.contains(&key).then_some(key.len());
        staged.book(key.len(), replaced)?;
        staged.deletes.insert(key);
        Ok(())
    }

    fn enqueue(&self, request: EnqueueRequest) -> Result<()> {
        let mut staged = self.open()?;
        let headers = request.options.headers.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        staged.book(request.payload.len() + headers, None)?;
        staged.enqueues.push(request);
        Ok(())
    }

    fn seal(&self) -> SettlementEffects {
        let mut staged = self.lock();
        staged.sealed = true;
        let Staged { puts, deletes, enqueues, .. } = std::mem::take(&mut *staged);
        staged.sealed = true;
        SettlementEffects::default()
            .enqueues(enqueues)
            .kv_writes(puts.into_iter().collect())
            .kv_deletes(deletes.into_iter().collect())
    }
}

/// Stages KV changes that commit with the step's settlement, or not at all.
///
/// They commit when the step returns an outcome; they are dropped when it returns an error, and when the run was
/// cancelled from outside meanwhile (unless the step itself returns [`StepOutcome::Cancel`](crate::StepOutcome::Cancel)).
/// Clones stage into the same set. At most 980 entries and 2 MiB of keys and values.
#[derive(Debug, Clone)]
pub struct EffectsHandle {
    staging: Staging,
}

impl EffectsHandle {
    /// A handle whose effects go nowhere, for a runner's own tests.
    #[must_use]
    pub fn detached() -> Self {
        Self { staging: Staging::default() }
    }

    /// Stages a KV write; a second write of the same key replaces the first. Nothing is durable until the step
    /// settles.
    ///
    /// # Errors
    /// [`Error::ReservedKvKey`]; [`Error::ConflictingKvEffect`] when the key's delete is staged;
    /// [`Error::EffectsSealed`] once the step has returned; [`Error::Queue`] with `KvValueTooLarge` past 256 KiB, or
    /// `TooLarge` for a key past 1 KiB or when the set is full. The set stays as it was.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.staging.put(key.into(), value.into())
    }

    /// Stages a KV delete. Nothing is durable until the step settles.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::ConflictingKvEffect`] when a write of the key is staged.
    pub fn delete(&self, key: impl Into<Vec<u8>>) -> Result<()> {
        self.staging.delete(key.into())
    }

    /// Begins the time in which effects may be staged.
    pub(crate) fn open_until_sealed(&self) -> OpenEffects<'_> {
        OpenEffects(&self.staging)
    }
}

/// The time in which a step or a hook may stage effects. It ends with [`seal`](Self::seal), and with everything else
/// that ends the future of the step: a panic, a drop.
#[derive(Debug)]
pub(crate) struct OpenEffects<'a>(&'a Staging);

impl OpenEffects<'_> {
    /// Takes what was staged; later staging is refused.
    pub(crate) fn seal(self) -> SettlementEffects {
        self.0.seal()
    }
}

impl Drop for OpenEffects<'_> {
    fn drop(&mut self) {
        drop(self.0.seal());
    }
}

/// Stages changes that commit with the acknowledgement of the run's notification: once, however often the hook runs.
///
/// They are dropped when the hook returns an error. At most 980 entries and 2 MiB.
#[derive(Debug, Clone)]
pub struct TerminalEffects {
    staging: Staging,
    /// The runtime's own queue, which effects must not enqueue to.
    queue: Option<Arc<str>>,
}

impl TerminalEffects {
    /// Effects that go nowhere, for a hook's own tests.
    #[must_use]
    pub fn detached() -> Self {
        Self { staging: Staging::default(), queue: None }
    }

    pub(crate) fn new(queue: &str) -> Self {
        Self { staging: Staging::default(), queue: Some(queue.into()) }
    }

    /// Stages a job for another queue. Nothing is durable until the hook has returned `Ok` and its job settles.
    ///
    /// # Errors
    /// [`Error::ReservedQueue`] for the runtime's own queue; [`Error::ReservedHeaderInSubmit`];
    /// [`Error::EffectsSealed`] once the hook has returned; [`Error::Queue`] with `TooLarge` when the set is full.
    pub fn enqueue(&self, request: EnqueueRequest) -> Result<()> {
        check_request(&request, self.queue.as_deref())?;
        self.staging.enqueue(request)
    }

    /// Stages a KV write, as [`EffectsHandle::put`] does.
    ///
    /// # Errors
    /// As [`EffectsHandle::put`].
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.staging.put(key.into(), value.into())
    }

    /// Stages a KV delete, as [`EffectsHandle::delete`] does.
    ///
    /// # Errors
    /// As [`EffectsHandle::delete`].
    pub fn delete(&self, key: impl Into<Vec<u8>>) -> Result<()> {
        self.staging.delete(key.into())
    }

    /// Begins the time in which effects may be staged.
    pub(crate) fn open_until_sealed(&self) -> OpenEffects<'_> {
        OpenEffects(&self.staging)
    }
}

/// Refuses the effects of a submission that reach into what is the runtime's.
pub(crate) fn check_effects(effects: &SettlementEffects, queue: &str) -> Result<()> {
    for key in effects.kv_writes.keys().chain(&effects.kv_deletes) {
        check_reserved(key)?;
    }
    effects.enqueues.iter().try_for_each(|request| check_request(request, Some(queue)))
}

/// Refuses a header that begins with the reserved prefix.
pub(crate) fn check_headers<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<()> {
    match names.find(|name| is_reserved_header(name)) {
        Some(name) => Err(Error::ReservedHeaderInSubmit(name.clone())),
        None => Ok(()),
    }
}

/// Refuses `size` past `max`, naming `what` was too large.
pub(crate) fn check(what: &'static str, size: usize, max: usize) -> Result<()> {
    if size > max {
        return Err(taquba::Error::TooLarge { what, size, max }.into());
    }
    Ok(())
}

fn check_request(request: &EnqueueRequest, own_queue: Option<&str>) -> Result<()> {
    check_headers(request.options.headers.keys())?;
    if own_queue == Some(request.queue.as_str()) {
        return Err(Error::ReservedQueue(request.queue.clone()));
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<()> {
    check_reserved(key)?;
    check("KV key", key.len(), MAX_KV_KEY_LEN)
}

fn check_reserved(key: &[u8]) -> Result<()> {
    if is_reserved_key(key) {
        return Err(Error::ReservedKvKey(String::from_utf8_lossy(key).into_owned()));
    }
    Ok(())
}

fn conflict(key: &[u8]) -> Error {
    Error::ConflictingKvEffect(String::from_utf8_lossy(key).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_staged_comes_out_once_and_then_the_handle_is_sealed() {
        let effects = EffectsHandle::detached();
        let kept = effects.clone();
        effects.put("a", "1").unwrap();
        effects.put("a", "2").unwrap();
        effects.delete("b").unwrap();
        effects.delete("b").unwrap();
        effects.put("", "").unwrap();
        let staged = effects.open_until_sealed().seal();
        assert_eq!(staged.kv_writes.len(), 2);
        assert_eq!(staged.kv_writes[b"a".as_slice()], b"2");
        assert_eq!(staged.kv_deletes, [b"b"]);
        assert!(matches!(kept.put("c", ""), Err(Error::EffectsSealed)));
        assert!(matches!(kept.delete("c"), Err(Error::EffectsSealed)));
        assert!(effects.open_until_sealed().seal().kv_writes.is_empty());
    }

    #[test]
    fn dropping_the_guard_seals() {
        let effects = EffectsHandle::detached();
        effects.put("a", "1").unwrap();
        drop(effects.open_until_sealed());
        assert!(matches!(effects.put("a", ""), Err(Error::EffectsSealed)));
        assert!(effects.open_until_sealed().seal().kv_writes.is_empty());
    }

    #[test]
    fn a_refused_effect_leaves_the_set_as_it_was() {
        let effects = EffectsHandle::detached();
        effects.put("a", "1").unwrap();
        effects.delete("b").unwrap();
        assert!(matches!(effects.delete("a"), Err(Error::ConflictingKvEffect(k)) if k == "a"));
        assert!(matches!(effects.put("b", ""), Err(Error::ConflictingKvEffect(k)) if k == "b"));
        assert!(matches!(effects.put("workflow/x", ""), Err(Error::ReservedKvKey(_))));
        assert!(matches!(effects.delete("workflow/x"), Err(Error::ReservedKvKey(_))));
        assert!(matches!(
            effects.put("c", vec![0; MAX_KV_VALUE_SIZE + 1]),
            Err(Error::Queue(taquba::Error::KvValueTooLarge { size: 262_145, max: 262_144 }))
        ));
        assert!(matches!(
            effects.put(vec![b'k'; 1_025], ""),
            Err(Error::Queue(taquba::Error::TooLarge { what: "KV key", .. }))
        ));
        let staged = effects.open_until_sealed().seal();
        assert_eq!(staged.kv_writes, [(b"a".to_vec(), b"1".to_vec())].into());
        assert_eq!(staged.kv_deletes, [b"b"]);
    }

    #[test]
    fn a_set_is_bounded_in_entries_and_bytes() {
        let effects = EffectsHandle::detached();
        for i in 0..MAX_STAGED_ENTRIES {
            effects.put(i.to_string(), "").unwrap();
        }
        assert!(effects.put("more", "").is_err());
        assert!(effects.delete("more").is_err());
        effects.put("0", "replaced").unwrap();

        let effects = EffectsHandle::detached();
        for i in 0..8 {
            effects.put(i.to_string(), vec![0; MAX_KV_VALUE_SIZE - 1]).unwrap();
        }
        assert!(effects.put("x", "").is_err());
        effects.put("0", "").unwrap();
        effects.put("x", "").unwrap();
    }

    #[test]
    fn a_hook_cannot_reach_into_its_own_runtime() {
        let effects = TerminalEffects::new("steps");
        let request = |queue: &str| EnqueueRequest { queue: queue.into(), ..Default::default() };
        effects.enqueue(request("mail")).unwrap();
        assert!(matches!(effects.enqueue(request("steps")), Err(Error::ReservedQueue(_))));
        let mut forged = request("mail");
        forged.options.headers.insert("workflow.run_id".into(), "r".into());
        assert!(matches!(effects.enqueue(forged), Err(Error::ReservedHeaderInSubmit(_))));
        assert_eq!(effects.open_until_sealed().seal().enqueues.len(), 1);
        assert!(matches!(effects.enqueue(request("mail")), Err(Error::EffectsSealed)));
        TerminalEffects::detached().enqueue(request("steps")).unwrap();
    }
}
