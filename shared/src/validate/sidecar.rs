//! Limits on the sidecar's security context.

use serde_json::Value;

use super::Subject;
use super::violation::Violations;

const PATH: &str = "spec.sidecar.securityContext";
/// The only capability that the Pod Security standard `restricted` lets a container add.
const ORDINARY: &str = "NET_BIND_SERVICE";

/// Write access to `AsyncActor`s must not grant more than write access to pods (SEC-15).
pub(super) fn is_not_privileged(subject: &Subject<'_>, found: &mut Violations) {
    let sidecar = subject.spec.sidecar.as_ref();
    let Some(context) = sidecar.and_then(|it| it.security_context.as_ref()) else {
        return;
    };
    if subject.privileged_sidecars {
        return;
    }
    for field in privileged_fields(context) {
        found.add(
            format!("{PATH}.{field}"),
            "a privileged sidecar is not allowed on this cluster; remove the field, or ask an administrator to set \
             sidecar.allowPrivileged: true in the chart",
        );
    }
}

/// The runtime runs as the same user, because only the socket's owner can use it, and never as root: the kubelet would
/// start none of its containers (BIND-26).
pub(super) fn is_not_root_in_bound_pods(subject: &Subject<'_>, found: &mut Violations) {
    let sidecar = subject.spec.sidecar.as_ref();
    let context = sidecar.and_then(|it| it.security_context.as_ref());
    if subject.spec.workload_ref.is_some() && context.is_some_and(|it| it["runAsUser"] == 0) {
        found.add(
            format!("{PATH}.runAsUser"),
            "in the pods of a binding, the sidecar and asya-runtime run as the same user, and never as root; set \
             another user, or remove the field",
        );
    }
}

fn privileged_fields(context: &Value) -> Vec<&'static str> {
    let is_true = |field: &str| context[field] == true;
    let adds = context["capabilities"]["add"].as_array();
    let adds = adds.is_some_and(|added| added.iter().any(|it| it != ORDINARY));
    let unmasked = context["procMount"]
        .as_str()
        .is_some_and(|mount| mount != "Default");
    let found = [
        ("privileged", is_true("privileged")),
        (
            "allowPrivilegeEscalation",
            is_true("allowPrivilegeEscalation"),
        ),
        ("capabilities.add", adds),
        ("procMount", unmasked),
    ];
    let found = found.into_iter().filter(|(_, wrong)| *wrong);
    found.map(|(field, _)| field).collect()
}
