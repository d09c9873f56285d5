//! Keys of the configuration that this release does not know.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownKeys {
    /// A typo must not go unnoticed.
    Reject,
    /// A later release may know them.
    Ignore,
}

/// Decodes what is known of a value whose type rejects unknown fields.
pub(super) fn decode_known<T: DeserializeOwned>(
    mut json: Value,
) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    loop {
        let decoded = serde_path_to_error::deserialize(&json);
        match decoded {
            Err(error) if is_unknown_field(error.inner()) && remove(&mut json, error.path()) => {}
            decoded => return decoded,
        }
    }
}

/// Whether serde's error is `unknown_field`, of which it keeps the text only.
fn is_unknown_field(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("unknown field `")
}

/// Removes what a path leads to; `false` if there is nothing.
fn remove(json: &mut Value, path: &Path) -> bool {
    let keys = path.iter().map(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        _ => None,
    });
    let keys: Option<Vec<&str>> = keys.collect();
    let Some((last, parents)) = keys.as_deref().and_then(<[&str]>::split_last) else {
        return false;
    };
    let parent = parents.iter().try_fold(json, |at, key| at.get_mut(*key));
    let fields = parent.and_then(Value::as_object_mut);
    fields.is_some_and(|fields| fields.remove(*last).is_some())
}
