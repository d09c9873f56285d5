//! Problems found by checks.

use std::fmt;
use std::sync::Arc;

use crate::api_server::object::Object;

/// A deviation from the expected state. Checks run every second; a problem is reported only if it still exists at the
/// deadline.
pub struct Problem {
    what: String,
    object: Option<Arc<Object>>,
}

impl Problem {
    /// A problem with this object.
    #[must_use]
    pub fn of(what: String, object: &Arc<Object>) -> Self {
        let object = Some(Arc::clone(object));
        Self { what, object }
    }
}

impl From<String> for Problem {
    fn from(what: String) -> Self {
        Self { what, object: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(object) => write!(f, "{}: {object}", self.what),
            None => f.write_str(&self.what),
        }
    }
}
