//! The runtime container of a binding (BIND-19).

use super::Subject;
use super::violation::Violations;
use crate::api::{BoundRuntime, messages};

/// Rejects credentials in the URL, which would be readable in the pod's spec (BIND-19).
pub(super) fn target_url_is_plain(subject: &Subject<'_>, found: &mut Violations) {
    let plain = |url: &str| {
        let rest = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"));
        // RE2's \s, as in the CRD's rule.
        let foreign = |c: char| c == '@' || matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}');
        rest.is_some_and(|it| !it.is_empty() && !it.contains(foreign))
    };
    let url = subject
        .spec
        .runtime
        .as_ref()
        .and_then(|it| it.target_url.as_deref());
    if url.is_some_and(|it| !plain(it)) {
        found.add("spec.runtime.targetURL", messages::TARGET_URL);
    }
}

/// BIND-19.
pub(super) fn handler_is_dotted(subject: &Subject<'_>, found: &mut Violations) {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let dotted = |it: &str| it.contains('.') && it.split('.').all(is_name);
    let handler = subject
        .spec
        .runtime
        .as_ref()
        .and_then(|it| it.handler.as_deref());
    if handler.is_some_and(|it| !dotted(it)) {
        found.add("spec.runtime.handler", messages::HANDLER);
    }
}

/// BIND-19.
pub(super) fn env_is_not_reserved(subject: &Subject<'_>, found: &mut Violations) {
    let env = subject
        .spec
        .runtime
        .as_ref()
        .and_then(|it: &BoundRuntime| it.env.as_deref())
        .unwrap_or_default();
    for var in env {
        let text = match var.name.as_str() {
            "ASYA_SOCKET_DIR" => messages::ENV_SOCKET_DIR,
            "ASYA_SOCKET_NAME" => messages::ENV_SOCKET_NAME,
            "ASYA_HANDLER" => messages::ENV_HANDLER,
            "ASYA_TARGET_URL" => messages::ENV_TARGET_URL,
            _ => continue,
        };
        found.add("spec.runtime.env", text);
    }
}
