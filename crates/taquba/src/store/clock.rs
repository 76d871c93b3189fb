//! SlateDB's clock: the host's wall time, never below a floor. SlateDB closes a store whose clock lags what it stored
//! last, so a host that is an hour behind starts at the floor. Never the queue's clock: SlateDB's retries sleep on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use slatedb_common::clock::{SystemClock, SystemClockTicker};

use crate::env;

/// See the module.
#[derive(Debug)]
pub(crate) struct StoreClock {
    floor_ms: AtomicU64,
    behind_ms: u64,
}

impl StoreClock {
    /// A clock of a host whose own lags the real one this much.
    pub(crate) fn behind(behind_ms: u64) -> Self {
        Self { floor_ms: AtomicU64::new(0), behind_ms }
    }

    /// The time, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        let wall_ms = env::wall_ms().saturating_sub(self.behind_ms);
        wall_ms.max(self.floor_ms.load(Ordering::SeqCst))
    }

    /// From now on the time is never below `floor_ms`.
    pub(crate) fn raise(&self, floor_ms: u64) {
        self.floor_ms.fetch_max(floor_ms, Ordering::SeqCst);
    }
}

impl SystemClock for StoreClock {
    fn now(&self) -> DateTime<Utc> {
        let now_ms = i64::try_from(self.now_ms()).unwrap_or(i64::MAX);
        DateTime::from_timestamp_millis(now_ms).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(env::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}
