//! Every source file of a crate says in its first line what it is: one job per file.

use super::Finding;
use crate::source::Source;

pub(super) fn check(source: &Source) -> Option<Finding> {
    let (_, inside) = source.in_crate()?;
    let first = source.text.lines().next().unwrap_or("");
    // The README is the documentation of a crate, so its root file may begin by including it.
    let included = inside == "lib.rs" && first.starts_with("#![doc = include_str!(");
    let said = first.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty());
    (!said && !included).then(|| {
        let message = "begin the file with a `//!` line: its one job, and what it does not own";
        Finding::new(&source.path, 1, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(path: &str, text: &str) -> bool {
        check(&Source::new(path, text)).is_none()
    }

    #[test]
    fn a_file_without_its_line_is_found() {
        assert!(accepts("crates/a/src/x.rs", "//! The x.\n"));
        assert!(!accepts("crates/a/src/x.rs", "use y;\n//! The x.\n"));
        assert!(!accepts("crates/a/src/x.rs", "//!\n"));
        assert!(!accepts("crates/a/src/x.rs", ""));
    }

    #[test]
    fn the_root_may_include_the_readme() {
        let text = "#![doc = include_str!(\"../README.md\")]\n";
        assert!(accepts("crates/a/src/lib.rs", text));
        assert!(!accepts("crates/a/src/x.rs", text));
    }

    #[test]
    fn files_outside_the_crates_are_free() {
        assert!(accepts("crates/a/tests/it/x.rs", "use y;\n"));
    }
}
