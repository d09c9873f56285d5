//! Reads the user's kubeconfig like kubectl.

use std::io;
use std::path::{Path, PathBuf};

use kube::config::{Kubeconfig, KubeconfigError};

/// Reads the file of `--kubeconfig`, or else those of `KUBECONFIG`, or else the one in the home folder.
///
/// # Errors
/// If there is none, or one cannot be read.
pub fn read(given: Option<&Path>) -> Result<Kubeconfig, KubeconfigError> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
    let files: Vec<PathBuf> = match given {
        Some(path) => vec![path.to_owned()],
        None => listed.collect(),
    };
    if files.is_empty() {
        return Kubeconfig::read().map(without_empty_context);
    }
    merged(&files)
}

/// Merges files: for each value, the first file that has it wins. Files may be missing.
fn merged(files: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let mut all: Option<Kubeconfig> = None;
    let mut missing = None;
    for file in files {
        match Kubeconfig::read_from(file).map(without_empty_context) {
            Ok(next) => {
                all = Some(match all {
                    Some(former) => former.merge(next)?,
                    None => next,
                });
            }
            Err(error) if is_missing(&error) => missing = missing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match (all, missing) {
        (None, Some(error)) => Err(error),
        (all, _) => Ok(all.unwrap_or_default()),
    }
}

fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::ReadConfig(error, _) if error.kind() == io::ErrorKind::NotFound)
}

/// kubectl writes an empty name for no context, and merges it as none.
fn without_empty_context(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    kubeconfig.current_context = kubeconfig.current_context.filter(|name| !name.is_empty());
    kubeconfig
}

/// The `proxy-url` of a context's cluster; by default, that of the current context.
pub fn proxy_url(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|it| it.name == name)?.context.as_ref()?;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|it| it.name == context.cluster)?;
    let url = cluster.cluster.as_ref()?.proxy_url.clone()?;
    Some(url).filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// docs/cli.md: `--kubeconfig` and `KUBECONFIG` as with kubectl.
    #[test]
    fn missing_files_and_empty_contexts_of_a_list_are_skipped() {
        let folder = std::env::temp_dir().join(format!("asya-kubeconfig-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let none = folder.join("none.yaml");
        let empty = write("empty.yaml", "current-context: \"\"\n");
        let named = write("named.yaml", "current-context: eks\n");
        let broken = write("broken.yaml", "contexts: [\n");
        let context = |files: &[&PathBuf]| {
            let files: Vec<PathBuf> = files.iter().map(|&path| path.clone()).collect();
            merged(&files).map(|it| it.current_context)
        };
        let eks = Some("eks".to_owned());
        assert_eq!(context(&[&none, &named]).unwrap(), eks);
        assert_eq!(context(&[&named, &none]).unwrap(), eks);
        assert_eq!(context(&[&empty, &named]).unwrap(), eks);
        assert_eq!(context(&[&empty]).unwrap(), None);
        let error = context(&[&none, &none]).unwrap_err();
        assert!(is_missing(&error), "{error}");
        let error = context(&[&named, &broken]).unwrap_err();
        assert!(matches!(error, KubeconfigError::Parse(_)), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
