//! The inbox: requests of other processes in plain objects. A task beside the engine looks for them and sends them through
//! it like anybody's commands; it decides nothing and writes nothing but deletions of what is done.

mod group;
mod pass;
mod sender;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::Queue;
use crate::config::OpenOptions;
use crate::engine::Shared;
use crate::engine::request::Request;
use crate::env;
use crate::env::millis;
use crate::error::{CloseReason, Error, Result};
use crate::inbox::names::Folder;
use crate::inbox::{InboxOptions, default_inbox_path};
use crate::name::QueueName;
use crate::object_store::ObjectStore;
use crate::object_store::path::Path;
use crate::store::deadline::Deadline;
use crate::store::objects::overlap;
use pass::Applier;

pub use sender::InboxSender;

/// Longest pause after a pass that did not do everything.
const TRY_AGAIN: Duration = Duration::from_secs(5);

type Wish = oneshot::Sender<Result<usize>>;

/// What a handle knows of its inbox.
pub(super) struct Inbox {
    queues: BTreeSet<String>,
    retention: Duration,
    passes: mpsc::UnboundedSender<Wish>,
}

/// An inbox, checked, before the store is open.
pub(super) struct Plan {
    options: InboxOptions,
    store: Arc<dyn ObjectStore>,
    folder: Folder,
}

impl Plan {
    /// The inbox that a store is opened with, if any.
    pub(super) fn of(
        path: &str,
        main: &Arc<dyn ObjectStore>,
        options: &OpenOptions,
    ) -> Result<Option<Self>> {
        let Some(inbox) = &options.inbox else { return Ok(None) };
        for (option, zero) in [
            ("inbox.interval", inbox.interval.is_zero()),
            ("inbox.touch_poll_interval", inbox.touch_poll_interval.is_some_and(|d| d.is_zero())),
            ("inbox.record_retention", inbox.record_retention.is_zero()),
        ] {
            if zero {
                return Err(Error::InvalidOption { option, reason: "must not be zero" });
            }
        }
        for queue in &inbox.queues {
            QueueName::new(queue.clone())?;
        }
        let at = inbox.path.clone().unwrap_or_else(|| default_inbox_path(path));
        if overlap(&Path::from(path), &Path::from(at.as_str())) {
            return Err(Error::InboxPathWithinQueue { path: at, queue_path: path.to_owned() });
        }
        let store = Arc::clone(inbox.object_store.as_ref().unwrap_or(main));
        Ok(Some(Self {
            options: inbox.clone(),
            store: Arc::new(Deadline::aside(store, options.store_request_timeout, &at)),
            folder: Folder::new(&at),
        }))
    }

    /// Applies what is there, and starts to look for what comes.
    pub(super) async fn start(self, shared: &Arc<Shared>) -> Result<Inbox> {
        let queues: BTreeSet<String> = self.options.queues.iter().cloned().collect();
        let retention = self.options.record_retention;
        let mut applier = Applier::new(
            Arc::clone(shared),
            self.store,
            self.folder,
            queues.clone(),
            millis(retention),
        );
        // Asked before it is listed: what is sent after the listing touches once more.
        applier.is_touched().await;
        let complete = match applier.pass().await {
            Ok(passed) => passed.left == 0,
            Err(error @ Error::Closed(_)) => return Err(error),
            // An inbox out of reach must not keep the queue from its work.
            Err(error) => {
                tracing::warn!(%error, "the inbox could not be applied at open; trying again");
                false
            }
        };
        let (passes, asked) = mpsc::unbounded_channel();
        let rhythm =
            Rhythm { interval: self.options.interval, touch: self.options.touch_poll_interval };
        tokio::spawn(run(applier, rhythm, complete, asked, shared.closed.subscribe()));
        Ok(Inbox { queues, retention, passes })
    }
}

/// How often the task looks.
#[derive(Clone, Copy)]
struct Rhythm {
    interval: Duration,
    touch: Option<Duration>,
}

impl Rhythm {
    /// When to list next, whether touched or not.
    fn next_list(&self, complete: bool) -> env::Instant {
        env::now() + if complete { self.interval } else { self.interval.min(TRY_AGAIN) }
    }
}

/// Looks for entries and applies them, one pass at a time, until the store ends. What a pass has sent by then happens all
/// the same; its objects are found by the next owner, and their records.
async fn run(
    mut applier: Applier,
    rhythm: Rhythm,
    complete: bool,
    mut asked: mpsc::UnboundedReceiver<Wish>,
    mut closed: watch::Receiver<Option<CloseReason>>,
) {
    let work = async {
        let mut next_list = rhythm.next_list(complete);
        loop {
            let touch = rhythm.touch.map(|every| env::now() + every);
            let wake = touch.map_or(next_list, |at| at.min(next_list));
            let wish = tokio::select! {
                Some(wish) = asked.recv() => Some(wish),
                () = env::sleep_until(wake) => None,
            };
            let due = wish.is_some() || env::now() >= next_list;
            if !due && !applier.is_touched().await {
                continue;
            }
            let passed = applier.pass().await;
            if let Err(error) = &passed {
                tracing::warn!(%error, "a pass over the inbox ended early; trying again");
            }
            next_list = rhythm.next_list(passed.as_ref().is_ok_and(|passed| passed.left == 0));
            if let Some(wish) = wish {
                // Who asked may have gone.
                drop(wish.send(passed.map(|passed| passed.done)));
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = closed.wait_for(Option::is_some) => {}
    }
}

impl Queue {
    /// Applies what waits in the inbox now, instead of when its time comes; returns how many entries were dealt with, those
    /// that were rejected included. 0 without an inbox. What they did is durable on return.
    ///
    /// # Errors
    /// [`Error::InboxStore`] when the inbox cannot be listed; [`Error::PayloadStore`] when a large payload cannot be
    /// uploaded; [`Error::NotConfirmed`]; [`Error::Closed`]. What was not applied stays where it is.
    ///
    /// # Cancel safety
    /// The pass goes on.
    pub async fn apply_inbox_now(&self) -> Result<usize> {
        self.shared.check_open()?;
        let Some(inbox) = &self.inbox else { return Ok(0) };
        let (wish, answer) = oneshot::channel();
        inbox.passes.send(wish).map_err(|_| self.shared.closed_error())?;
        self.shared.in_time(self.shared.answer(answer)).await
    }

    /// Tells whether entries for this queue are taken from the inbox.
    #[must_use]
    pub fn inbox_accepts(&self, queue: &str) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.queues.contains(queue))
    }

    /// Returns how long it is remembered what became of an inbox entry; `None` without an inbox.
    #[must_use]
    pub fn inbox_record_retention(&self) -> Option<Duration> {
        self.inbox.as_ref().map(|inbox| inbox.retention)
    }
}

/// Says that the whole inbox was looked at.
fn looked_at_all(shared: &Shared, keep_ms: u64) -> Result<()> {
    shared.post(Request::KeepEntries(keep_ms))
}
