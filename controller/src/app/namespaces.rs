//! Which namespaces are watched. A mounted file can change them without a restart (FW-13).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::watches::Watches;
use crate::cluster::watch_scope::WatchScope;

/// How often the file is read. The kubelet itself takes up to a minute to update a mounted `ConfigMap`.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Source of the names of the watched namespaces.
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// Names from the flag, which never change.
    pub named: Vec<String>,
    /// File with one name per line; takes precedence over the flag.
    pub file: Option<PathBuf>,
}

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--watch-namespaces-file {path}: {source}")]
pub struct Error {
    path: String,
    source: std::io::Error,
}

impl Namespaces {
    /// Returns the namespaces to watch now, or all if none is named.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> Result<BTreeSet<WatchScope>, Error> {
        let Some(file) = &self.file else {
            return Ok(scopes(self.named.iter().map(String::as_str)));
        };
        let text = std::fs::read_to_string(file).map_err(|source| Error {
            path: file.display().to_string(),
            source,
        })?;
        Ok(scopes(text.lines()))
    }

    /// Starts and stops `watches` as the file changes, forever.
    pub async fn follow(self, mut watches: Watches) {
        if self.file.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match self.read() {
                Ok(scopes) if watches.set_scopes(&scopes) => {
                    info!(?scopes, "watched namespaces changed");
                }
                Ok(_) => {}
                // Keep the namespaces of the last successful read.
                Err(error) => warn!(%error, "watched namespaces"),
            }
        }
    }
}

fn scopes<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<WatchScope> {
    let names: BTreeSet<WatchScope> = names
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| WatchScope::Namespace(Arc::from(name)))
        .collect();
    if names.is_empty() {
        BTreeSet::from([WatchScope::Cluster])
    } else {
        names
    }
}

#[cfg(test)]
mod tests {
    use super::Namespaces;

    fn read(named: &[&str], file: Option<&str>) -> Vec<Option<String>> {
        let path = std::env::temp_dir().join(format!(
            "asya-namespaces-{}-{}",
            std::process::id(),
            named.len()
        ));
        let file = file.map(|text| {
            std::fs::write(&path, text).unwrap();
            path
        });
        let namespaces = Namespaces {
            named: named.iter().map(ToString::to_string).collect(),
            file: file.clone(),
        };
        let scopes = namespaces.read().unwrap();
        file.map(std::fs::remove_file);
        scopes
            .into_iter()
            .map(|scope| scope.namespace().map(ToString::to_string))
            .collect()
    }

    fn names(names: &[&str]) -> Vec<Option<String>> {
        names.iter().map(|name| Some((*name).to_owned())).collect()
    }

    /// FW-13
    #[test]
    fn file_overrides_the_flag_and_an_empty_list_means_all() {
        assert_eq!(read(&[], None), [None]);
        assert_eq!(read(&["b", "a", ""], None), names(&["a", "b"]));
        assert_eq!(read(&["a"], Some("c\n\n d \n")), names(&["c", "d"]));
        assert_eq!(read(&["a", "b"], Some("\n")), [None]);
    }
}
