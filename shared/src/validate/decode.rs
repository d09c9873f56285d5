//! Actors whose spec the types cannot hold.

use super::Violation;
use crate::api::AsyncActorSpec;

/// Reads a spec from JSON. Only what the API server's schema lets through and the types do not, for example
/// a number beyond its range, ends in an error (API-6).
///
/// # Errors
/// A violation with the path of the value that cannot be read.
pub fn decode(spec: &str) -> Result<AsyncActorSpec, Violation> {
    let mut json = serde_json::Deserializer::from_str(spec);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let inner = error.path().to_string();
        let path = match inner.as_str() {
            "." => "spec".to_owned(),
            inner => format!("spec.{inner}"),
        };
        let text = error.into_inner().to_string();
        // The place in a text that the user never saw helps nobody.
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
