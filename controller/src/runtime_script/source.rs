//! Source of the pods' runtime script (RUN-1).

use std::path::Path;
use std::sync::Arc;

/// Script embedded in this build.
const EMBEDDED: &str = include_str!("../../runtime/asya_runtime.py");
/// Handlers of bindings, which accompany any script (BIND-30).
pub const ADAPTERS: &str = include_str!("../../runtime/asya_adapters.py");
/// Path at which a chart may mount another script.
const MOUNTED: &str = "/runtime/asya_runtime.py";

/// Hash of the script and the adapters (ROLL-8).
pub fn hash_with_adapters(script: &str) -> String {
    asya_shared::hash::of_bytes([script, ADAPTERS].join("\0").as_bytes())
}

/// A configured script file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}={path}: {what}")]
pub struct Error {
    name: &'static str,
    path: String,
    what: String,
}

/// Loads the script once: from the file `script`, else `local`, else a mounted one, else the embedded copy.
///
/// # Errors
/// If a named file is missing or empty.
pub fn load(script: Option<&str>, local: Option<&str>) -> Result<Arc<str>, Error> {
    let mounted = Path::new(MOUNTED).exists().then_some(MOUNTED);
    let candidates = [
        ("ASYA_RUNTIME_SCRIPT_PATH", script),
        ("ASYA_RUNTIME_LOCAL_PATH", local),
        ("mounted script", mounted),
    ];
    // A chart renders an unset value as empty text.
    let mut candidates = candidates
        .into_iter()
        .filter_map(|(name, path)| Some((name, path.filter(|path| !path.is_empty())?)));
    let Some((name, path)) = candidates.next() else {
        return Ok(EMBEDDED.into());
    };
    let invalid = |what: String| Error {
        name,
        path: path.to_owned(),
        what,
    };
    let script = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    if script.trim().is_empty() {
        return Err(invalid("the file is empty".to_owned()));
    }
    Ok(script.into())
}

#[cfg(test)]
mod tests {
    use super::{EMBEDDED, load};

    /// RUN-1
    #[test]
    fn named_script_overrides_the_embedded_one_and_must_exist() {
        let folder = std::env::temp_dir().join(format!("asya-script-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("script.py");
        std::fs::write(&file, "print()").unwrap();
        let path = file.to_str();
        assert_eq!(&*load(path, None).unwrap(), "print()");
        assert_eq!(&*load(Some(""), path).unwrap(), "print()");
        assert_eq!(&*load(Some(""), None).unwrap(), EMBEDDED);
        std::fs::write(&file, " \n").unwrap();
        let empty = load(path, None).unwrap_err().to_string();
        assert!(
            empty.contains("ASYA_RUNTIME_SCRIPT_PATH") && empty.contains("empty"),
            "{empty}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
        load(None, path).unwrap_err();
    }
}
