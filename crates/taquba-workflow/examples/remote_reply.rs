//! A run asks a machine elsewhere for work and sleeps until the answer lies in the bucket.
//!
//! ```text
//! cargo run -p taquba-workflow --example remote_reply
//! cargo run -p taquba-workflow --example remote_reply -- file:///tmp/reply-demo
//! ```
//!
//! The second form keeps everything in a folder. Kill it (`kill -9`) while the run waits, start it again, and the run
//! finishes: nothing that matters was in the process. `--help` says what else it takes.
//!
//! Who does what, and why nothing gets lost between them:
//!
//! - **Step 0** stages a request row and waits for a signal. Row and wait commit together with the step, so there is
//!   never a request that nobody waits for, nor a wait that nobody was asked to end.
//! - **The remote machine** is played by a task that knows nothing of runs. It finds request rows, works, and PUTs the
//!   answer as an object under the name that the request gave. What it has begun is only in its memory: a restarted
//!   one begins anew, and writes the same object.
//! - **The courier** looks whether an awaited object has arrived, signals the run and removes the row, in this order:
//!   if it dies in between, the row is still there, and the second signal finds nobody waiting.
//! - **Step 1** reads the object whose name the signal carried.

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::collections::HashSet;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use taquba::Queue;
use taquba::object_store::prefix::PrefixStore;
use taquba::object_store::{self, ObjectStore, ObjectStoreExt, PutPayload, path::Path};
use taquba_workflow::{
    RunId, RunOutcome, RunSpec, RunState, RunStatus, SignalOutcome, Step, StepError, StepOutcome,
    StepRunner, TerminalEffects, TerminalHook, WorkflowRuntime,
};
use tokio::sync::Notify;

/// Requests that are not answered yet: `remote/requests/{signal key}` holds a [`Request`].
const REQUESTS: &str = "remote/requests/";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the run waits before it gives up on the remote machine.
const PATIENCE: Duration = Duration::from_secs(120);

const RUN: &str = "translate-invoice-118";

const USAGE: &str = "\
usage: remote_reply [URL] [SECONDS]
  URL      where everything is kept: memory:/// (default), file:///absolute/folder, or, with the
           features aws, gcp or azure of taquba, s3://bucket/path and its kin
  SECONDS  how long the remote work takes (default 3)
";

type AnyError = Box<dyn Error + Send + Sync>;

/// What the remote machine gets: where the answer goes, and the work. Stored as the two, a newline between.
struct Request {
    reply_to: String,
    text: String,
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        format!("{}\n{}", self.reply_to, self.text).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (reply_to, text) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        Some(Self { reply_to: reply_to.to_owned(), text: text.to_owned() })
    }
}

/// Step 0 asks, step 1 reads the answer.
struct Translator {
    store: Arc<dyn ObjectStore>,
    /// What is said while the run waits.
    hint: &'static str,
}

impl StepRunner for Translator {
    async fn run_step(&self, step: &Step) -> Result<StepOutcome, StepError> {
        match step.step_number {
            0 => self.ask(step),
            _ => self.read_answer(step).await,
        }
    }
}

impl Translator {
    fn ask(&self, step: &Step) -> Result<StepOutcome, StepError> {
        // The job's id is the same in every attempt and never used again, so this run reads no other run's answer.
        let key = step.job_id.clone();
        let request = Request {
            reply_to: format!("replies/{}/{key}", step.run_id),
            text: String::from_utf8_lossy(&step.payload).into_owned(),
        };
        println!("[step 0]  asks for {:?}, answer to {}", request.text, request.reply_to);
        step.effects.put(format!("{REQUESTS}{key}"), request.encode())?;
        println!("[step 0]  now waits; no worker is held{}", self.hint);
        Ok(StepOutcome::continue_on_signal(Vec::new(), key, PATIENCE))
    }

    async fn read_answer(&self, step: &Step) -> Result<StepOutcome, StepError> {
        let Some(signal) = &step.signal else {
            let reason = format!("no answer within {} s", PATIENCE.as_secs());
            return Ok(StepOutcome::Fail { reason });
        };
        let path = Path::from(String::from_utf8_lossy(signal).as_ref());
        let unreadable = |e: object_store::Error| StepError::transient(format!("{path}: {e}"));
        let object = self.store.get(&path).await.map_err(unreadable)?;
        let result = object.bytes().await.map_err(unreadable)?.to_vec();
        println!("[step 1]  read {:?} from {path}", String::from_utf8_lossy(&result));
        Ok(StepOutcome::Succeed { result })
    }
}

/// Prints how the run ended and lets `main` end too.
struct Report {
    done: Arc<Notify>,
}

impl TerminalHook for Report {
    async fn on_termination(
        &self,
        outcome: &RunOutcome,
        _effects: &TerminalEffects,
    ) -> Result<(), StepError> {
        let said = outcome.result.as_deref().map(String::from_utf8_lossy);
        let said = said.or(outcome.error.as_deref().map(Into::into)).unwrap_or_default();
        println!("[hook]    run {} {}: {said}", outcome.run_id, outcome.status);
        self.done.notify_one();
        Ok(())
    }
}

/// Reads the requests that are not answered yet, with the signal key that each run waits for.
async fn open_requests(queue: &Queue) -> Result<Vec<(String, Request)>, AnyError> {
    let rows = queue.view().kv_entries(REQUESTS.as_bytes(), .., 64);
    let rows: Vec<_> = rows.try_collect().await?;
    let parse = |(key, value): (Vec<u8>, bytes::Bytes)| {
        let key = String::from_utf8(key).ok()?.strip_prefix(REQUESTS)?.to_owned();
        Some((key, Request::decode(&value)?))
    };
    Ok(rows.into_iter().filter_map(parse).collect())
}

/// The machine elsewhere. In production it would be told by a webhook or a queue of its own, and would need nothing
/// but a presigned URL to PUT to.
async fn remote_machine(
    queue: &Queue,
    store: &Arc<dyn ObjectStore>,
    work: Duration,
) -> Result<(), AnyError> {
    let mut begun = HashSet::new();
    loop {
        for (key, Request { reply_to, text }) in open_requests(queue).await? {
            if !begun.insert(key) {
                continue;
            }
            println!("[remote]  works on {text:?} for {work:?}");
            let store = Arc::clone(store);
            tokio::spawn(async move {
                tokio::time::sleep(work).await;
                let answer = PutPayload::from(text.to_uppercase().into_bytes());
                match store.put(&Path::from(reply_to.as_str()), answer).await {
                    Ok(_) => println!("[remote]  wrote {reply_to}"),
                    Err(e) => println!("[remote]  could not write {reply_to}: {e}"),
                }
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Turns arrived answers into signals: one HEAD per waiting run and look, no LIST.
async fn courier(
    queue: &Queue,
    store: &Arc<dyn ObjectStore>,
    runtime: &WorkflowRuntime<Translator, Report>,
) -> Result<(), AnyError> {
    loop {
        for (key, request) in open_requests(queue).await? {
            match store.head(&Path::from(request.reply_to.as_str())).await {
                Ok(_) => {}
                Err(object_store::Error::NotFound { .. }) => continue,
                Err(e) => return Err(e.into()),
            }
            match runtime.signal(&key, request.reply_to.into_bytes()).await? {
                SignalOutcome::Delivered => println!("[courier] the answer is there: woke the run"),
                SignalOutcome::Buffered => {
                    println!("[courier] the answer is there, but nobody waits for it any more");
                    runtime.clear_signal(&key).await?;
                }
            }
            queue.kv_delete(format!("{REQUESTS}{key}").as_bytes()).await?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What the command line says.
struct Args {
    url: String,
    work: Duration,
}

impl Args {
    /// `None` when only the usage is asked for.
    fn parse(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let args: Vec<String> = args.collect();
        if args.iter().any(|arg| arg == "--help" || arg == "-h") {
            return Ok(None);
        }
        if let Some(unknown) = args.iter().find(|arg| arg.starts_with('-')) {
            return Err(format!("unknown option {unknown:?}"));
        }
        let mut args = args.into_iter();
        let url = args.next().unwrap_or_else(|| "memory:///".into());
        let seconds = args.next().unwrap_or_else(|| "3".into());
        if let Some(unknown) = args.next() {
            return Err(format!("unknown argument {unknown:?}"));
        }
        let work = seconds.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        let work = work.ok_or_else(|| format!("{seconds:?} is no number of seconds"))?;
        Ok(Some(Self { url, work }))
    }

    /// Whether another process finds what this one leaves.
    fn store_survives(&self) -> bool {
        !self.url.starts_with("memory:")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprint!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", with_sources(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error and what it came from, in one line.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Some errors quote their sources.
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        next = cause.source();
    }
    said
}

async fn run(args: &Args) -> Result<(), AnyError> {
    let (bucket, folder) = taquba::open_url(&args.url, std::env::vars())?;
    // Not the URL: it may hold a secret.
    let place = format!("{bucket}, path {:?}", folder.as_ref());
    let store: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(bucket, folder));
    let queue = Arc::new(Queue::open(Arc::clone(&store), "queue").await?);
    println!("[main]    opened {place}");

    let done = Arc::new(Notify::new());
    let hint = if args.store_survives() { " (kill me, and start me again)" } else { "" };
    let runtime = WorkflowRuntime::builder(
        Arc::clone(&queue),
        Arc::clone(&store),
        Translator { store: Arc::clone(&store), hint },
        Report { done: Arc::clone(&done) },
    )
    .build();
    let worker = runtime.spawn(async move { done.notified().await });

    submit(&runtime).await?;
    tokio::select! {
        ended = worker.wait() => ended?,
        failed = remote_machine(&queue, &store, args.work) => failed?,
        failed = courier(&queue, &store, &runtime) => failed?,
    }
    Ok(())
}

/// Submits the run, or finds it as an earlier process left it.
async fn submit(runtime: &WorkflowRuntime<Translator, Report>) -> Result<(), AnyError> {
    let run_id = RunId::new(RUN)?;
    let before = runtime.status(&run_id).await?;
    if let Some(RunStatus { state: RunState::Terminated(end), .. }) = before {
        println!("[main]    run {run_id} has {} in an earlier process; now once more", end.status);
    }
    let spec = RunSpec {
        run_id: Some(run_id),
        input: b"invoice 118: three chairs, one table".to_vec(),
        ..Default::default()
    };
    let run = runtime.submit(spec).await?;
    if run.newly_submitted {
        println!("[main]    submitted run {}", run.run_id);
    } else {
        println!("[main]    run {} is active from before; it goes on where it was", run.run_id);
    }
    Ok(())
}
