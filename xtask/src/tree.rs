//! The text files of the repository, by path. Owns what is skipped, knows no rule.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::Fault;

/// Folders that hold nothing of ours: build output and git's own.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// One file: its path from the root, with `/` between the parts, and its text.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every file under `root` that is text, sorted by path.
pub(crate) fn text_files(root: &Path) -> Result<Vec<TextFile>, Fault> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.extend(text_file(root, &entry.path())?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// None for a file that is not UTF-8, or that was removed since its folder was listed.
fn text_file(root: &Path, path: &Path) -> Result<Option<TextFile>, Fault> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::NotFound) => {
            return Ok(None);
        }
        Err(e) => return Err(format!("cannot read {}: {e}", path.display()).into()),
    };
    let parts: Vec<_> = path.strip_prefix(root)?.iter().map(|p| p.to_string_lossy()).collect();
    Ok(Some(TextFile { path: parts.join("/"), text }))
}
