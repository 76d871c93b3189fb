//! `cargo xtask test`: every test of the workspace, then the doctests, with whichever runner is there.

use std::env;
use std::process::Stdio;

use crate::{Fault, cargo};

/// The features are those that tests are written for.
const EVERYTHING: &[&str] = &["--workspace", "--features", "taquba/metrics"];

/// Runs both whatever the first comes to, so that one failure does not hide the next, and fails at the end.
pub(crate) fn run() -> Result<(), Fault> {
    let tests: &[&str] = match (has_nextest()?, env::var_os("CI").is_some()) {
        (true, true) => &["nextest", "run", "--profile", "ci"],
        (true, false) => &["nextest", "run"],
        (false, _) => &["test", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"],
    };
    // nextest runs no doctests, and the README is one.
    let runs = [tests, &["test", "--doc", "--no-fail-fast"]];
    all_ended_well(runs.map(|run| succeed(&[run, EVERYTHING].concat())))
}

fn all_ended_well(runs: impl IntoIterator<Item = Result<(), Fault>>) -> Result<(), Fault> {
    let faults: Vec<String> =
        runs.into_iter().filter_map(Result::err).map(|fault| fault.to_string()).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}

fn has_nextest() -> Result<bool, Fault> {
    let asked = cargo()?
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(asked.success())
}

fn succeed(args: &[&str]) -> Result<(), Fault> {
    let status = cargo()?.args(args).status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args.join(" ")).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_run_happens_and_is_told_whatever_the_first_came_to() {
        let mut ran = 0;
        let runs = ["tests failed", "doctests failed"].map(Fault::from).map(Err);
        let fault = all_ended_well(runs.into_iter().inspect(|_| ran += 1)).unwrap_err();
        assert_eq!((ran, fault.to_string().as_str()), (2, "tests failed\ndoctests failed"));
        assert!(all_ended_well([Ok(()), Ok(())]).is_ok());
    }
}
