//! The tree names no place of the machine that it was written on.

use super::Finding;
use crate::tree::TextFile;

/// In two halves, so that this file does not find itself.
const PLACES: [(&str, &str); 2] = [("/wor", "k/"), ("/ro", "ot/")];

pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for place in PLACES.map(|(head, tail)| format!("{head}{tail}")) {
            if starts_a_path(line, &place) {
                let message = format!("`{place}` is a place of one machine: use a relative path");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Does `place` stand in `line` as the beginning of an absolute path, not in the midst of another?
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).unwrap_or("");
        let joined = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}');
        before.ends_with("://") || !before.ends_with(joined)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = TextFile { path: "notes.md".to_owned(), text: text.to_owned() };
        check(&file).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn absolute_paths_of_the_machine_are_found() {
        let text = PLACES.map(|(head, tail)| format!("see `{head}{tail}x`\n")).concat();
        assert_eq!(lines(&text), [1, 2]);
        let (head, tail) = ("/wor", "k/");
        assert_eq!(lines(&format!("{head}{tail}x")), [1]);
        assert_eq!(lines(&format!("file://{head}{tail}x")), [1]);
    }

    #[test]
    fn a_folder_of_that_name_elsewhere_is_free() {
        let (head, tail) = ("/wor", "k/");
        assert!(lines(&format!("src{head}{tail}mod.rs")).is_empty());
    }
}
