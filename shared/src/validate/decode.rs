//! Actors whose spec cannot be decoded.

use super::Violation;
use crate::api::AsyncActorSpec;

/// Decodes a spec from JSON. Only fails for values that the API server's schema accepts and our types do not, such as a
/// number out of range (API-6).
///
/// # Errors
/// A violation with the path of the value that cannot be decoded.
pub fn decode(spec: &str) -> Result<AsyncActorSpec, Violation> {
    let mut json = serde_json::Deserializer::from_str(spec);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let inner = error.path().to_string();
        let path = match inner.as_str() {
            "." => "spec".to_owned(),
            inner => format!("spec.{inner}"),
        };
        let text = error.into_inner().to_string();
        // The line and column refer to JSON that the user has never seen.
        let problem = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(problem, _)| problem);
        Violation {
            path,
            problem: format!("cannot be read: {problem}"),
            fix: Some("`kubectl explain asyncactor.spec` shows what is expected".to_owned()),
        }
    })
}
