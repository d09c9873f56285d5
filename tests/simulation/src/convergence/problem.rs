//! What is found to be wrong.

use std::fmt;
use std::sync::Arc;

use crate::api_server::object::Object;

/// Something that is not as it should be. It is looked for every second, and shown only if it is still there at the
/// end.
pub struct Problem {
    what: String,
    object: Option<Arc<Object>>,
}

impl Problem {
    /// A problem of this object.
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
