//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy can hold.
//! One rule per file, each a pure function from files to findings, each with a test that it can fail.

mod floors;
mod headers;
mod marks;
mod prints;
mod sizes;
mod sleeps;
mod words;

use std::fmt;

use crate::source::Source;
use crate::tree::{TextFile, text_files};
use crate::{Fault, root};

/// Something that a rule does not accept, where it is, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 means the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks the tree; fails with all findings at once.
pub(crate) fn run() -> Result<(), Fault> {
    let files = text_files(&root()?)?;
    let findings = check(&files);
    if findings.is_empty() {
        println!("tidy: {} files, nothing to mend", files.len());
        return Ok(());
    }
    let list: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    Err(format!("{list}tidy: {} to mend", findings.len()).into())
}

fn check(files: &[TextFile]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let sources: Vec<Source> = rust.map(|file| Source::new(&file.path, &file.text)).collect();
    let mut findings = floors::check(&sources);
    for source in &sources {
        findings.extend(headers::check(source));
        findings.extend(marks::check(source));
        findings.extend(prints::check(source));
        findings.extend(sizes::check(source));
        findings.extend(sleeps::check(source));
    }
    for file in files {
        findings.extend(words::check(file));
    }
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_its_place() {
        assert_eq!(Finding::new("a.rs", 3, "why").to_string(), "a.rs:3: why");
        assert_eq!(Finding::new("a.rs", 0, "why").to_string(), "a.rs: why");
    }

    #[test]
    fn every_rule_is_asked() {
        let file =
            |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let long = "x();\n".repeat(sizes::FILE_LINES_MAX + 1);
        let files = [
            file("crates/taquba/src/lifecycle/mod.rs", "//! a\nuse crate::engine::Engine;"),
            file("crates/taquba/src/a.rs", "fn f() {}"),
            file("crates/taquba/src/b.rs", concat!("//! b\n// FIX", "ME")),
            file("crates/taquba/src/c.rs", "//! c\nfn f() { println!(); }"),
            file("crates/taquba/src/d.rs", &format!("//! d\n{long}")),
            file("crates/taquba/tests/e.rs", "sleep(Duration::from_secs(1))"),
            file("notes.md", concat!("see /wor", "k/notes")),
        ];
        let found: Vec<_> = check(&files).into_iter().map(|finding| finding.path).collect();
        let mut expected = files.map(|file| file.path);
        expected.sort();
        assert_eq!(found, expected);
    }
}
