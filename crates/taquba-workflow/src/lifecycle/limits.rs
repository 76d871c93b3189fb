//! The sizes that this crate holds callers to, below what the queue takes, so that a settlement is never refused for
//! what a step produced. Numbers and the cut of error texts only.

/// Largest result that commits with the settlement, in bytes (128 KiB); a larger one becomes an object first.
pub(crate) const MAX_INLINE_RESULT: usize = 128 * 1_024;
/// Most KV entries that one step or hook stages. The queue takes 1,000 with ours.
pub(crate) const MAX_STAGED_ENTRIES: usize = 980;
/// Largest set of KV entries that one step or hook stages, keys and values, in bytes (2 MiB). The queue takes 4 MiB
/// with ours.
pub(crate) const MAX_STAGED_BYTES: usize = 2 * 1_024 * 1_024;
/// Longest KV key, in bytes (1 KiB), as the queue has it.
pub(crate) const MAX_KV_KEY_LEN: usize = 1_024;
/// Largest set of headers of one run, in bytes (60 KiB). The queue takes 64 KiB with ours.
pub(crate) const MAX_HEADERS_SIZE: usize = 60 * 1_024;
/// Longest signal key, in bytes, as the queue has it.
pub(crate) const MAX_SIGNAL_KEY_LEN: usize = 256;
/// Largest payload of a step, in bytes (1 MiB). What is larger belongs in a memo or an object, its key in the payload.
pub(crate) const MAX_STEP_PAYLOAD: usize = 1_024 * 1_024;
/// How much of an error text is kept, in bytes (8 KiB).
pub(crate) const MAX_ERROR_TEXT_LEN: usize = 8 * 1_024;

/// Cuts an error text to its kept length, at a character boundary.
pub(crate) fn clip(mut text: String) -> String {
    let mut end = text.len().min(MAX_ERROR_TEXT_LEN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(clip("short".into()), "short");
        let long = format!("{}ä tail", "x".repeat(MAX_ERROR_TEXT_LEN - 1));
        assert_eq!(clip(long), "x".repeat(MAX_ERROR_TEXT_LEN - 1));
    }
}
