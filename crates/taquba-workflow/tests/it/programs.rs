//! The programs that users run: the seed as it was given, and our own example through a `kill -9`.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use sha2::Digest;

/// Where cargo put an example, built now if a test was built without the examples.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", name]);
        cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        assert!(cargo.status().unwrap().success());
    }
    path
}

/// A program whose lines are read as they come. It is killed, `-9`, when this is dropped.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(name: &str, args: &[&str]) -> Self {
        let mut child = Command::new(example(name))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads up to the line that contains `text`.
    fn reads_until(&mut self, text: &str) -> Vec<String> {
        let mut read = Vec::new();
        for line in self.lines.by_ref() {
            read.push(line.unwrap());
            if read.last().unwrap().contains(text) {
                return read;
            }
        }
        panic!("ended before {text:?}: {read:#?}")
    }

    /// Reads to the end and checks that it ended well.
    fn ends_well(mut self) -> Vec<String> {
        let read = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success(), "{read:#?}");
        read
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_seed_runs_unchanged() {
    let digest = sha2::Sha256::digest(include_bytes!("../seed/remote_reply.rs"));
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "074777b831325c9f32d6f3d47fdb5e81793e1fd07a049f42569219fa038a2abf");
    let said = Program::start("seed_remote_reply", &[]).ends_well();
    let reply = "replies/translate-invoice-118/0";
    for (line, want) in [
        "submitted run translate-invoice-118".to_owned(),
        format!(
            "[step 0] sending \"invoice 118: three chairs, one table\"; reply expected at {reply}"
        ),
        format!("[remote] wrote the reply to {reply}"),
        format!("[watcher] {reply} arrived; woke remote:translate-invoice-118:0"),
        format!("[step 1] reply at {reply}: \"INVOICE 118: THREE CHAIRS, ONE TABLE\""),
        "run translate-invoice-118 succeeded: \"INVOICE 118: THREE CHAIRS, ONE TABLE\"".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(said.contains(&want), "line {line} is missing: {said:#?}");
    }
}

#[test]
fn the_example_runs_in_memory() {
    let said = Program::start("remote_reply", &["memory:///", "0.05"]).ends_well();
    assert!(said.iter().any(|line| line.contains("INVOICE 118")), "{said:#?}");
    // What is in memory does not survive.
    assert!(said.iter().all(|line| !line.contains("kill me")), "{said:#?}");
}

#[test]
fn the_example_explains_itself_and_refuses_what_it_does_not_know() {
    let run = |args: &[&str]| {
        let output = Command::new(example("remote_reply")).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    for help in ["--help", "-h"] {
        let (code, out, err) = run(&[help]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.starts_with("usage: remote_reply"), "{out}");
    }
    for (args, says) in [
        (&["--keep"][..], "unknown option \"--keep\""),
        (&["memory:///", "1", "2"], "unknown argument \"2\""),
        (&["memory:///", "soon"], "\"soon\" is no number of seconds"),
        (&["memory:///", "-1"], "unknown option \"-1\""),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.starts_with(says) && err.contains("usage: remote_reply"), "{err}");
    }
    let (code, _, err) = run(&["/tmp/x"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("store URL \"/tmp/x\": it is a path"), "{err}");
}

#[test]
fn the_example_survives_kill_9_while_its_run_waits() {
    let name = format!("taquba-remote-reply-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    drop(std::fs::remove_dir_all(&folder));
    let url = format!("file://{}", folder.display());

    // The remote work takes so long that the run still waits when the process dies, twice.
    for when in ["submitted run", "is active from before"] {
        let mut first = Program::start("remote_reply", &[&url, "600"]);
        first.reads_until(when);
        first.reads_until("[remote]  works on");
    }
    let said = Program::start("remote_reply", &[&url, "0.05"]).ends_well();
    assert!(said.iter().any(|line| line.contains("is active from before")), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("succeeded: INVOICE 118")), "{said:#?}");
    assert!(said.iter().all(|line| !line.contains("earlier process")), "{said:#?}");
    // Once more, the run being over.
    let said = Program::start("remote_reply", &[&url, "0.05"]).ends_well();
    let before = "run translate-invoice-118 has succeeded in an earlier process";
    assert!(said.iter().any(|line| line.contains(before)), "{said:#?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
