//! The cache: `<part>-<key>/` holds a finished part. An entry is complete or absent.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};

/// The cache folder: `$ASYA_CACHE`, else `$XDG_CACHE_HOME/asya-tests`, else `~/.cache/asya-tests`.
///
/// # Errors
/// When none of the three variables is set.
pub fn folder() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("ASYA_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("asya-tests")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/asya-tests")))
        .ok_or_else(|| {
            Error::Missing(
                "no folder for the cache: set ASYA_CACHE, XDG_CACHE_HOME or HOME".to_owned(),
            )
        })
}

/// The key of an entry: a hash of all inputs of the build.
pub(super) fn key<'a>(inputs: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(input.len().to_le_bytes());
        hash.update(input);
    }
    let mut key = String::new();
    for byte in hash.finalize().iter().take(8) {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

/// Returns the cache entry; runs `build` first if it is missing. `hint` says what is built and how long it takes.
pub(super) async fn entry<B>(part: &str, key: &str, hint: &str, build: B) -> Result<PathBuf>
where
    B: AsyncFnOnce(&Path) -> Result<()>,
{
    let root = folder()?;
    let entry = root.join(format!("{part}-{key}"));
    if entry.exists() {
        return Ok(entry);
    }
    std::fs::create_dir_all(&root).context(format_args!("make {}", root.display()))?;
    let _lock = lock(&root.join(format!("{part}.lock")), part).await?;
    if entry.exists() {
        return Ok(entry);
    }
    // Built in a temporary folder, so that an entry is complete or absent.
    let started = Instant::now();
    let unfinished = root.join(format!("{part}-{key}.unfinished"));
    let _ = std::fs::remove_dir_all(&unfinished);
    std::fs::create_dir_all(unfinished.join("bin"))
        .context(format_args!("make {}", unfinished.display()))?;
    eprintln!("building {hint}");
    let ticking = async {
        loop {
            tokio::time::sleep(Duration::from_secs(20)).await;
            eprintln!("  {part}: {} s", started.elapsed().as_secs());
        }
    };
    tokio::select! {
        done = build(&unfinished) => done?,
        () = ticking => {}
    }
    std::fs::rename(&unfinished, &entry).context(format_args!("make {}", entry.display()))?;
    eprintln!("  {part}: done in {} s", started.elapsed().as_secs());
    Ok(entry)
}

/// Waits for another harness to finish building the part.
async fn lock(path: &Path, part: &str) -> Result<File> {
    let file = File::create(path).context(format_args!("write {}", path.display()))?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    eprintln!("waiting for another build of {part}");
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if file.try_lock().is_ok() {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests;
