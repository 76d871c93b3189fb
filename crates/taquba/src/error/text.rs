//! The wording of errors where it takes more than a format string. Whatever a caller gave is clipped: an error is read.

use std::error::Error as StdError;

/// How much of a queue's name, a job's id or a key is shown, in bytes: all of any legal name or id.
pub(super) const NAME: usize = 256;
/// How much of a store's path is shown.
pub(super) const PATH: usize = 1_024;
/// How much of a header's name is shown.
pub(super) const HEADER: usize = 64;

/// At most `max` bytes of a text, at a character boundary, with a mark where it was cut.
pub(super) fn clip(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = text.get(..end).unwrap_or(text);
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

/// Why the store did not confirm, if it said.
pub(super) fn because(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!("; the store's last error was {cause}"))
}

/// What the store last said while it was to be opened.
pub(super) fn last_error(text: &str) -> String {
    match text {
        "" => "it did not answer at all".to_owned(),
        text => format!("its last error was {text}"),
    }
}

/// What to do about something too large: a key cannot be split.
pub(super) fn advice(what: &str) -> &'static str {
    match what {
        _ if what.ends_with("key bytes") || what.ends_with("key") => "choose a shorter key",
        _ if what.contains("header") => "keep the bulk in the payload",
        "batch jobs" | "batch bytes" | "effects entries" | "effects bytes" => {
            "split it into several calls"
        }
        "retry delays" => "give fewer delays; the last one repeats",
        _ => "split it, or keep the bulk in the bucket",
    }
}

/// An error with all that is under it.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !said.contains(&cause_text) {
            said.push_str(": ");
            said.push_str(&cause_text);
        }
        next = cause.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn what_a_caller_gave_is_clipped_at_a_character() {
        assert_eq!(clip("short", 64), "short");
        assert_eq!(clip("üü", 3), "ü…");
        let long = "x".repeat(100_000);
        for error in [
            Error::JobNotFound(long.clone()),
            Error::InvalidId { id: long.clone(), reason: "must be at most 128 bytes" },
            Error::InvalidQueueName { queue: long.clone(), reason: "must be at most 255 bytes" },
            Error::ConflictingKvEffect { key: long.clone().into_bytes() },
            Error::SignalKeyTaken { key: long.clone() },
            Error::SignalKeyWithoutTimeout { key: long.clone() },
            Error::HeaderTooLarge { header: long.clone(), size: 100_000, max: 8_192 },
            Error::InvalidPath { path: long.clone() },
        ] {
            assert!(error.to_string().len() < 1_400, "{} bytes", error.to_string().len());
        }
    }

    #[test]
    fn the_advice_fits_what_is_too_large() {
        let says = |what, says: &str| {
            let error = Error::TooLarge { what, size: 2, max: 1 }.to_string();
            assert!(error.contains(says), "{error}");
        };
        says("dedup key bytes", "choose a shorter key");
        says("KV key", "choose a shorter key");
        says("payload bytes", "keep the bulk in the bucket");
        says("batch jobs", "split it into several calls");
        says("run headers", "keep the bulk in the payload");
    }

    #[test]
    fn an_unconfirmed_call_says_why_if_the_store_said() {
        let silent = Error::NotConfirmed { waited_ms: 9, cause: None }.to_string();
        assert!(silent.ends_with("read before retrying"), "{silent}");
        let cause = Some("PUT of \"x\": no route".to_owned());
        let told = Error::NotConfirmed { waited_ms: 9, cause }.to_string();
        assert!(told.ends_with("the store's last error was PUT of \"x\": no route"), "{told}");
    }
}
