//! Whether it is this process's turn to open a store, and as whose successor. Nothing is written until it is.

use std::time::Duration;

use crate::config::{OpenOptions, Takeover};
use crate::env::{self, Instant};
use crate::error::{Error, Result};
use crate::store::db::Location;
use crate::store::outside::{Outside, Owner, Seen};

/// How often a quiet owner is looked at: each quarter of the silence, within these bounds.
const LOOKS_PER_SILENCE: u32 = 4;
/// Looks further apart than this many pauses begin the silence anew.
const GAP_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// An owner that waits for others to fall silent beats so often in the time that they wait for it.
const BEATS_PER_SILENCE: u32 = 3;
/// An owner that beats is not silent before it has left out this many beats.
const BEATS_LEFT_OUT: u32 = 2;

/// How often the owner beats; `None`: it does not.
pub(super) fn heartbeat(options: &OpenOptions) -> Option<Duration> {
    match options.takeover {
        Takeover::Immediate => options.liveness_heartbeat,
        Takeover::WhenSilent(silence) => {
            let most = silence / BEATS_PER_SILENCE;
            Some(options.liveness_heartbeat.map_or(most, |interval| interval.min(most)))
        }
    }
}

/// Refuses what cannot be meant.
pub(super) fn check(options: &OpenOptions) -> Result<()> {
    let refuse = |option, reason| Err(Error::InvalidOption { option, reason });
    if options.liveness_heartbeat.is_some_and(|interval| interval < PAUSE_MIN) {
        return refuse("liveness_heartbeat", "must be at least 10 ms");
    }
    match options.takeover {
        Takeover::WhenSilent(silence) if silence < PAUSE_MIN * LOOKS_PER_SILENCE => {
            refuse("takeover", "the silence must be at least 40 ms")
        }
        _ => Ok(()),
    }
}

/// Returns when the store may be opened: with the number of the takeover that this one must follow, `None` when it may
/// follow any.
pub(super) async fn turn(location: &Location, options: &OpenOptions) -> Result<Option<u64>> {
    let outside = Outside::new(location);
    let absent = || Error::StoreNotInitialized { path: location.path.clone() };
    let silence = match options.takeover {
        Takeover::Immediate if options.create => return Ok(None),
        // That there are rows can be known without them only of a store that is not there.
        Takeover::Immediate => {
            return match outside.look().await? {
                Some(_) if outside.owner().await? != Owner::Unknown => Ok(None),
                _ => Err(absent()),
            };
        }
        Takeover::WhenSilent(silence) => silence,
    };
    match outside.look().await? {
        Some(seen) => {
            let owner = outside.owner().await?;
            match owner {
                _ if owner.is_gone(&seen) => Ok(Some(seen.epoch)),
                Owner::Unknown if !options.create => Err(absent()),
                _ => Watch::new(outside, seen, silence, owner).until_silent().await.map(Some),
            }
        }
        None if options.create => Ok(Some(0)),
        None => Err(absent()),
    }
}

/// A watch over an owner.
struct Watch {
    outside: Outside,
    seen: Seen,
    /// How long the owner must be silent.
    silence: Duration,
    pause: Duration,
    /// Since when nothing has happened, as far as the looks since then can tell.
    quiet_since: Instant,
    /// When the last look ended that saw the store.
    looked_at: Instant,
}

impl Watch {
    fn new(outside: Outside, seen: Seen, silence: Duration, owner: Owner) -> Self {
        let now = env::now();
        let pause = (silence / LOOKS_PER_SILENCE).clamp(PAUSE_MIN, PAUSE_MAX);
        let silence = silence.max(patience(owner));
        Self { outside, seen, silence, pause, quiet_since: now, looked_at: now }
    }

    /// Returns when the owner has closed the store or is silent, with its number.
    async fn until_silent(mut self) -> Result<u64> {
        loop {
            env::sleep(self.pause).await;
            match self.look().await {
                Ok(true) => return Ok(self.seen.epoch),
                Ok(false) => {}
                Err(error @ Error::Storage(_)) => {
                    tracing::warn!(%error, "could not see whether the store's owner lives");
                    self.start_over();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One look; whether the owner has closed the store or is silent.
    async fn look(&mut self) -> Result<bool> {
        let begun = env::now();
        if let Some(seen) = self.outside.news(&self.seen).await? {
            self.seen = seen;
            self.start_over();
            return self.outside.is_signed_off(&self.seen).await;
        }
        // Looks far apart prove nothing: what kept this process from looking (an outage, a machine that slept) may have
        // kept the owner from beating.
        let looked_at = env::now();
        if looked_at - self.looked_at > self.pause * GAP_MAX {
            self.start_over();
            return Ok(false);
        }
        self.looked_at = looked_at;
        if begun - self.quiet_since < self.silence {
            return Ok(false);
        }
        // What it says of itself may have changed since it was read first.
        let owner = self.outside.owner().await?;
        self.looked_at = env::now();
        self.silence = self.silence.max(patience(owner));
        Ok(owner.is_gone(&self.seen) || begun - self.quiet_since >= self.silence)
    }

    /// The silence begins anew.
    fn start_over(&mut self) {
        self.quiet_since = env::now();
        self.looked_at = self.quiet_since;
    }
}

/// How long an owner may be silent by its own account.
fn patience(owner: Owner) -> Duration {
    match owner {
        Owner::Has { interval } => interval.saturating_mul(BEATS_LEFT_OUT),
        Owner::Unknown | Owner::Closed { .. } => Duration::ZERO,
    }
}
