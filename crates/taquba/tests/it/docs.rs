//! That docs/errors.md names every error there is, no other, and says truly which may pass.

use std::collections::BTreeMap;

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The variants of an enum in a source text.
fn variants(source: &str, name: &str) -> Vec<String> {
    let head = format!("pub enum {name} {{\n");
    let body = &source[source.find(&head).unwrap() + head.len()..];
    let body = &body[..body.find("\n}").unwrap()];
    let of_the_enum =
        |line: &&str| line.starts_with("    ") && line.as_bytes()[4].is_ascii_uppercase();
    let names = body.lines().filter(|line| line.len() > 4).filter(of_the_enum);
    names.map(|line| line[4..].split([' ', '(', ',', '{']).next().unwrap().to_owned()).collect()
}

/// The rows of the table under a heading: first cell, second cell.
fn rows(document: &str, heading: &str) -> BTreeMap<String, String> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        (cells.next().unwrap().trim_matches('`').to_owned(), cells.next().unwrap())
    });
    cells.collect()
}

#[test]
fn every_error_is_explained_and_no_other() {
    let (source, document) = (read("src/error.rs"), read("../../docs/errors.md"));
    for (name, heading) in [("Error", "Errors"), ("CloseReason", "Why a handle is closed")] {
        let mut there = variants(&source, name);
        there.sort();
        assert!(there.len() >= 3, "{there:?}");
        let told: Vec<String> = rows(&document, heading).into_keys().collect();
        assert_eq!(told, there, "{name}");
    }
    let passing = &source[source.find("pub fn is_permanent").unwrap()..];
    let passing = &passing[..passing.find("=> false").unwrap()];
    for (variant, passes) in rows(&document, "Errors") {
        let is_passing = passing.contains(&format!("Self::{variant}"));
        assert_eq!(passes, if is_passing { "may pass" } else { "permanent" }, "{variant}");
    }
}

/// All Rust files below a folder, in one text.
fn sources(folder: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &std::fs::read_to_string(&path).unwrap();
        }
    }
    text
}

#[test]
fn each_class_of_faults_has_a_row_and_each_test_that_one_names_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let all = sources(root);
    let document = read("tests/it/faults.md");
    let mut classes = Vec::new();
    for row in document.lines().filter(|line| line.starts_with("| ") && line.contains(' ')) {
        classes.extend(row[2..].split(' ').next().map(str::to_owned));
        for name in row.split('`').skip(1).step_by(2) {
            let is_test = name.len() > 20 && !name.contains(['.', '/']);
            assert!(!is_test || all.contains(&format!("fn {name}(")), "no test {name}");
        }
    }
    let a = [1..=11, 17..=19, 21..=21, 26..=31, 33..=37, 40..=45].into_iter().flatten();
    let mut expected: Vec<String> = a.map(|n| format!("A{n}")).collect();
    expected.extend((1..=23).map(|n| format!("B{n}")));
    expected.extend((1..=13).map(|n| format!("C{n}")));
    classes.retain(|class| class != "class");
    assert_eq!(classes, expected);
}
