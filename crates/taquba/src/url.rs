//! From a URL to an object store: one string in a configuration instead of code.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::object_store::ObjectStore;
use crate::object_store::local::LocalFileSystem;
use crate::object_store::memory::InMemory;
use crate::object_store::path::Path;

mod cloud;
mod shown;

/// What a wrong URL is wrong with, and what would be right: one sentence.
type Wrong = String;
type Opened = (Arc<dyn ObjectStore>, Path);

const FORMS: &str = "write file:///absolute/path, memory:/// or s3://bucket/path";

/// Opens the object store that a URL names, with the path inside it: `memory:///`, `file:///absolute/folder` (created
/// when missing, every write synced to disk), and `s3://`, `gs://`, `az://` and their kin with the feature `aws`, `gcp`
/// or `azure` of this crate.
///
/// `env` gives settings such as credentials, as `std::env::vars()` does; only names that start with `AWS_`, `GOOGLE_`
/// or `AZURE_` are used. An S3 endpoint of your own is `s3://bucket/path` with `AWS_ENDPOINT=http://host:port` and, for
/// plain HTTP, `AWS_ALLOW_HTTP=true`. A provider's client tries a request again for up to 10 s; the queue tries on.
///
/// ```
/// # async fn f() -> Result<(), taquba::Error> {
/// let (bucket, path) = taquba::open_url("file:///var/lib/shop", std::env::vars())?;
/// let queue = taquba::Queue::open(bucket, path.join("jobs").as_ref()).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidUrl`] says what is wrong with the URL and what would be right. It shows no password and no query.
pub fn open_url<I, K, V>(url: &str, env: I) -> Result<(Arc<dyn ObjectStore>, Path)>
where
    I: IntoIterator<Item = (K, V)>,
    K: AsRef<str>,
    V: Into<String>,
{
    let settings = env.into_iter().filter_map(|(name, value)| {
        let name = name.as_ref().to_ascii_lowercase();
        let ours = ["aws_", "google_", "azure_"].iter().any(|p| name.starts_with(p));
        ours.then(|| (name, value.into()))
    });
    open(url, settings).map_err(|reason| Error::InvalidUrl { url: shown::shown(url), reason })
}

fn open(url: &str, settings: impl Iterator<Item = (String, String)>) -> Result<Opened, Wrong> {
    if url.starts_with('/') {
        let path = shown::shown(url);
        return Err(format!("it is a path and not a URL; write file://{path}"));
    }
    let parsed = url::Url::parse(url).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => format!("it names no kind of store; {FORMS}"),
        error => format!("{error}; {FORMS}"),
    })?;
    match parsed.scheme() {
        "memory" => memory(&parsed),
        "file" => disk(url, &parsed),
        _ => cloud::open(url, &parsed, settings),
    }
}

/// Refuses what a name of a file or in memory cannot have.
fn no_query(url: &url::Url) -> Result<(), Wrong> {
    let wrong = |what: &str, sign: &str, code: &str| {
        let scheme = url.scheme();
        Err(format!(
            "{scheme}: URLs have no {what}; a {sign} that belongs to the path is written {code}"
        ))
    };
    if url.query().is_some() {
        wrong("query", "?", "%3F")
    } else if url.fragment().is_some() {
        wrong("fragment", "#", "%23")
    } else {
        Ok(())
    }
}

/// A store in memory, new with each call.
fn memory(url: &url::Url) -> Result<Opened, Wrong> {
    no_query(url)?;
    let is_named = url.host_str().is_some_and(|host| !host.is_empty());
    if is_named || (url.cannot_be_a_base() && !url.path().is_empty()) {
        return Err(
            "a store in memory has no name and is new with each call; write memory:///".to_owned()
        );
    }
    let path =
        Path::from_url_path(url.path()).map_err(|e| format!("its path is not legal: {e}"))?;
    Ok((Arc::new(InMemory::new()), path))
}

/// A folder on disk, every write synced.
fn disk(given: &str, url: &url::Url) -> Result<Opened, Wrong> {
    no_query(url)?;
    const RIGHT: &str = "write three slashes: file:///absolute/path";
    // The parser makes `file:x` absolute without a word.
    let after_scheme = given.split_once(':').map_or("", |(_, rest)| rest);
    if !after_scheme.starts_with('/') {
        return Err(format!("it names a folder relative to nothing; {RIGHT}"));
    }
    if let Some(host) = url.host_str() {
        return Err(format!(
            "it names the machine {host:?}, and only this one has its files here; {RIGHT}"
        ));
    }
    let unusable = || format!("it names no folder of this machine; {RIGHT}");
    let folder = url.to_file_path().map_err(|()| unusable())?;
    if folder.parent().is_none() {
        return Err("it names the root of the disk; write file:///absolute/path".to_owned());
    }
    if folder.is_file() {
        return Err(format!("{} is a file, not a folder", folder.display()));
    }
    let text = |e: &dyn std::fmt::Display| format!("folder {}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(|e| text(&e))?;
    let disk = LocalFileSystem::new_with_prefix(&folder).map_err(|e| text(&e))?;
    Ok((Arc::new(disk.with_fsync(true)), Path::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the URL is refused with.
    fn refusal(url: &str) -> String {
        let refused = open_url(url, std::iter::empty::<(String, String)>()).unwrap_err();
        assert!(refused.is_permanent(), "{refused}");
        refused.to_string()
    }

    #[track_caller]
    fn refuses(cases: &[(&str, &str)]) {
        for (url, says) in cases {
            let said = refusal(url);
            assert!(said.contains(says), "{url}: {said}");
            assert!(!said.contains("Generic"), "{said}");
        }
    }

    #[test]
    fn a_file_url_without_three_slashes_is_refused_and_shown_the_right_form() {
        refuses(&[
            ("file:relative", "write three slashes: file:///absolute/path"),
            ("file:./relative/x", "write three slashes: file:///absolute/path"),
            ("file:", "write three slashes: file:///absolute/path"),
            ("file://host/share", "write three slashes: file:///absolute/path"),
            ("file://relative", "write three slashes: file:///absolute/path"),
            ("FILE://data/x", "write three slashes: file:///absolute/path"),
            ("file:///", "root of the disk"),
        ]);
    }

    #[test]
    fn a_path_is_shown_as_the_url_it_would_be() {
        refuses(&[
            ("/var/lib/shop", "write file:///var/lib/shop"),
            ("data/shop", "names no kind of store"),
            ("", "names no kind of store"),
        ]);
    }

    #[test]
    fn queries_and_fragments_of_files_and_memory_are_refused() {
        refuses(&[
            ("file:///tmp/x?fsync=false", "no query"),
            ("file:///tmp/x#1", "no fragment"),
            ("memory:///?x=1", "no query"),
            ("memory:///#x", "no fragment"),
        ]);
    }

    #[test]
    fn a_store_in_memory_has_no_name() {
        refuses(&[("memory://foo", "write memory:///"), ("memory:foo", "write memory:///")]);
        for url in ["memory:", "memory://", "memory:///"] {
            let (_, path) = open_url(url, std::iter::empty::<(String, String)>()).unwrap();
            assert_eq!(path, Path::default());
        }
        let (_, path) = open_url("memory:///a/b", std::iter::empty::<(String, String)>()).unwrap();
        assert_eq!(path.as_ref(), "a/b");
    }
}
