//! SlateDB's clock: the host's wall time that never goes back, never below a floor. SlateDB closes a store whose clock
//! lags what it stored last, so a host that is an hour behind starts at the floor, and one that is set back while the
//! store is open stands still until its time has come again. Never the queue's clock: SlateDB's retries sleep on it.

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
        self.at_wall(env::wall_ms().saturating_sub(self.behind_ms))
    }

    fn at_wall(&self, wall_ms: u64) -> u64 {
        wall_ms.max(self.floor_ms.fetch_max(wall_ms, Ordering::SeqCst))
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

#[cfg(test)]
mod tests {
    use super::StoreClock;

    #[test]
    fn a_host_set_back_stands_still_until_its_time_has_come_again() {
        let clock = StoreClock::behind(0);
        let told = [5_000, 5_001, 1_400, 5_000, 5_002].map(|wall_ms| clock.at_wall(wall_ms));
        assert_eq!(told, [5_000, 5_001, 5_001, 5_001, 5_002]);
        clock.raise(9_000);
        assert_eq!([5_003, 9_001].map(|wall_ms| clock.at_wall(wall_ms)), [9_000, 9_001]);
    }
}
