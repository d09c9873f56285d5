//! The archive: a compressed tar file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The folder into which the archive unpacks.
const FOLDER: &str = "asya-bundle";

/// Path in the archive, and content.
pub type Files = Vec<(String, String)>;

/// Writes the archive. On failure, no file is left behind.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, files: &Files) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = File::create(&partial)
        .and_then(|file| pack(file, files))
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

fn pack(file: impl Write, files: &Files) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(now);
        archive.append_data(&mut header, format!("{FOLDER}/{path}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn archive_unpacks_to_what_was_packed() {
        let long = format!("logs/{}/log", "x".repeat(150));
        let files = vec![
            ("a.txt".to_owned(), "one".to_owned()),
            (long.clone(), "two".to_owned()),
        ];
        let mut packed = Vec::new();
        pack(&mut packed, &files).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&*packed));
        let found = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, text)
        });
        let expected = files
            .iter()
            .map(|(path, text)| (format!("asya-bundle/{path}"), text.clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn failed_write_leaves_nothing() {
        assert!(write(Path::new("/nonexistent/bundle.tar.gz"), &Vec::new()).is_err());
    }
}
