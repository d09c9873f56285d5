//! `Status` objects, with which the API server reports errors.

use serde_json::{Value, json};

use super::id::Id;
use super::resources::Resource;

/// An error of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// How many seconds the client should wait before it retries.
    pub retry_after: Option<u32>,
    /// Details: reason, message and field of each.
    pub causes: Vec<(&'static str, String, String)>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            retry_after: None,
            causes: Vec::new(),
        }
    }

    /// The object does not exist.
    #[must_use]
    pub fn not_found(id: &Id) -> Self {
        let message = format!("{} {:?} not found", id.resource.qualified(), id.name);
        Self::new(404, "NotFound", message)
    }

    /// The path does not exist.
    #[must_use]
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(404, "NotFound", message)
    }

    /// The client lacks permission.
    #[must_use]
    pub fn forbidden(resource: &Resource) -> Self {
        let message = format!("{} is forbidden", resource.qualified());
        Self::new(403, "Forbidden", message)
    }

    /// An admission plugin rejects an object.
    #[must_use]
    pub fn rejected(id: &Id, why: &str) -> Self {
        let subject = format!("{} {:?}", id.resource.qualified(), id.name);
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}"))
    }

    /// Objects cannot be created while the CRD is being deleted.
    #[must_use]
    pub fn crd_terminating() -> Self {
        let message = "create not allowed while custom resource definition is terminating";
        Self::new(405, "MethodNotAllowed", message.to_owned())
    }

    /// An object with this name exists.
    #[must_use]
    pub fn already_exists(id: &Id) -> Self {
        let message = format!("{} {:?} already exists", id.resource.qualified(), id.name);
        Self::new(409, "AlreadyExists", message)
    }

    /// The object has changed since the client read it.
    #[must_use]
    pub fn conflict(id: &Id, why: &str) -> Self {
        let subject = format!("{} {:?}", id.resource.qualified(), id.name);
        let message = format!("Operation cannot be fulfilled on {subject}: {why}");
        Self::new(409, "Conflict", message)
    }

    /// Other managers own fields that an unforced apply would change: manager and path of each.
    #[must_use]
    pub fn field_conflicts(conflicts: &[(String, String)]) -> Self {
        let cause = |(manager, path): &(String, String)| {
            let message = format!("conflict with {manager}");
            ("FieldManagerConflict", message, path.clone())
        };
        let lines = conflicts
            .iter()
            .map(|(manager, path)| format!("conflict with {manager}: {path}"));
        let lines: Vec<String> = lines.collect();
        let count = match conflicts.len() {
            1 => "1 conflict".to_owned(),
            count => format!("{count} conflicts"),
        };
        let message = format!("Apply failed with {count}: {}", lines.join("\n"));
        Self {
            causes: conflicts.iter().map(cause).collect(),
            ..Self::new(409, "Conflict", message)
        }
    }

    /// The request is invalid for the object.
    #[must_use]
    pub fn invalid(message: &str) -> Self {
        Self::new(422, "Invalid", message.to_owned())
    }

    /// A webhook with failure policy Fail could not be called.
    #[must_use]
    pub fn webhook_failed(name: &str, why: &str) -> Self {
        let message = format!("Internal error occurred: failed calling webhook {name:?}: {why}");
        Self::new(500, "InternalError", message)
    }

    /// A webhook denied the request.
    #[must_use]
    pub fn denied(name: &str, status: &Value) -> Self {
        let message = status["message"].as_str().unwrap_or_default();
        let message = format!("admission webhook {name:?} denied the request: {message}");
        let code = status["code"]
            .as_u64()
            .and_then(|code| code.try_into().ok());
        Self::new(code.unwrap_or(403), "Forbidden", message)
    }

    /// The request is malformed.
    #[must_use]
    pub fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message.to_owned())
    }

    /// The requested version is too old.
    #[must_use]
    pub fn expired() -> Self {
        let message = "The resourceVersion for the provided watch is too old.".to_owned();
        Self::new(410, "Expired", message)
    }

    /// The server has a temporary error.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(
            500,
            "InternalError",
            "etcdserver: request timed out".to_owned(),
        )
    }

    /// The server is temporarily overloaded.
    #[must_use]
    pub fn too_many_requests(seconds: u32) -> Self {
        let message = "the server has received too many requests".to_owned();
        Self {
            retry_after: Some(seconds),
            ..Self::new(429, "TooManyRequests", message)
        }
    }

    /// Fields of the object are invalid: reason, message and path of each.
    #[must_use]
    pub fn invalid_fields(causes: &[(&'static str, &str, &str)]) -> Self {
        let messages: Vec<String> = causes
            .iter()
            .map(|(_, why, field)| format!("{field}: {why}"))
            .collect();
        let owned = |(reason, why, field): &(&'static str, &str, &str)| {
            (*reason, (*why).to_owned(), (*field).to_owned())
        };
        Self {
            causes: causes.iter().map(owned).collect(),
            ..Self::invalid(&messages.join(", "))
        }
    }

    /// The body of the response.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut details = self.retry_after.map_or_else(
            || json!({}),
            |seconds| json!({"retryAfterSeconds": seconds}),
        );
        let cause = |(reason, message, field): &(&str, String, String)| json!({"reason": reason, "message": message, "field": field});
        if !self.causes.is_empty() {
            details["causes"] = self.causes.iter().map(cause).collect();
        }
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": details,
            "code": self.code,
        })
    }
}

/// The response to a deletion that removed the object.
#[must_use]
pub fn success(id: &Id, object: &Value) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": id.name, "group": id.resource.group, "kind": id.resource.plural, "uid": object["metadata"]["uid"]},
    })
}
