//! Files and functions stay small enough to be read whole. Lines of code count: not blank, not comment.

use super::Finding;
use crate::source::Source;
use crate::tokens::{Placed, Token, tokens};

/// Lines of code of a source file.
pub(super) const FILE_LINES_MAX: usize = 500;

/// Lines of code of a file of tests, benchmarks or examples.
const FILE_LINES_MAX_BESIDE: usize = 900;

/// Lines of code of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of code of a function of a test, a benchmark or an example: a script is read from top to bottom.
const FUNCTION_LINES_MAX_BESIDE: usize = 300;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_code: Vec<bool> =
        source.uncommented.lines().map(|line| !line.trim().is_empty()).collect();
    let mut findings = Vec::new();
    let beside = source.is_beside_the_crate();
    let (max, function_max) = if beside {
        (FILE_LINES_MAX_BESIDE, FUNCTION_LINES_MAX_BESIDE)
    } else {
        (FILE_LINES_MAX, FUNCTION_LINES_MAX)
    };
    let lines = is_code.iter().filter(|code| **code).count();
    if lines > max {
        let message = format!(
            "{lines} lines of code, {max} is the wall: two things under one name, split by noun"
        );
        findings.push(Finding::new(&source.path, 0, message));
    }
    for function in functions(&tokens(source)) {
        let body = is_code.iter().skip(function.first - 1).take(function.last + 1 - function.first);
        let lines = body.filter(|code| **code).count();
        if lines > function_max {
            let name = function.name;
            let message = format!(
                "`fn {name}` has {lines} lines of code, {function_max} is the wall: \
                 keep the state here, move the work into functions"
            );
            findings.push(Finding::new(&source.path, function.first, message));
        }
    }
    findings
}

struct Function<'a> {
    name: &'a str,
    first: usize,
    last: usize,
}

/// Every function that has a body; one inside another counts for itself and in the outer one.
fn functions<'a>(tokens: &[Placed<'a>]) -> Vec<Function<'a>> {
    let mut functions = Vec::new();
    for (index, placed) in tokens.iter().enumerate() {
        if placed.token != Token::Word("fn") {
            continue;
        }
        let mut rest = tokens.iter().skip(index + 1);
        // `fn(u8)` is a type, `fn $name` a macro's.
        if let Some(Placed { token: Token::Word(name), .. }) = rest.next()
            && let Some(last) = last_line(rest)
        {
            functions.push(Function { name, first: placed.line, last });
        }
    }
    functions
}

/// The line of the brace that closes the body; none for a function without one.
fn last_line<'a, 'b: 'a>(rest: impl Iterator<Item = &'a Placed<'b>>) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for placed in rest {
        match placed.token {
            Token::Mark('(' | '[') => brackets += 1,
            Token::Mark(')' | ']') => brackets = brackets.checked_sub(1)?,
            Token::Mark(';') if braces == 0 && brackets == 0 => return None,
            Token::Mark('{') => braces += 1,
            Token::Mark('}') => {
                braces = braces.checked_sub(1)?;
                if braces == 0 && brackets == 0 {
                    return Some(placed.line);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<(usize, String)> {
        let found = check(&Source::new(path, text));
        found.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    fn function(body_lines: usize) -> String {
        let body = "    x();\n\n    // why\n".repeat(body_lines);
        format!("#[inline]\nfn f(a: [u8; 2]) -> [u8; 2]\nwhere\n    u8: Copy,\n{{\n{body}}}\n")
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_test() {
        let wall = "x!();\n\n// why\n".repeat(FILE_LINES_MAX);
        assert_eq!(findings("crates/a/src/x.rs", &wall), []);
        let over = format!("{wall}x!();\n");
        assert_eq!(findings("crates/a/src/x.rs", &over).len(), 1);
        assert_eq!(findings("crates/a/tests/it/x.rs", &over), []);
        let far_over = "x!();\n".repeat(FILE_LINES_MAX_BESIDE + 1);
        assert_eq!(findings("crates/a/tests/it/x.rs", &far_over).len(), 1);
    }

    #[test]
    fn a_long_function_is_found() {
        // `fn`, `where`, its bound and the two braces are lines too.
        assert_eq!(findings("x.rs", &function(FUNCTION_LINES_MAX - 5)), []);
        let script = function(FUNCTION_LINES_MAX - 4);
        assert_eq!(findings("crates/a/tests/it/x.rs", &script), []);
        let found = findings("x.rs", &script);
        assert_eq!(found.len(), 1);
        assert!(found.iter().all(|(line, message)| *line == 2 && message.contains("`fn f`")));
    }

    #[test]
    fn what_only_looks_like_a_function_is_none() {
        let text =
            format!("trait T {{ fn f(&self); }}\ntype F = fn(u8);\n{}", "x!();\n".repeat(80));
        assert_eq!(findings("x.rs", &text), []);
    }
}
