//! `cargo xtask test`: every test of the workspace, then the doctests, with whichever runner is there.

use std::env;
use std::process::Stdio;

use crate::{Fault, cargo};

/// Fails with the first of the two runs that fails.
pub(crate) fn run() -> Result<(), Fault> {
    let tests: &[&str] = match (has_nextest()?, env::var_os("CI").is_some()) {
        (true, true) => &["nextest", "run", "--workspace", "--profile", "ci"],
        (true, false) => &["nextest", "run", "--workspace"],
        (false, _) => &["test", "--workspace", "--lib", "--bins", "--tests", "--examples"],
    };
    succeed(tests)?;
    // nextest runs no doctests, and the README is one.
    succeed(&["test", "--doc", "--workspace"])
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
