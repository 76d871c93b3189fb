//! The examples as users run them: each ends well, tells its story, and says what to try next. (`rolling_deploy` is run by
//! `replicas.rs`, with its replicas killed.)

use std::process::Command;

use crate::support::program::example;

/// Runs an example to its end; `lines` must be among what it says, in this order.
fn tells(name: &str, lines: &[&str]) {
    let output = Command::new(example(name)).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {complained}\n{said}");
    assert_eq!(complained, "", "{name} complains");
    let mut rest = said.as_str();
    for line in lines.iter().chain(&["try next: "]) {
        let at = rest.find(line).unwrap_or_else(|| panic!("{name} does not say {line:?}:\n{said}"));
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn quickstart_tells_its_story() {
    tells("quickstart", &["claimed it, attempt 1 of 3", "hears: 6", "claimed 0, done 1"]);
}

#[test]
fn worker_tells_its_story() {
    let story = [
        "ada: sent",
        "grace: sent",
        "nobody: dead after 1 attempts: there is no such address",
        "down.example: dead after 3 attempts: no route",
        "1 brought back",
        "down.example: sent at last",
    ];
    tells("worker", &story);
}

#[test]
fn long_running_tells_its_story() {
    let story = [
        "the long one, attempt 1: ",
        "the regretted one: told to stop",
        "the regretted one: dead: stopped on request",
        "the long one: done, in one attempt",
    ];
    tells("long_running", &story);
}

#[test]
fn atomic_settlement_tells_its_story() {
    let story = [
        "orders waiting 1, done 0; mails waiting 0; chairs in stock 10",
        "orders waiting 0, done 1; mails waiting 1; chairs in stock 7",
        "ada writes 17: written",
        "grace writes 12: refused",
        "chairs in stock 17",
    ];
    tells("atomic_settlement", &story);
}

#[test]
fn local_disk_tells_its_story() {
    let story = [
        "a new store in ",
        "-- killed, with kill -9; started again:",
        "this store was here before: ",
        "all 8 photos are developed, each once",
    ];
    tells("local_disk", &story);
}

#[test]
fn scheduled_tells_its_story() {
    let story = [
        "one report for the board: true",
        "3 are ready, 3 wait for their time",
        "ms: at once",
        "ms: as usual",
        "ms: when there is time",
        "ms: in 300 ms",
        "ms: for the board",
        "the weather of this minute: expired",
        "kept for a minute: printed",
    ];
    tells("scheduled", &story);
}

#[test]
fn read_live_store_tells_its_story() {
    tells("read_live_store", &["beat ", "the owner is killed", "next: "]);
}
