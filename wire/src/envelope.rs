//! Keys of messages and of the runtime's replies, and the codes of errors.

/// The message's id, a non-empty string.
pub const ID: &str = "id";
/// The id of the message that this one was derived from.
pub const PARENT_ID: &str = "parent_id";
/// The actors to visit, and the index of the current one.
pub const ROUTE: &str = "route";
/// In [`ROUTE`]: names of actors, in order.
pub const ACTORS: &str = "actors";
/// In [`ROUTE`]: index of the current actor; 0 if absent.
pub const CURRENT: &str = "current";
/// In [`ROUTE`] of later generations of the former sidecar (SC-2): the current actor.
pub const CURR: &str = "curr";
/// User and tracing metadata, passed through unchanged: an object.
pub const HEADERS: &str = "headers";
/// The input of the handler.
pub const PAYLOAD: &str = "payload";
/// In an element of a reply, and in the payload of a message to error-end: why it failed.
pub const ERROR: &str = "error";
/// Next to [`ERROR`]: message, type and traceback of the exception.
pub const DETAILS: &str = "details";
/// In [`DETAILS`]: the exception's text.
pub const MESSAGE: &str = "message";
/// In [`DETAILS`]: the exception's stack.
pub const TRACEBACK: &str = "traceback";

/// Codes of errors that the sidecar itself detects: values of the metrics' label `reason`. Some are also the [`ERROR`]
/// of messages to error-end; for others, that is a sentence, as in the former sidecar (SC-66).
pub mod code {
    /// The message is not JSON, or not an envelope.
    pub const PARSE_ERROR: &str = "parse_error";
    /// The message has no usable id.
    pub const VALIDATION_ERROR: &str = "validation_error";
    /// The message is for another actor.
    pub const ROUTE_MISMATCH: &str = "route_mismatch";
    /// The message has the format of a later generation of the former sidecar (SC-2).
    pub const UNSUPPORTED_GENERATION: &str = "unsupported_generation";
    /// The handler failed, or did not answer in time.
    pub const RUNTIME_ERROR: &str = "runtime_error";
    /// The runtime crashed while processing the message (SC-49).
    pub const RUNTIME_CRASHED: &str = "runtime_crashed";
    /// The runtime's reply violates the protocol (SC-50).
    pub const INVALID_REPLY: &str = "invalid_reply";
    /// An actor in the route has no valid queue name (SC-100).
    pub const INVALID_DESTINATION: &str = "invalid_destination";
    /// The broker rejects messages of this size (SC-83).
    pub const MESSAGE_TOO_LARGE: &str = "message_too_large";
    /// The results of the message could not be published.
    pub const ROUTING_ERROR: &str = "routing_error";
    /// The message to error-end could not be published.
    pub const ERROR_QUEUE_SEND_FAILED: &str = "error_queue_send_failed";
}
