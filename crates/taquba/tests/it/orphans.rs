//! The sweep of orphaned payload objects, attacked: uploads in flight, calls dropped half way, a process that dies at any
//! request, several openings, and an owner that does not know yet that it was replaced and goes on uploading, settling
//! and sweeping. At no moment may a stored record lack its object; in the end nothing is left over.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use taquba::object_store::ObjectStoreExt;
use taquba::object_store::memory::InMemory;
use taquba::{EnqueueOptions, EnqueueRequest, Error, OpenOptions, Queue, SettlementEffects};

use crate::support::audit::audit;
use crate::support::kill::{Kill, KillStore};
use crate::support::rng::{Rng, seeds};
use crate::support::shelf::Shelf;
use crate::support::within;

const PATH: &str = "store";

#[test]
fn a_sweep_never_takes_what_a_record_names_and_leaves_nothing_else() {
    for seed in seeds(12) {
        let on_failure = SayOnPanic(seed);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
        drop(on_failure);
    }
}

struct SayOnPanic(u64);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with TAQUBA_SEED={}", self.0);
        }
    }
}

/// What is known of the jobs, whoever enqueued them. Payloads are unique.
#[derive(Default)]
struct Known {
    next: u64,
    confirmed: BTreeSet<Vec<u8>>,
    /// Handed to somebody who wanted to settle it, or cancelled.
    taken: BTreeSet<Vec<u8>>,
}

struct World {
    bytes: Arc<InMemory>,
    known: Mutex<Known>,
}

impl World {
    fn payload(&self) -> Vec<u8> {
        let mut known = self.known.lock().unwrap();
        known.next += 1;
        format!("payload {}", known.next).into_bytes()
    }

    fn confirm(&self, payload: Vec<u8>) {
        self.known.lock().unwrap().confirmed.insert(payload);
    }

    fn take(&self, payload: Vec<u8>) {
        self.known.lock().unwrap().taken.insert(payload);
    }

    /// What was confirmed and is neither found nor taken.
    fn lost(&self, found: &BTreeSet<Vec<u8>>) -> Vec<String> {
        let known = self.known.lock().unwrap();
        let there = |payload: &&Vec<u8>| found.contains(*payload) || known.taken.contains(*payload);
        let lost = known.confirmed.iter().filter(|payload| !there(payload));
        lost.map(|payload| String::from_utf8_lossy(payload).into_owned()).collect()
    }

    async fn open(&self, kill: Kill, rng: &mut Rng) -> Result<Queue, Error> {
        let store = KillStore::new(Arc::clone(&self.bytes), kill);
        let shelf = Shelf::new(Arc::new(store), Rng::new(rng.next()), 1 + rng.below(12));
        let options = OpenOptions {
            payload_offload_threshold: Some(0),
            call_timeout: Duration::from_secs(5),
            ..OpenOptions::default()
        };
        let open = Queue::open_with_options(Arc::new(shelf), PATH, options);
        within("open", open).await
    }

    /// Everything that is stored at this moment fits.
    async fn audit(&self) -> BTreeSet<String> {
        audit(&Arc::new(self.bytes.fork()), PATH, None).await
    }
}

async fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let world = Rc::new(World { bytes: Arc::default(), known: Mutex::default() });
    let mut stale: Option<Rc<Queue>> = None;
    for _ in 0..5 {
        let kill = match rng.below(3) {
            0 => Kill::At(20 + rng.below(400)),
            1 => Kill::AfterEffect(5 + rng.below(150)),
            _ => Kill::At(u64::MAX),
        };
        let Ok(queue) = world.open(kill, &mut rng).await else {
            continue;
        };
        let queue = Rc::new(queue);
        let mut actors: FuturesUnordered<LocalBoxFuture<'_, ()>> = FuturesUnordered::new();
        // The one that was replaced does not know it yet.
        for owner in stale.iter().chain([&queue]) {
            for _ in 0..3 {
                let (world, queue) = (Rc::clone(&world), Rc::clone(owner));
                let rng = Rng::new(rng.next());
                actors.push(Box::pin(act(world, queue, rng)));
            }
        }
        while within("an actor", actors.next()).await.is_some() {
            world.audit().await;
        }
        drop(actors);
        match rng.below(3) {
            0 => stale = Some(queue),
            1 => drop(within("close", queue.close()).await),
            _ => drop(queue),
        }
        world.audit().await;
    }
    drop(stale);
    settle(&world, &mut rng).await;
}

/// Does this and that with one handle; whatever fails, fails.
async fn act(world: Rc<World>, queue: Rc<Queue>, mut rng: Rng) {
    for _ in 0..12 {
        for _ in 0..rng.below(20) {
            tokio::task::yield_now().await;
        }
        match rng.below(10) {
            0..4 => enqueue(&world, &queue, &mut rng).await,
            4..8 => work(&world, &queue, &mut rng).await,
            8 => {
                if let Ok(Some(page)) = dead(&queue).await {
                    drop(queue.requeue_dead_job(&page).await);
                }
            }
            _ => drop(queue.sweep_orphans_now().await),
        }
    }
}

async fn dead(queue: &Queue) -> Result<Option<String>, Error> {
    Ok(queue.view().dead_jobs("q", None, 1).await?.pop().map(|job| job.id))
}

/// The call, dropped after so many steps; `None` when it was.
async fn cut_short<T>(steps: u64, call: impl Future<Output = T>) -> Option<T> {
    let patience = async {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = call => Some(done),
        () = patience => None,
    }
}

fn patience(rng: &mut Rng) -> u64 {
    if rng.chance(30) { rng.below(60) } else { u64::MAX }
}

async fn enqueue(world: &World, queue: &Queue, rng: &mut Rng) {
    let payload = world.payload();
    let mut options = EnqueueOptions::default();
    if rng.chance(30) {
        options.dedup_key = Some(format!("k{}", rng.below(3)));
    }
    let steps = patience(rng);
    if rng.chance(50) {
        let batch = vec![payload.clone(), world.payload(), world.payload()];
        let all = cut_short(steps, queue.enqueue_batch("q", batch.clone())).await;
        if let Some(Ok(_)) = all {
            batch.into_iter().for_each(|payload| world.confirm(payload));
        }
        return;
    }
    let call = queue.enqueue_with_effects("q", payload.clone(), options, effects(world));
    if let Some(Ok((taquba::EnqueueResult::New(_), _))) = cut_short(steps, call).await {
        world.confirm(payload);
    }
}

fn effects(world: &World) -> SettlementEffects {
    let options = EnqueueOptions::default().dedup_key("effect");
    let request = EnqueueRequest { queue: "q".into(), payload: world.payload(), options };
    SettlementEffects::default().enqueue(request)
}

async fn work(world: &World, queue: &Queue, rng: &mut Rng) {
    let claim = cut_short(patience(rng), queue.claim_next("q")).await;
    let Some(Ok(Some(claim))) = claim else { return };
    let steps = patience(rng);
    match rng.below(5) {
        0..2 => {
            world.take(claim.payload.clone());
            drop(cut_short(steps, queue.ack_with(&claim, effects(world))).await);
        }
        2 => drop(cut_short(steps, queue.nack_with(&claim, "no", effects(world))).await),
        3 => drop(cut_short(steps, queue.dead_letter(&claim, "no")).await),
        _ => {
            drop(cut_short(steps, queue.nack(&claim, "no")).await);
            world.take(claim.payload.clone());
            drop(queue.cancel_with(&claim.id, effects(world)).await);
        }
    }
}

/// A last, unharmed opening: what was confirmed is there with its payload, and a sweep leaves what records name.
async fn settle(world: &World, rng: &mut Rng) {
    let queue = world.open(Kill::At(u64::MAX), rng).await.unwrap();
    let swept = within("a sweep", queue.sweep_orphans_now()).await.unwrap();
    assert_eq!((swept.failed, swept.foreign, swept.open), (0, 0, 0), "{swept:?}");
    assert_eq!(world.audit().await, BTreeSet::new(), "after a sweep");
    while let Some(id) = dead(&queue).await.unwrap() {
        queue.requeue_dead_job(&id).await.unwrap();
    }
    let mut found = BTreeSet::new();
    loop {
        // What waits for a retry is due at last.
        let stats = queue.view().stats("q").await.unwrap();
        let scheduled = queue.view().list_jobs("q", taquba::JobStatus::Scheduled, None, 99).await;
        for job in scheduled.unwrap().jobs {
            queue.wake_scheduled(&job.id, None).await.unwrap();
        }
        let Some(claim) = within("a claim", queue.claim_next("q")).await.unwrap() else {
            assert_eq!((stats.pending, stats.scheduled, stats.dead), (0, 0, 0), "{stats:?}");
            break;
        };
        found.insert(claim.payload.clone());
        queue.ack(&claim).await.unwrap();
    }
    assert_eq!(world.lost(&found), Vec::<String>::new(), "lost");
    within("close", queue.close()).await.unwrap();
    assert_eq!(world.audit().await, BTreeSet::new(), "at the end");
    let left =
        taquba::object_store::ObjectStore::list(&*world.bytes, Some(&"store-payloads".into()));
    assert_eq!(left.count().await, 0);
}

/// What is not one of our names is not ours to delete.
#[tokio::test]
async fn a_sweep_leaves_objects_alone_that_are_not_named_as_ours_are() {
    let bytes = Arc::new(InMemory::new());
    let options = OpenOptions { payload_offload_threshold: Some(0), ..OpenOptions::default() };
    let queue = Queue::open_with_options(bytes.clone(), PATH, options).await.unwrap();
    let id = queue.enqueue("q", b"one".to_vec()).await.unwrap();
    let own = queue.view().job_record(&id).await.unwrap().unwrap().payload_ref.unwrap();
    let (folder, _) = own.split_once('/').unwrap();
    let file = "0000000000000001-00000000012c00000000000000000009";
    // An orphan of this opening, one of a later owner, a stranger, and one in another store's folder.
    let later = file.replace("1-", "9-");
    let elsewhere = format!("{PATH}-payloads/ffffffffffffffff/{file}");
    for at in [file, later.as_str(), "readme.txt"].map(|f| format!("{PATH}-payloads/{folder}/{f}"))
    {
        bytes.put(&at.into(), "x".into()).await.unwrap();
    }
    bytes.put(&elsewhere.into(), "x".into()).await.unwrap();
    let swept = queue.sweep_orphans_now().await.unwrap();
    let counts = (swept.named, swept.open, swept.deleted, swept.failed, swept.foreign);
    assert_eq!(counts, (1, 1, 1, 0, 1));
    queue.close().await.unwrap();
}

/// By itself after a minute, then once a day, and never when it is switched off.
#[tokio::test(start_paused = true)]
async fn sweeps_run_once_after_open_and_then_as_often_as_was_said() {
    let hours = |n: u64| Duration::from_secs(n * 3_600);
    for (every, expected) in [(Some(hours(24)), [true, false, true]), (None, [false, false, false])]
    {
        let bytes = Arc::new(InMemory::new());
        let options = OpenOptions { payload_offload_threshold: Some(0), ..OpenOptions::default() };
        let options = options.orphan_sweep_interval(every);
        let queue = Queue::open_with_options(bytes.clone(), PATH, options).await.unwrap();
        let id = queue.enqueue("q", b"one".to_vec()).await.unwrap();
        let own = queue.view().job_record(&id).await.unwrap().unwrap().payload_ref.unwrap();
        let (folder, _) = own.split_once('/').unwrap();
        let orphan =
            format!("{PATH}-payloads/{folder}/0000000000000001-00000000012c00000000000000000009");
        let orphan = taquba::object_store::path::Path::from(orphan);
        for (wait, gone) in [Duration::from_secs(61), hours(23), hours(2)].into_iter().zip(expected)
        {
            bytes.put(&orphan, "x".into()).await.unwrap();
            taquba::time::sleep(wait).await;
            assert_eq!(bytes.head(&orphan).await.is_err(), gone, "{every:?}, after {wait:?}");
        }
        queue.close().await.unwrap();
    }
}
