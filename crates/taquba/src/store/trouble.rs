//! What the object store last refused, remembered for errors that otherwise could say only "it took too long". SlateDB
//! retries for ever and in silence, so the wrapper under it tells here; it owns no retry and no decision to give up.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::env::{self, Instant};
use crate::object_store::Error;

/// Least time between two warnings about the same operation: an outage is told, not counted.
const WARN_PAUSE: Duration = Duration::from_secs(10);

/// See the module. One for both stores of a path.
#[derive(Debug)]
pub(crate) struct Trouble {
    path: String,
    memory: Mutex<Memory>,
    /// Whether the store has refused a request for want of permission: that does not pass by waiting.
    refused: watch::Sender<bool>,
    /// Nobody waits for this store any more.
    given_up: AtomicBool,
}

#[derive(Debug)]
struct Memory {
    last: Option<(Instant, String)>,
    warned: BTreeMap<&'static str, Instant>,
    /// When a request last succeeded; before the first one, when this began.
    answered: Instant,
}

impl Trouble {
    pub(crate) fn new(path: &str) -> Self {
        let memory = Memory { last: None, warned: BTreeMap::new(), answered: env::now() };
        let refused = watch::Sender::new(false);
        let given_up = AtomicBool::new(false);
        Self { path: path.to_owned(), memory: Mutex::new(memory), refused, given_up }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request ended so.
    pub(crate) fn note<T>(&self, what: &'static str, object: &str, result: &Result<T, Error>) {
        match result {
            // An answer like any other: there is no such object, or there is one already, or not in this way.
            Ok(_)
            | Err(
                Error::NotFound { .. }
                | Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotModified { .. }
                | Error::NotSupported { .. }
                | Error::NotImplemented { .. },
            ) => self.memory().answered = env::now(),
            Err(error) => self.failed(what, object, error),
        }
    }

    fn failed(&self, what: &'static str, object: &str, error: &Error) {
        let told =
            self.memory().remember(env::now(), what, format!("{what} of {object:?}: {error}"));
        if told {
            let path = &self.path;
            tracing::warn!(%path, operation = what, object, %error, "the object store fails; trying again");
        }
        if is_refusal(error) {
            self.refused.send_replace(true);
        }
    }

    /// Refuses a request of an open that was given up, with an error that nobody tries again. SlateDB's own tasks would
    /// go on, and take the store over when it comes back.
    pub(crate) fn check_wanted(&self) -> Result<(), Error> {
        if self.given_up.load(Ordering::SeqCst) {
            return Err(Error::NotSupported {
                source: "the open of this store was given up".into(),
            });
        }
        Ok(())
    }

    /// What the store last answered that was no success, if that was at `since` or later.
    pub(crate) fn last_since(&self, since: Instant) -> Option<String> {
        self.memory().last.as_ref().filter(|(at, _)| *at >= since).map(|(_, text)| text.clone())
    }

    /// Returns when the store refuses for want of permission, or has.
    pub(crate) async fn refused(&self) {
        // The sender lives as long as this.
        drop(self.refused.subscribe().wait_for(|refused| *refused).await);
    }

    /// Returns when no request has succeeded for `patience`.
    pub(crate) async fn silent_for(&self, patience: Duration) {
        loop {
            let until = self.memory().answered.checked_add(patience);
            match until {
                Some(until) if env::now() >= until => return,
                Some(until) => env::sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }
}

/// An open under way. Unless it comes to an open store, whoever ends or drops it, no request is sent any more.
pub(crate) struct Opening(Option<Arc<Trouble>>);

impl Opening {
    pub(crate) fn new(trouble: &Arc<Trouble>) -> Self {
        Self(Some(Arc::clone(trouble)))
    }

    /// The store is open.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(trouble) = &self.0 {
            trouble.given_up.store(true, Ordering::SeqCst);
        }
    }
}

impl Memory {
    /// Keeps the text; whether it is time to tell it.
    fn remember(&mut self, now: Instant, what: &'static str, text: String) -> bool {
        self.last = Some((now, text));
        let rested = self.warned.get(what).is_none_or(|at| now.duration_since(*at) >= WARN_PAUSE);
        if rested {
            self.warned.insert(what, now);
        }
        rested
    }
}

/// Whether the store says that it must not, which no retry changes. A local folder says it deep inside.
fn is_refusal(error: &Error) -> bool {
    if matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) {
        return true;
    }
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = next {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
        {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(kind: io::ErrorKind) -> Error {
        Error::Generic { store: "test", source: io::Error::from(kind).into() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_of_an_operation_is_told_and_then_one_in_ten_seconds() {
        let trouble = Trouble::new("p");
        let start = env::now();
        let mut memory = trouble.memory();
        let mut told = |after, what| {
            memory.remember(start + Duration::from_millis(after), what, String::new())
        };
        assert!(told(0, "PUT"));
        assert!(!told(1, "PUT"));
        assert!(told(2, "GET"));
        assert!(!told(9_999, "PUT"));
        assert!(told(10_000, "PUT"));
        assert!(!told(19_999, "PUT"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_last_said_names_operation_object_and_error_and_grows_old() {
        let trouble = Trouble::new("p");
        let start = env::now();
        trouble.note::<()>("PUT", "p/wal/1", &Err(generic(io::ErrorKind::ConnectionRefused)));
        let said = trouble.last_since(start).unwrap();
        assert!(said.starts_with("PUT of \"p/wal/1\": "), "{said}");
        assert!(said.contains("connection refused"), "{said}");
        env::sleep(Duration::from_millis(1)).await;
        assert_eq!(trouble.last_since(env::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_want_of_permission_is_a_refusal() {
        let denied = || Error::PermissionDenied { path: "x".into(), source: "403".into() };
        for refusal in [
            denied(),
            Error::Unauthenticated { path: "x".into(), source: "401".into() },
            generic(io::ErrorKind::PermissionDenied),
            generic(io::ErrorKind::ReadOnlyFilesystem),
        ] {
            assert!(is_refusal(&refusal), "{refusal}");
        }
        assert!(!is_refusal(&generic(io::ErrorKind::ConnectionRefused)));
        assert!(!is_refusal(&Error::NotFound { path: "x".into(), source: "404".into() }));
        let trouble = Trouble::new("p");
        let limit = Duration::from_secs(1);
        assert!(env::within(limit, trouble.refused()).await.is_none());
        trouble.note::<()>("PUT", "x", &Err(denied()));
        assert!(env::within(limit, trouble.refused()).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_answers_is_not_silent_and_one_that_only_fails_is() {
        let trouble = Trouble::new("p");
        let start = env::now();
        let second = Duration::from_secs(1);
        env::sleep(second).await;
        trouble.note("GET", "x", &Ok(()));
        env::sleep(second).await;
        trouble.note::<()>("PUT", "x", &Err(generic(io::ErrorKind::ConnectionRefused)));
        trouble.silent_for(5 * second).await;
        assert_eq!(env::now() - start, 6 * second);
    }
}
