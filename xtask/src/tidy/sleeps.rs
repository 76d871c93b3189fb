//! Tests wait on signals and move a clock; a short pause is the most that is left to chance.

use super::Finding;
use crate::source::Source;
use crate::tokens::{Placed, Token, tokens};

/// The longest pause of a test, in milliseconds.
const SLEEP_MS_MAX: f64 = 50.0;

/// The constructors of `Duration` that take one number, with their unit in milliseconds.
const UNITS: [(&str, f64); 8] = [
    ("from_nanos", 1e-6),
    ("from_micros", 1e-3),
    ("from_millis", 1.0),
    ("from_secs", 1e3),
    ("from_secs_f32", 1e3),
    ("from_secs_f64", 1e3),
    ("from_mins", 60e3),
    ("from_hours", 3_600e3),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if !source.path.split('/').any(|part| part == "tests") {
        return Vec::new();
    }
    let tokens = tokens(source);
    let mut findings = Vec::new();
    for (index, placed) in tokens.iter().enumerate() {
        if placed.token != Token::Word("sleep") {
            continue;
        }
        let longest = pauses_ms(arguments(&tokens, index + 1)).fold(0.0, f64::max);
        if longest > SLEEP_MS_MAX {
            let message = format!(
                "a test sleeps {longest} ms, {SLEEP_MS_MAX} is the most: wait on a signal, \
                 or advance the clock"
            );
            findings.push(Finding::new(&source.path, placed.line, message));
        }
    }
    findings
}

/// The tokens between the parenthesis at `open` and its partner; none if there is no parenthesis.
fn arguments<'a, 'b>(tokens: &'b [Placed<'a>], open: usize) -> &'b [Placed<'a>] {
    let mut depth = 0_usize;
    for (index, placed) in tokens.iter().enumerate().skip(open) {
        match placed.token {
            Token::Mark('(') => depth += 1,
            Token::Mark(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return tokens.get(open..index).unwrap_or(&[]);
        }
    }
    &[]
}

/// The literal durations among `tokens`.
fn pauses_ms(tokens: &[Placed<'_>]) -> impl Iterator<Item = f64> {
    tokens.windows(3).filter_map(|three| {
        let [Placed { token: Token::Word(unit), .. }, open, number] = three else {
            return None;
        };
        let (Token::Mark('('), Token::Word(number)) = (open.token, number.token) else {
            return None;
        };
        let (_, ms) = UNITS.iter().find(|(name, _)| name == unit)?;
        let digits: String = number.chars().take_while(|c| matches!(c, '0'..='9' | '_')).collect();
        let number: f64 = digits.replace('_', "").parse().ok()?;
        Some(number * ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_sleeps_of_tests_are_found() {
        let text = "
            tokio::time::sleep(Duration::from_millis(51)).await;
            std::thread::sleep(Duration::from_secs(1));
            sleep(
                Duration::from_micros(60_000),
            ).await;
            sleep(std::time::Duration::from_secs_f64(2.5)).await;
            sleep(Duration::from_millis(100u64)).await;
        ";
        assert_eq!(lines("crates/a/tests/it/x.rs", text), [2, 3, 4, 7, 8]);
        assert!(lines("crates/a/src/x.rs", text).is_empty());
    }

    #[test]
    fn short_sleeps_and_other_durations_are_free() {
        let text = "
            sleep(Duration::from_millis(50)).await;
            sleep(PAUSE).await; clock.advance(Duration::from_secs(60));
        ";
        assert!(lines("crates/a/tests/it/x.rs", text).is_empty());
    }
}
