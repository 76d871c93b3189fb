//! Payloads in objects of their own: which go out, on which road, who deletes them and when, and what happens when one
//! is missing or the store that has them cannot be reached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;
use taquba::object_store::{ObjectStore, ObjectStoreExt};
use taquba::{
    Claim, EnqueueOptions, EnqueueRequest, Error, JobRecord, JobStatus, LeaseHandle, NackOutcome,
    OpenOptions, Queue, QueueConfig, Reads, SettlementEffects, WaitOutcome, Worker, WorkerError,
    run_worker, run_worker_concurrent,
};

use crate::support::rng::Rng;
use crate::support::shelf::{DELETE, GET, PUT, PUT_ANSWER, Shelf};
use crate::support::within;

const PATH: &str = "store";
const ABOVE: usize = 100;

/// A queue store and the shelf with its payloads, apart.
struct Place {
    main_bytes: Arc<InMemory>,
    main: Shelf,
    payload_bytes: Arc<InMemory>,
    payloads: Shelf,
}

impl Place {
    fn new() -> Self {
        Self::on(Arc::default(), Arc::default())
    }

    fn on(main_bytes: Arc<InMemory>, payload_bytes: Arc<InMemory>) -> Self {
        let shelf = |bytes: &Arc<InMemory>| Shelf::new(Arc::clone(bytes) as _, Rng::new(0), 0);
        let (main, payloads) = (shelf(&main_bytes), shelf(&payload_bytes));
        Self { main_bytes, main, payload_bytes, payloads }
    }

    fn options(&self) -> OpenOptions {
        OpenOptions {
            payload_offload_threshold: Some(ABOVE),
            payload_store: Some(Arc::new(self.payloads.clone())),
            ..OpenOptions::default()
        }
    }

    async fn open_with(&self, options: OpenOptions) -> Arc<Queue> {
        let main = Arc::new(self.main.clone());
        Arc::new(Queue::open_with_options(main, PATH, options).await.unwrap())
    }

    async fn open(&self) -> Arc<Queue> {
        self.open_with(self.options()).await
    }

    /// The payload objects.
    async fn objects(&self) -> BTreeSet<Path> {
        let listed: Vec<_> = self.payload_bytes.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|meta| meta.location).collect()
    }

    /// Waits until there are so many payload objects.
    async fn until_objects(&self, count: usize) {
        within(&format!("{count} payload objects"), async {
            while self.objects().await.len() != count {
                taquba::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    /// The object of a job.
    async fn object_of(&self, queue: &Queue, id: &str) -> Path {
        let record = queue.view().job_record(id).await.unwrap().unwrap();
        assert!(record.payload.is_empty());
        let path = format!("{PATH}-payloads/{}", record.payload_ref.expect("it has an object"));
        let path = Path::from(path);
        assert!(self.objects().await.contains(&path), "{path}");
        path
    }
}

fn large(fill: u8) -> Vec<u8> {
    vec![fill; ABOVE + 1]
}

fn request(payload: Vec<u8>) -> EnqueueRequest {
    EnqueueRequest { queue: "out".into(), payload, options: EnqueueOptions::default() }
}

fn effects(payload: Vec<u8>) -> SettlementEffects {
    SettlementEffects::default().enqueue(request(payload))
}

fn one_attempt() -> EnqueueOptions {
    EnqueueOptions { max_attempts: Some(1), ..EnqueueOptions::default() }
}

async fn claim(queue: &Queue, name: &str) -> Claim {
    within("a claim", queue.claim_next(name)).await.unwrap().expect("a job is waiting")
}

/// Each road that a job can come in by, but for decisions.
async fn all_roads(queue: &Queue, payload: &[u8]) {
    let none = EnqueueOptions::default;
    let p = || payload.to_vec();
    queue.enqueue("out", p()).await.unwrap();
    queue.enqueue_with("out", p(), none().header("a", "b")).await.unwrap();
    queue.enqueue_with_effects("out", p(), none(), effects(p())).await.unwrap();
    queue.enqueue_batch("out", vec![p(), p()]).await.unwrap();
    queue.commit_effects(effects(p())).await.unwrap();
    assert!(queue.kv_compare_commit(b"none", None, effects(p())).await.unwrap().is_some());
    for _ in 0..4 {
        queue.enqueue_with("in", Vec::new(), one_attempt()).await.unwrap();
    }
    queue.ack_with(&claim(queue, "in").await, effects(p())).await.unwrap();
    let dead = queue.nack_with(&claim(queue, "in").await, "no", effects(p())).await.unwrap();
    assert!(matches!(dead, NackOutcome::DeadLettered(_)));
    queue.dead_letter_with(&claim(queue, "in").await, "no", effects(p())).await.unwrap();
    let last = queue.view().list_jobs("in", JobStatus::Pending, None, 9).await.unwrap();
    queue.cancel_with(&last.jobs[0].id, effects(p())).await.unwrap();
}

#[tokio::test]
async fn exactly_the_threshold_stays_inline_and_one_byte_more_goes_out_on_every_road() {
    let place = Place::new();
    let queue = place.open().await;
    for (payload, out) in [(vec![1; ABOVE], false), (vec![2; ABOVE + 1], true)] {
        all_roads(&queue, &payload).await;
        assert_eq!(place.objects().await.len(), if out { 12 } else { 0 });
        for _ in 0..12 {
            let claim = claim(&queue, "out").await;
            assert_eq!((&claim.payload, claim.payload_ref.is_some()), (&payload, out));
            queue.ack(&claim).await.unwrap();
        }
        assert!(queue.claim_next("out").await.unwrap().is_none());
        place.until_objects(0).await;
    }
    queue.close().await.unwrap();
}

#[tokio::test]
async fn what_a_decision_enqueues_stays_in_the_store() {
    let place = Place::new();
    let queue = place.open().await;
    let id = queue.next_job_id();
    let own = id.clone();
    let reads = Reads::default();
    queue.decide(reads, move |_, to| to.enqueue_issued(own, request(large(1)))).await.unwrap();
    let stored = queue.view().job_record(&id).await.unwrap().unwrap();
    assert_eq!((stored.payload, stored.payload_ref), (large(1), None));
    assert_eq!(claim(&queue, "out").await.payload, large(1));
    assert_eq!(place.objects().await.len(), 0);
    queue.close().await.unwrap();
}

/// Sizes on both sides of each limit; what is refused changes nothing, and the queue goes on.
#[tokio::test]
async fn sizes_around_each_payload_limit_are_taken_or_refused_clearly() {
    const MIB: usize = 1_024 * 1_024;
    let place = Place::new();
    let queue = place.open().await;
    let too_large = |error: Error| matches!(error, Error::TooLarge { what: "payload bytes", .. });
    let refused = queue.enqueue("q", vec![0; 256 * MIB + 1]).await.unwrap_err();
    assert!(refused.is_permanent() && too_large(refused));
    // Only what stays in the store counts against the caps of a set and of a batch.
    queue.commit_effects(effects(vec![0; 5 * MIB])).await.unwrap();
    queue.enqueue_batch("q", vec![vec![1; 40 * MIB], vec![2; 40 * MIB]]).await.unwrap();
    assert_eq!(place.objects().await.len(), 3);
    assert_eq!(claim(&queue, "q").await.payload.len(), 40 * MIB);
    queue.close().await.unwrap();

    let queue = place.open_with(place.options().payload_offload_threshold(None)).await;
    let refused = queue.enqueue("q", vec![0; 64 * MIB + 1]).await.unwrap_err();
    assert!(too_large(refused));
    let refused = queue.commit_effects(effects(vec![0; 4 * MIB + 1])).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { what: "effects bytes", .. }));
    // What was offloaded before is still read.
    assert_eq!(claim(&queue, "out").await.payload.len(), 5 * MIB);
    queue.enqueue("q", large(1)).await.unwrap();
    assert_eq!(place.objects().await.len(), 3);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_failed_upload_writes_no_record_and_a_batch_removes_what_it_wrote() {
    let place = Place::new();
    let queue = place.open().await;
    for refused in [PUT, PUT_ANSWER] {
        place.payloads.refuse(refused, 2);
        let batch = vec![large(1), b"small".to_vec(), large(2), large(3)];
        let error = queue.enqueue_batch("q", batch).await.unwrap_err();
        assert!(matches!(error, Error::PayloadStore(_)) && !error.is_permanent(), "{error}");
        place.payloads.refuse(refused, 0);
        assert!(queue.enqueue("q", large(4)).await.is_err());
        place.until_objects(0).await;
        assert_eq!(queue.view().stats("q").await.unwrap().pending, 0);
    }
    place.payloads.refuse(0, 0);
    queue.enqueue("q", large(5)).await.unwrap();
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_failing_delete_never_fails_an_ack_and_a_sweep_takes_what_it_left() {
    let place = Place::new();
    let queue = place.open().await;
    queue.enqueue("q", large(1)).await.unwrap();
    queue.enqueue("q", large(2)).await.unwrap();
    place.payloads.refuse(DELETE, 0);
    queue.ack(&claim(&queue, "q").await).await.unwrap();
    let failed = queue.sweep_orphans_now().await.unwrap();
    assert_eq!((failed.named, failed.failed, failed.deleted), (1, 1, 0));
    place.payloads.refuse(0, 0);
    let swept = queue.sweep_orphans_now().await.unwrap();
    assert_eq!((swept.named, swept.failed, swept.deleted), (1, 0, 1));
    assert_eq!(claim(&queue, "q").await.payload, large(2));
    queue.close().await.unwrap();
}

#[tokio::test]
async fn payloads_of_enqueues_that_come_to_nothing_are_deleted() {
    let place = Place::new();
    let queue = place.open().await;
    let dedup = || EnqueueOptions::default().dedup_key("k");
    let held = queue.enqueue_with("q", large(1), dedup()).await.unwrap();
    let lost = claim(&queue, "q").await;
    queue.ack(&lost).await.unwrap();
    place.until_objects(0).await;

    let first = queue.enqueue_with("q", large(1), dedup()).await.unwrap();
    assert_ne!(first, held);
    assert_eq!(queue.enqueue_with("q", large(2), dedup()).await.unwrap(), first);
    let with = queue.enqueue_with_effects("q", large(3), dedup(), effects(large(4))).await.unwrap();
    assert_eq!((with.0.id(), with.1.len()), (first.as_str(), 0));
    let own = || EnqueueOptions::default().id_override(first.as_str());
    assert!(queue.enqueue_with("q", large(5), own()).await.is_err());
    assert!(matches!(queue.ack_with(&lost, effects(large(6))).await, Err(Error::ClaimLost)));
    assert_eq!(queue.kv_compare_commit(b"k", Some(b"v"), effects(large(7))).await.unwrap(), None);
    queue.cancel_with("nobody", effects(large(8))).await.unwrap();
    let retried = queue.nack_with(&claim(&queue, "q").await, "again", effects(large(9))).await;
    assert_eq!(retried.unwrap(), NackOutcome::Retried);
    place.until_objects(1).await;
    assert_eq!(queue.view().get_job(&first).await.unwrap().unwrap().payload, large(1));
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_dead_letter_keeps_its_object_a_requeue_reuses_it_and_a_kept_record_keeps_it() {
    let place = Place::new();
    let keeps = QueueConfig::default().keep_done_jobs(Duration::from_secs(60));
    let queue = place.open_with(place.options().queue_config("q", keeps)).await;
    let id = queue.enqueue("q", large(1)).await.unwrap();
    let object = place.object_of(&queue, &id).await;
    queue.dead_letter(&claim(&queue, "q").await, "no").await.unwrap();
    assert_eq!(queue.view().get_job(&id).await.unwrap().unwrap().payload, large(1));
    queue.requeue_dead_job(&id).await.unwrap();
    assert_eq!(place.object_of(&queue, &id).await, object);
    queue.ack(&claim(&queue, "q").await).await.unwrap();
    queue.sweep_orphans_now().await.unwrap();
    assert_eq!(place.object_of(&queue, &id).await, object);
    let Ok(WaitOutcome::Done(done)) = queue.wait_for_completion(&id).await else {
        panic!("it is done");
    };
    assert_eq!((done.status, done.payload), (JobStatus::Done, large(1)));
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_waiter_gets_the_payload_of_a_job_that_is_gone() {
    let place = Place::new();
    let queue = place.open().await;
    let id = queue.enqueue("q", large(1)).await.unwrap();
    let held = claim(&queue, "q").await;
    let waiter = {
        let (queue, id) = (Arc::clone(&queue), id.clone());
        tokio::spawn(async move { queue.wait_for_completion(&id).await })
    };
    // A tick is a round trip: the waiter is in line.
    queue.reap_now().await.unwrap();
    queue.reap_now().await.unwrap();
    // Its read is held while everything else that could delete the object has its chance.
    place.payloads.hold(GET);
    queue.ack(&held).await.unwrap();
    assert_eq!(queue.view().job_record(&id).await.unwrap(), None);
    within("the waiter's read", async {
        while place.payloads.held_now() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(place.objects().await.len(), 1);
    place.payloads.hold(0);
    let Ok(WaitOutcome::Done(done)) = within("the waiter", waiter).await.unwrap() else {
        panic!("it is done");
    };
    assert_eq!(done.payload, large(1));
    place.until_objects(0).await;
    queue.close().await.unwrap();
}

/// Counts what it was given; fails nothing.
#[derive(Default)]
struct Count(AtomicUsize);

impl Worker for Count {
    async fn process(&self, job: &JobRecord, _lease: &LeaseHandle) -> Result<(), WorkerError> {
        assert!(!job.payload.is_empty() && job.attempts == 1, "{job:?}");
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

async fn until_handled(worker: &Count, count: usize) {
    while worker.0.load(Ordering::SeqCst) < count {
        taquba::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn any_payload_that_is_missing_or_damaged_ends_its_own_job_and_is_named() {
    for victim in 0..3 {
        for damage in [false, true] {
            let place = Place::new();
            let queue = place.open().await;
            let mut deaths = queue.engine_deaths("q");
            let mut batch: Vec<_> = (0..3).map(large).collect();
            batch.push(b"small".to_vec());
            let ids = queue.enqueue_batch("q", batch).await.unwrap();
            let object = place.object_of(&queue, &ids[victim]).await;
            match damage {
                true => drop(place.payload_bytes.put(&object, large(9).into()).await.unwrap()),
                false => place.payload_bytes.delete(&object).await.unwrap(),
            }
            let worker = Arc::new(Count::default());
            let done = async { within("the other jobs", until_handled(&worker, 3)).await };
            let (own, poll) = (Arc::clone(&worker), Duration::ZERO);
            run_worker_concurrent(&queue, "q", own, 4, poll, done).await.unwrap();
            assert_eq!(deaths.recv().await.as_deref(), Some(ids[victim].as_str()));
            let dead = queue.view().job_record(&ids[victim]).await.unwrap().unwrap();
            let reason = dead.last_error.unwrap();
            assert!(reason.contains(object.as_ref()), "{reason}");
            assert_eq!(queue.view().stats("q").await.unwrap().done, 3);
            // A claim that meets it goes on to the next job.
            queue.requeue_dead_job(&ids[victim]).await.unwrap();
            let after = queue.enqueue("q", b"after".to_vec()).await.unwrap();
            assert_eq!(claim(&queue, "q").await.id, after);
            queue.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn listings_go_on_when_payloads_are_gone_and_a_read_says_which_is() {
    let place = Place::new();
    let queue = place.open().await;
    let ids = queue.enqueue_batch("q", vec![large(1), large(2)]).await.unwrap();
    queue.dead_letter(&claim(&queue, "q").await, "no").await.unwrap();
    for object in place.objects().await {
        place.payload_bytes.delete(&object).await.unwrap();
    }
    let view = queue.view();
    for status in [JobStatus::Pending, JobStatus::Dead] {
        let jobs: Vec<_> = view.jobs("q", status, 1).try_collect().await.unwrap();
        assert_eq!(jobs.len(), 1);
        assert!(jobs[0].payload.is_empty() && jobs[0].payload_ref.is_some());
    }
    assert_eq!(view.dead_jobs("q", None, 9).await.unwrap().len(), 1);
    let missing = view.get_job(&ids[1]).await.unwrap_err();
    assert!(matches!(&missing, Error::PayloadMissing { id } if *id == ids[1]), "{missing}");
    assert!(missing.is_permanent());
    assert!(matches!(queue.wait_for_completion(&ids[0]).await, Ok(WaitOutcome::Dead(_))));
    queue.close().await.unwrap();
}

#[tokio::test]
async fn an_unreachable_payload_store_charges_no_attempt_and_others_go_on() {
    let place = Place::new();
    let queue = place.open().await;
    place.payloads.refuse(GET, 0);
    let id = queue.enqueue("q", large(1)).await.unwrap();
    let error = queue.claim_next("q").await.unwrap_err();
    assert!(matches!(error, Error::PayloadStore(_)) && !error.is_permanent(), "{error}");
    // It is given back before the next claim is looked at; a look at the time is in line behind it too.
    queue.reap_now().await.unwrap();
    let back = queue.view().job_record(&id).await.unwrap().unwrap();
    assert_eq!((back.status, back.attempts), (JobStatus::Pending, 0));

    queue.enqueue("q", b"small".to_vec()).await.unwrap();
    let worker = Arc::new(Count::default());
    let shutdown = async {
        within("the small job", until_handled(&worker, 1)).await;
        place.payloads.refuse(0, 0);
        within("the large job", until_handled(&worker, 2)).await;
    };
    let (own, poll) = (Arc::clone(&worker), Duration::ZERO);
    run_worker_concurrent(&queue, "q", own, 2, poll, shutdown).await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().done, 2);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_claim_that_is_dropped_while_it_fetches_is_given_back() {
    let place = Place::new();
    let queue = place.open().await;
    let id = queue.enqueue("q", large(1)).await.unwrap();
    place.payloads.hold(GET);
    let fetching = async {
        while place.payloads.held_now() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = queue.claim_next("q") => panic!("it cannot have its payload"),
        () = fetching => {}
    }
    place.payloads.hold(0);
    let again = claim(&queue, "q").await;
    assert_eq!((again.id.as_str(), again.attempts), (id.as_str(), 1));
    queue.close().await.unwrap();
}

/// Wants a job with a large payload enqueued.
struct Brings;

impl Worker for Brings {
    async fn process_with_effects(
        &self,
        _job: &JobRecord,
        _lease: &LeaseHandle,
    ) -> Result<SettlementEffects, WorkerError> {
        Ok(effects(large(1)))
    }
}

#[tokio::test]
async fn a_settlement_whose_upload_fails_waits_for_the_payload_store() {
    let place = Place::new();
    let queue = place.open().await;
    queue.enqueue("q", b"small".to_vec()).await.unwrap();
    place.payloads.refuse(PUT, 0);
    let came = async {
        within("a settlement that waits", async {
            while queue.view().stats("q").await.unwrap().claimed == 0 {
                taquba::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        taquba::time::sleep(Duration::from_millis(20)).await;
        place.payloads.refuse(0, 0);
        let wait = Duration::from_secs(9);
        let claim = queue.claim_with_wait("out", wait, wait).await.unwrap().unwrap();
        assert_eq!(claim.payload, large(1));
    };
    run_worker(&queue, "q", &Brings, Duration::ZERO, came).await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().done, 1);
    queue.close().await.unwrap();
}

/// A call that ends without an answer, by its time or because nobody waits any more, owns its payload no longer.
#[tokio::test]
async fn an_ambiguous_commit_never_deletes_the_payload_of_a_job_that_lives() {
    let place = Place::new();
    let timeout = Duration::from_millis(50);
    let queue = place.open_with(OpenOptions { call_timeout: timeout, ..place.options() }).await;
    place.main.hold(PUT);
    let unconfirmed = queue.enqueue("q", large(1)).await.unwrap_err();
    assert!(matches!(unconfirmed, Error::NotConfirmed { .. }), "{unconfirmed}");
    let dropped = queue.enqueue("q", large(2));
    let accepted = async {
        while queue.view().stats("q").await.unwrap().pending < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = dropped => panic!("the log is held: {answer:?}"),
        () = accepted => {}
    }
    // What a crash here leaves is decided; what a sweep here may take is nothing.
    assert_eq!(place.objects().await.len(), 2);
    let mut sweep = Box::pin(queue.sweep_orphans_now());
    assert!(futures_util::poll!(sweep.as_mut()).is_pending());
    place.main.hold(0);
    sweep.await.unwrap();
    for fill in [1, 2] {
        let wait = Duration::from_secs(9);
        let claim = queue.claim_with_wait("q", wait, wait).await.unwrap().unwrap();
        assert_eq!(claim.payload, large(fill));
    }
    queue.close().await.unwrap();
}

/// While the removal of a record is not durable, a crash brings the job back: its payload must be there.
#[tokio::test]
async fn a_payload_is_deleted_only_when_the_removal_of_its_record_is_durable() {
    let place = Place::new();
    let queue = place.open().await;
    queue.enqueue("q", large(1)).await.unwrap();
    let held = claim(&queue, "q").await;
    place.main.hold(PUT);
    let mut ack = Box::pin(queue.ack(&held));
    let removed = async {
        while queue.view().job_record(&held.id).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = ack.as_mut() => panic!("the log is held: {answer:?}"),
        () = removed => {}
    }
    // A sweep sees the removal too, and must not act on it yet.
    let mut sweep = Box::pin(queue.sweep_orphans_now());
    for _ in 0..200 {
        assert!(futures_util::poll!(sweep.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let crashed =
        Place::on(Arc::new(place.main_bytes.fork()), Arc::new(place.payload_bytes.fork()));
    let other = crashed.open().await;
    assert_eq!(claim(&other, "q").await.payload, large(1));
    other.close().await.unwrap();

    place.main.hold(0);
    ack.await.unwrap();
    sweep.await.unwrap();
    place.until_objects(0).await;
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_payload_path_in_or_around_the_queue_is_refused_and_others_are_taken() {
    let store = Arc::new(InMemory::new());
    let open = async |path: &str, payloads: &str| {
        let options = OpenOptions { payload_offload_threshold: Some(0), ..OpenOptions::default() };
        let options = options.payload_path(payloads);
        Queue::open_with_options(store.clone(), path, options).await
    };
    for (path, payloads) in
        [("a/b", "a/b"), ("a/b", "a"), ("a/b", "a/b/c"), ("a/b", ""), ("", "wal/x")]
    {
        let refused = open(path, payloads).await.unwrap_err();
        let option = matches!(refused, Error::InvalidOption { option: "payload_path", .. });
        assert!(option && refused.is_permanent(), "{path:?} {payloads:?}: {refused}");
    }
    assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 0);
    // Two stores may share a path: their sweeps leave each other's objects alone.
    let one = open("a/b", "shared").await.unwrap();
    let two = open("a/c", "shared").await.unwrap();
    one.enqueue("q", b"one".to_vec()).await.unwrap();
    two.enqueue("q", b"two".to_vec()).await.unwrap();
    assert_eq!(one.sweep_orphans_now().await.unwrap().named, 1);
    assert_eq!(claim(&two, "q").await.payload, b"two");
    one.close().await.unwrap();
    two.close().await.unwrap();
}
