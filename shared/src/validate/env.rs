//! Environment variables reserved for us (VAL-9). Setting one to our own value is allowed, because manifests copied
//! from a running pod contain it.

use asya_wire::env as variable;
use asya_wire::socket::SOCKET as SOCKET_NAME;

use super::Subject;
use super::template::{TemplateNode, runtime_containers};
use super::violation::Violations;
use crate::names::SOCKET_DIR;

fn text(name: &str) -> String {
    format!("{name} is set by the operator; remove it")
}

/// Checks the runtime's environment (VAL-9).
pub(super) fn runtime_env_is_not_reserved(subject: &Subject<'_>, found: &mut Violations) {
    for container in runtime_containers(subject) {
        for var in container.items("env") {
            if let Some((name, ours)) = reserved(&var)
                && var.text("value") != Some(ours)
            {
                found.add(var.path, &text(name));
            }
        }
    }
}

fn reserved<'a>(var: &TemplateNode<'a>) -> Option<(&'a str, &'static str)> {
    match var.text("name")? {
        name @ variable::SOCKET_DIR => Some((name, SOCKET_DIR)),
        name @ variable::SOCKET_NAME => Some((name, SOCKET_NAME)),
        _ => None,
    }
}

/// Checks the sidecar's environment (VAL-9).
pub(super) fn sidecar_env_is_not_reserved(subject: &Subject<'_>, found: &mut Violations) {
    let transport = subject.transports.usable(&subject.spec.transport).ok();
    let actor = transport.map_or_else(
        || subject.name.to_owned(),
        |it| it.names_of(subject.namespace, subject.name).actor,
    );
    for (index, var) in subject.spec.effective_sidecar().env.iter().enumerate() {
        let ours = match var.name.as_str() {
            variable::SOCKET_DIR => SOCKET_DIR,
            variable::ACTOR_NAME => actor.as_str(),
            _ => continue,
        };
        if var.literal() != Some(ours) {
            found.add(format!("spec.sidecar.env[{index}]"), &text(&var.name));
        }
    }
}
