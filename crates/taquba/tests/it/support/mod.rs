//! What the integration tests share: a store that dies on demand, a seeded generator, a naive queue and its comparison
//! with the real one, an audit of the raw rows, and the one place where tests wait.

pub(crate) mod audit;
pub(crate) mod gen_ops;
pub(crate) mod kill;
pub(crate) mod naive;
pub(crate) mod op;
pub(crate) mod program;
pub(crate) mod read_only;
pub(crate) mod real;
pub(crate) mod rng;
pub(crate) mod shelf;
pub(crate) mod toll;

use std::time::Duration;

/// Waits for `future` for at most 10 s of real time; a call that hangs is a failure, and this says which.
#[expect(clippy::disallowed_methods, reason = "the one place where tests bound a wait")]
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(Duration::from_secs(10), future).await {
        Ok(output) => output,
        Err(_) => panic!("hangs: {what}"),
    }
}

/// The test's monotonic time, which a paused test drives.
#[expect(clippy::disallowed_methods, reason = "the one place where tests read the time")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
