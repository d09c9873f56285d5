//! `AdmissionReview`: reads requests and writes responses (ADM-2, ADM-3, ADM-8).

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// An admission request, borrowed from the body. Objects stay raw JSON until they are decoded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    /// Identifies the request; the response echoes it.
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: GroupVersionName<'a>,
    #[serde(borrow, default)]
    resource: GroupVersionName<'a>,
    #[serde(borrow, default)]
    sub_resource: Cow<'a, str>,
    /// Namespace of the object, which the metadata of a pod created from a template may lack (INJ-3).
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    /// CREATE, UPDATE, DELETE or CONNECT.
    #[serde(borrow, default)]
    pub operation: Cow<'a, str>,
    /// The object as it will be stored.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as stored.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Options of the operation, such as `DeleteOptions`.
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

/// How a deletion treats the object's dependents. Unknown options count as the default, `Background`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions<'a> {
    #[serde(borrow, default)]
    propagation_policy: Option<Cow<'a, str>>,
}

/// A group, a version, and a kind or resource.
#[derive(Debug, Default, Deserialize)]
struct GroupVersionName<'a> {
    #[serde(borrow, default)]
    group: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Cow<'a, str>,
    #[serde(borrow, default, alias = "resource", rename = "kind")]
    name: Cow<'a, str>,
}

/// The resource and operations that a path serves.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// API group; empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Plural name of the kind.
    pub resource: &'static str,
    pub operations: &'static [&'static str],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<AdmissionRequest<'a>>,
}

/// Why a body is not a valid review. Never quotes the body, which may contain Secrets.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Not JSON, or not the structure of a review.
    NotJson {
        /// Line in the body.
        line: usize,
        /// Column in that line.
        column: usize,
    },
    /// Another kind or version.
    Other,
    /// The request is missing.
    NoRequest,
    /// The uid of the request is missing.
    NoUid,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected an {KIND} of {API_VERSION} with request.uid: ")?;
        match self {
            Self::NotJson { line, column } => {
                write!(f, "invalid JSON at line {line}, column {column}")
            }
            Self::Other => f.write_str("wrong apiVersion or kind"),
            Self::NoRequest => f.write_str("request is missing"),
            Self::NoUid => f.write_str("request.uid is missing"),
        }
    }
}

impl<'a> AdmissionRequest<'a> {
    /// Parses the request of a review.
    ///
    /// # Errors
    /// If the body is not a valid review (400).
    pub fn read(body: &'a [u8]) -> Result<Self, Unreadable> {
        let envelope: Envelope<'_> =
            serde_json::from_slice(body).map_err(|error| Unreadable::NotJson {
                line: error.line(),
                column: error.column(),
            })?;
        if envelope.api_version != API_VERSION || envelope.kind != KIND {
            return Err(Unreadable::Other);
        }
        let request = envelope.request.ok_or(Unreadable::NoRequest)?;
        if request.uid.is_empty() {
            return Err(Unreadable::NoUid);
        }
        Ok(request)
    }

    /// Whether this is a dry run, so nothing is stored (ADM-4).
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }

    /// Whether the request is for the resource and operations that a path serves.
    pub fn is_for(&self, served: &Served) -> bool {
        let is_served_version = |named: &GroupVersionName<'_>| {
            named.group == served.group && named.version == served.version
        };
        is_served_version(&self.kind)
            && is_served_version(&self.resource)
            && self.kind.name == served.kind
            && self.resource.name == served.resource
            && self.sub_resource.is_empty()
            && served.operations.contains(&&*self.operation)
    }

    /// Whether the garbage collector deletes all dependents before the object.
    pub fn is_foreground_deletion(&self) -> bool {
        let raw = self.options.map(RawValue::get).unwrap_or_default();
        let options = serde_json::from_str::<DeleteOptions<'_>>(raw).unwrap_or_default();
        options.propagation_policy.as_deref() == Some("Foreground")
    }

    /// Operation and resource, for messages.
    pub fn subject(&self) -> String {
        let GroupVersionName { group, name, .. } = &self.resource;
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if self.sub_resource.is_empty() {
            ""
        } else {
            "/"
        };
        let (operation, sub) = (&self.operation, &self.sub_resource);
        format!("{operation} {name}{dot}{group}{slash}{sub}")
    }
}

/// The response to a request.
#[derive(Debug, Default)]
pub struct AdmissionResponse {
    /// Why the request is denied; `None` allows it.
    pub denied: Option<Denied>,
    /// Warnings for the user, whether the request is allowed or denied.
    pub warnings: Vec<String>,
    /// JSON Patch, as text.
    pub patch: Option<Vec<u8>>,
}

/// Why a request is denied.
#[derive(Debug, PartialEq, Eq)]
pub struct Denied {
    /// HTTP status that the API server returns to its client.
    pub code: u16,
    /// The problem, and its remedy.
    pub message: String,
}

impl AdmissionResponse {
    /// Allows without warnings.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Allows with a warning.
    pub fn warned(warning: impl Into<String>) -> Self {
        Self {
            warnings: vec![warning.into()],
            ..Self::default()
        }
    }

    pub fn denied(code: u16, message: impl Into<String>) -> Self {
        Self {
            denied: Some(Denied {
                code,
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Encodes the response to the request with this uid.
    ///
    /// # Errors
    /// Never in practice, because every part is text.
    pub fn write(&self, uid: &str) -> serde_json::Result<Vec<u8>> {
        let patch = self.patch.as_deref().map(|patch| STANDARD.encode(patch));
        // The patch makes up most of a large response; the rest is about 300 bytes.
        let mut text = Vec::with_capacity(512 + patch.as_ref().map_or(0, String::len));
        let review = ReviewJson {
            api_version: API_VERSION,
            kind: KIND,
            response: Response {
                uid,
                allowed: self.denied.is_none(),
                status: self.denied.as_ref().map(Status::of),
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                warnings: &self.warnings,
            },
        };
        serde_json::to_writer(&mut text, &review)?;
        Ok(text)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewJson<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'static str,
    message: &'a str,
}

impl<'a> Status<'a> {
    fn of(denied: &'a Denied) -> Self {
        let reason = match denied.code {
            403 => "Forbidden",
            422 => "Invalid",
            _ => "InternalError",
        };
        Self {
            code: denied.code,
            reason,
            message: &denied.message,
        }
    }
}

#[cfg(test)]
mod tests;
