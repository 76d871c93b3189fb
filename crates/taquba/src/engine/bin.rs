//! Where payload objects go that nothing needs any more: one task deletes them, many at a time, best effort. What it
//! misses, the sweep of orphans finds; no call ever fails or waits for it.

use tokio::sync::{mpsc, oneshot};

use crate::lifecycle::job::ObjectName;
use crate::store::objects::Objects;

/// Objects that wait to be deleted at most (2 MiB of names); what is thrown past it is left to the sweep.
const WAITING_MAX: usize = 65_536;
/// Objects of one deletion: what S3 takes in one request.
const AT_ONCE: usize = 1_000;

/// What the task is told.
pub(crate) enum Thrown {
    Object(ObjectName),
    /// Say when everything thrown before this is dealt with.
    Emptied(oneshot::Sender<()>),
}

/// Where to throw objects. Only what no record names, and none ever will, may be thrown.
#[derive(Debug, Clone)]
pub(crate) struct Bin {
    to: mpsc::Sender<Thrown>,
}

impl Bin {
    /// A bin, and what its task takes out.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Thrown>) {
        let (to, thrown) = mpsc::channel(WAITING_MAX);
        (Self { to }, thrown)
    }

    pub(crate) fn throw(&self, name: ObjectName) {
        if self.to.try_send(Thrown::Object(name)).is_err() {
            tracing::debug!(%name, "a payload object is left to the sweep");
        }
    }

    /// Returns when everything thrown before is dealt with.
    pub(crate) async fn emptied(&self) {
        let (done, emptied) = oneshot::channel();
        if self.to.send(Thrown::Emptied(done)).await.is_ok() {
            // Without the task nothing more is deleted.
            drop(emptied.await);
        }
    }
}

/// Deletes what is thrown, until nobody can throw any more.
pub(crate) async fn run(objects: Objects, mut thrown: mpsc::Receiver<Thrown>) {
    let mut some = Vec::new();
    while thrown.recv_many(&mut some, AT_ONCE).await > 0 {
        let (mut names, mut waiting) = (Vec::new(), Vec::new());
        for thrown in some.drain(..) {
            match thrown {
                Thrown::Object(name) => names.push(name),
                Thrown::Emptied(done) => waiting.push(done),
            }
        }
        if !names.is_empty() {
            objects.delete(&names).await;
        }
        for done in waiting {
            // Whoever waited may have gone.
            done.send(()).unwrap_or_default();
        }
    }
}

/// The object of a job whose record is gone, durably. It is deleted when the last who needs it lets go of this.
#[derive(Debug)]
pub(crate) struct Doomed {
    name: ObjectName,
    bin: Bin,
}

impl Doomed {
    pub(crate) fn new(name: ObjectName, bin: Bin) -> Self {
        Self { name, bin }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.bin.throw(self.name);
    }
}
