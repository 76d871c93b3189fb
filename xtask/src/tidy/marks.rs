//! Nothing unfinished is kept: no mark that says "later".

use super::Finding;
use crate::source::Source;

/// In two halves, so that this file does not find itself.
const MARKS: [(&str, &str); 8] = [
    ("todo", "!("),
    ("unimplemented", "!("),
    ("dbg", "!("),
    ("FIX", "ME"),
    ("XX", "X"),
    ("#[ig", "nore"),
    ("allow(dead", "_code)"),
    ("not yet ", "implemented"),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for mark in MARKS.map(|(head, tail)| format!("{head}{tail}")) {
            if line.contains(&mark) {
                let message = format!("`{mark}`: finish it, or take it out and file an issue");
                findings.push(Finding::new(&source.path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_found_in_code_and_in_comments() {
        for (head, tail) in MARKS {
            for before in ["", "// "] {
                let text = format!("fn f() {{\n    {before}{head}{tail}\n}}\n");
                let findings = check(&Source::new("x.rs", &text));
                assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [2], "{text}");
            }
        }
    }

    #[test]
    fn finished_code_is_left_alone() {
        assert_eq!(check(&Source::new("x.rs", "#[expect(dead_code, reason = \"…\")]\n")), []);
    }
}
