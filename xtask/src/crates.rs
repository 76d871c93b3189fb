//! `cargo xtask crates`: how many crates a cold build of `taquba-workflow` compiles on this machine.

use std::collections::BTreeSet;

use crate::{Fault, cargo};

/// The crate whose users pay for the count: it stands on all others.
const PACKAGE: &str = "taquba-workflow";

/// Prints the count.
pub(crate) fn run() -> Result<(), Fault> {
    let tree = cargo()?
        .args(["tree", "--package", PACKAGE, "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()?;
    if !tree.status.success() {
        return Err(String::from_utf8_lossy(&tree.stderr).into_owned().into());
    }
    println!("{}", count(&String::from_utf8_lossy(&tree.stdout)));
    Ok(())
}

/// A crate in two versions is compiled twice; one that is listed twice is not.
fn count(tree: &str) -> usize {
    let name_and_version = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    tree.lines().filter_map(name_and_version).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_per_version() {
        let tree =
            "a v1.0.0 (/somewhere)\nb v1.0.0\nc v0.1.0 (proc-macro)\nb v1.0.0 (*)\nb v2.0.0\n";
        assert_eq!(count(tree), 4);
    }

    #[test]
    fn blank_lines_are_no_crates() {
        assert_eq!(count("\n\n"), 0);
    }
}
