//! How a URL is shown in an error: without its password, its query and its fragment, which may hold secrets, whether it
//! is well formed or not.

/// How much of a URL is shown, in bytes.
const MAX: usize = 1_024;

/// See the module.
pub(super) fn shown(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(start);
    let query = rest.find(['?', '#']);
    // A password may hold any sign when it was not encoded, so the last @ ends it.
    let colon = rest.find(':').filter(|colon| query.is_none_or(|query| *colon < query));
    let secret = colon.and_then(|colon| {
        let at = rest.rfind('@').filter(|at| *at > colon)?;
        Some((colon, at))
    });
    let said = match (secret, query) {
        // Where the password ends and the query begins is anybody's guess.
        (Some((colon, at)), Some(query)) if query < at => {
            format!("{}:…", &rest.get(..colon).unwrap_or_default())
        }
        (Some((colon, at)), query) => {
            let after = rest.get(at..query.unwrap_or(rest.len())).unwrap_or_default();
            format!("{}:…{after}{}", rest.get(..colon).unwrap_or_default(), tail(rest, query))
        }
        (None, query) => {
            let before = rest.get(..query.unwrap_or(rest.len())).unwrap_or_default();
            format!("{before}{}", tail(rest, query))
        }
    };
    let mut end = said.len().min(MAX);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    format!("{scheme}{}", said.get(..end).unwrap_or_default())
}

/// A mark that something was left out.
fn tail(rest: &str, query: Option<usize>) -> &'static str {
    match query.and_then(|at| rest.as_bytes().get(at)) {
        Some(b'?') => "?…",
        Some(_) => "#…",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_left_out() {
        for (url, said) in [
            ("s3://bucket/path", "s3://bucket/path"),
            ("az://container@account/path", "az://container@account/path"),
            ("s3://key:secret@bucket/path", "s3://key:…@bucket/path"),
            ("s3://key:se/cret@bucket/path", "s3://key:…@bucket/path"),
            ("s3://key:se@cret@bucket/path", "s3://key:…@bucket/path"),
            ("s3://key:secret@bucket/path?token=secret", "s3://key:…@bucket/path?…"),
            ("s3://key:se?cret@bucket/path", "s3://key:…"),
            ("s3://bucket/path?token=secret", "s3://bucket/path?…"),
            ("s3://host:9000/path?mail=a@secret", "s3://host:…"),
            ("s3://bucket/path?t=1:2@secret", "s3://bucket/path?…"),
            ("https://host/x#secret", "https://host/x#…"),
            ("s3:/key:secret@bucket", "s3:…@bucket"),
            ("key:secret@bucket/path", "key:…@bucket/path"),
            ("file:///a/ü", "file:///a/ü"),
            ("", ""),
        ] {
            assert_eq!(shown(url), said, "{url}");
            assert!(!shown(url).contains("secret"));
        }
        assert!(shown(&format!("s3://{}", "ü".repeat(10_000))).len() < 1_100);
    }

    #[test]
    fn no_error_of_a_url_tells_a_secret() {
        for url in [
            "s3://key:secret@bucket/x?token=secret",
            "s3://key:secret@/x",
            "s3:/key:secret@bucket",
            "http://key:secret@host/bucket?token=secret",
            "https://key:secret@host/bucket?token=secret",
            "https://key:secret@s3.amazonaws.com/?token=secret",
            "gs://key:secret@bucket/x",
            "az://key:secret@account/%00?token=secret",
            "ftp://key:secret@host/x",
            "memory://key:secret@host/",
            "file://key:secret@host/x",
            "file:///x?token=secret",
            "/x?token=secret",
            "key:secret@host",
            "s3://key:secret@[bad/x",
        ] {
            let opened = crate::open_url(url, std::iter::empty::<(String, String)>());
            if let Err(refused) = opened {
                let said = format!("{refused} {refused:?}");
                assert!(!said.contains("secret"), "{said}");
            }
        }
    }
}
