//! From a URL to an object store: one string in a configuration instead of code.

use std::sync::Arc;

use crate::error::Result;
use crate::object_store::local::LocalFileSystem;
use crate::object_store::memory::InMemory;
use crate::object_store::path::Path;
use crate::object_store::{self, ObjectStore};

/// Opens the object store that a URL names, with the path inside it: `memory:///`, `file:///absolute/folder` (created
/// when missing, every write synced to disk), and with the cloud features `s3://`, `gs://`, `az://` and their kin.
///
/// `env` gives settings such as credentials, as `std::env::vars()` does; only names that start with `AWS_`, `GOOGLE_`
/// or `AZURE_` are used.
///
/// # Errors
/// [`Error::PayloadStore`](crate::Error::PayloadStore) when the URL is not understood or the folder cannot be made.
pub fn open_url<I, K, V>(url: &str, env: I) -> Result<(Arc<dyn ObjectStore>, Path)>
where
    I: IntoIterator<Item = (K, V)>,
    K: AsRef<str>,
    V: Into<String>,
{
    let invalid =
        |reason: String| object_store::Error::Generic { store: "url", source: reason.into() };
    if url.starts_with("memory:") {
        return Ok((Arc::new(InMemory::new()), Path::default()));
    }
    if let Some(folder) = url.strip_prefix("file://") {
        if !folder.starts_with('/') {
            return Err(invalid(format!("{url:?} must be file:/// and an absolute folder")).into());
        }
        std::fs::create_dir_all(folder).map_err(|e| invalid(format!("folder {folder:?}: {e}")))?;
        let disk = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        return Ok((Arc::new(disk), Path::default()));
    }
    let settings = env.into_iter().filter_map(|(name, value)| {
        let name = name.as_ref().to_ascii_lowercase();
        let ours = ["aws_", "google_", "azure_"].iter().any(|prefix| name.starts_with(prefix));
        ours.then(|| (name, value.into()))
    });
    let parsed = url::Url::parse(url).map_err(|e| invalid(format!("{url:?}: {e}")))?;
    let (store, path) = object_store::parse_url_opts(&parsed, settings)?;
    Ok((Arc::from(store), path))
}
