//! Temporary folders that are removed with their owner.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::supervisor;
use crate::error::{Context, Error, Result};

/// A new folder that is removed when dropped. It is kept, and its path printed, when a test fails.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    keep: bool,
    _lock: File,
}

impl Folder {
    /// Creates a folder, and removes folders whose owner no longer runs.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn create(prefix: &str) -> Result<Self> {
        let root = root();
        std::fs::create_dir_all(&root).context(format_args!("make {}", root.display()))?;
        // Serialized, because another harness would remove a folder that is not locked yet.
        let _turn = lock_file(&root.join("lock")).context("lock the folder of folders")?;
        sweep(&root);
        for number in 0..10_000 {
            let path = root.join(format!("{prefix}{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let lock = lock_file(&path.join("lock"))
                        .context(format_args!("lock {}", path.display()))?;
                    supervisor::remove_at_end(path.clone());
                    return Ok(Self {
                        path,
                        keep: false,
                        _lock: lock,
                    });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(format_args!("make {}", path.display())),
            }
        }
        Err(Error::Other(format!(
            "{} is full of folders",
            root.display()
        )))
    }

    /// Keeps the folder for inspection.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// The folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        supervisor::forget(&self.path);
        if self.keep || std::thread::panicking() {
            let _ = File::create(self.path.join("kept"));
            eprintln!("logs are kept in {}", self.path.display());
        } else if std::fs::remove_dir_all(&self.path).is_err() {
            // A process that is being killed may still have written to the folder.
            std::thread::sleep(Duration::from_millis(200));
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// One root per user, because another user's folder could not be removed. The path is short, because that of a Unix
/// socket is limited to 107 characters.
fn root() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("asya-tests-{user}"))
}

fn lock_file(path: &Path) -> std::io::Result<File> {
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// Removes folders that a killed harness left, and kept folders after a day.
fn sweep(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Ok(lock) = File::open(path.join("lock")) else {
            continue;
        };
        if !is_kept(&path) && lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn is_kept(folder: &Path) -> bool {
    let modified = std::fs::metadata(folder.join("kept")).and_then(|kept| kept.modified());
    modified.is_ok_and(|time| {
        time.elapsed()
            .is_ok_and(|age| age < Duration::from_hours(24))
    })
}

#[cfg(test)]
mod tests;
