//! From a URL to an object store: one string in a configuration instead of code.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::object_store::local::LocalFileSystem;
use crate::object_store::memory::InMemory;
use crate::object_store::path::Path;
use crate::object_store::{self, ObjectStore};

/// Opens the object store that a URL names, with the path inside it: `memory:///`, `file:///absolute/folder` (created
/// when missing, every write synced to disk), and `s3://`, `gs://`, `az://` and their kin with the feature `aws`, `gcp`
/// or `azure` of this crate.
///
/// `env` gives settings such as credentials, as `std::env::vars()` does; only names that start with `AWS_`, `GOOGLE_`
/// or `AZURE_` are used.
///
/// ```
/// # async fn f() -> Result<(), taquba::Error> {
/// let (bucket, path) = taquba::open_url("file:///var/lib/shop", std::env::vars())?;
/// let queue = taquba::Queue::open(bucket, path.child("jobs").as_ref()).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidUrl`] says what is wrong with the URL and what would be right.
pub fn open_url<I, K, V>(url: &str, env: I) -> Result<(Arc<dyn ObjectStore>, Path)>
where
    I: IntoIterator<Item = (K, V)>,
    K: AsRef<str>,
    V: Into<String>,
{
    let invalid = |reason: String| Error::InvalidUrl { url: url.to_owned(), reason };
    let parsed = url::Url::parse(url).map_err(|e| {
        invalid(format!("{e}; write file:///absolute/folder, memory:/// or s3://bucket/path"))
    })?;
    match parsed.scheme() {
        "memory" => Ok((Arc::new(InMemory::new()), Path::default())),
        "file" => disk(&parsed).map_err(invalid),
        scheme => {
            let settings = env.into_iter().filter_map(|(name, value)| {
                let name = name.as_ref().to_ascii_lowercase();
                let ours = ["aws_", "google_", "azure_"].iter().any(|p| name.starts_with(p));
                ours.then(|| (name, value.into()))
            });
            let (store, path) = object_store::parse_url_opts(&parsed, settings)
                .map_err(|e| invalid(format!("{e}; {}", advice(scheme))))?;
            Ok((Arc::from(store), path))
        }
    }
}

/// A folder on disk, every write synced.
fn disk(url: &url::Url) -> std::result::Result<(Arc<dyn ObjectStore>, Path), String> {
    let wrong = "write file:///absolute/folder";
    let folder = url.to_file_path().map_err(|()| format!("it names another machine; {wrong}"))?;
    if folder.parent().is_none() {
        return Err(format!("it names the root of the disk; {wrong}"));
    }
    if folder.is_file() {
        return Err(format!("{} is a file, not a folder", folder.display()));
    }
    let text = |e: &dyn std::fmt::Display| format!("folder {}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(|e| text(&e))?;
    let disk = LocalFileSystem::new_with_prefix(&folder).map_err(|e| text(&e))?;
    Ok((Arc::new(disk.with_fsync(true)), Path::default()))
}

/// What to do about a URL of this scheme that cannot be opened.
fn advice(scheme: &str) -> &'static str {
    match scheme {
        "s3" | "s3a" => "s3:// needs the feature `aws` of taquba, and a bucket",
        "gs" => "gs:// needs the feature `gcp` of taquba, and a bucket",
        "az" | "adl" | "azure" | "abfs" | "abfss" => {
            "Azure needs the feature `azure` of taquba, and a container"
        }
        _ => "known are file, memory, s3, gs, az and, with their features, the providers' https",
    }
}
