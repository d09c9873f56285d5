//! Other parts of the template that are reserved for us: volumes, mounts, labels and the service account.

use serde_json::Value;

use super::Subject;
use super::template::{labels, pod_spec, runtime_containers};
use super::violation::Violations;
use crate::api::WorkloadKind;
use crate::names::{
    RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_PATH, SOCKET_DIR, SOCKET_VOLUME, TMP_VOLUME, label,
};

const RESERVED_VOLUMES: [&str; 3] = [SOCKET_VOLUME, TMP_VOLUME, RUNTIME_CONFIG_MAP];

/// Includes volume claims of a `StatefulSet`, which become volumes of the same name (VAL-7).
pub(super) fn volumes_are_not_reserved(subject: &Subject<'_>, found: &mut Violations) {
    let volumes = pod_spec(subject)
        .map(|it| it.items("volumes"))
        .unwrap_or_default();
    let named = volumes
        .iter()
        .filter_map(|it| Some((it.path_of("name"), it.text("name")?)));
    let claims = subject
        .spec
        .workload
        .as_ref()
        .and_then(|it| it.volume_claim_templates.as_deref());
    let claimed = claims
        .unwrap_or_default()
        .iter()
        .enumerate()
        .filter_map(|(index, claim)| {
            let path = format!("spec.workload.volumeClaimTemplates[{index}].metadata.name");
            Some((path, claim.pointer("/metadata/name")?.as_str()?))
        });
    for (path, name) in named
        .chain(claimed)
        .filter(|(_, name)| RESERVED_VOLUMES.contains(name))
    {
        found.add(
            path,
            &format!("volume name {name} is reserved; choose another"),
        );
    }
}

/// VAL-8.
pub(super) fn mounts_are_not_managed(subject: &Subject<'_>, found: &mut Violations) {
    let socket_dir = components(SOCKET_DIR);
    let script = components(RUNTIME_SCRIPT_PATH);
    for container in runtime_containers(subject) {
        for mount in container.items("volumeMounts") {
            let Some(path) = mount.text("mountPath") else {
                continue;
            };
            let at = components(path);
            if at.starts_with(&socket_dir) || at == script {
                let text = format!("path {path} is managed by the operator; mount elsewhere");
                found.add(mount.path_of("mountPath"), &text);
            }
        }
    }
}

/// The components of a path after normalisation, so that no spelling circumvents the rule.
fn components(path: &str) -> Vec<&str> {
    let mut walked = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                walked.pop();
            }
            part => walked.push(part),
        }
    }
    walked
}

/// These labels are in the workload's selector and need our values (VAL-10).
pub(super) fn reserved_labels_have_the_required_value(
    subject: &Subject<'_>,
    found: &mut Violations,
) {
    let (Some(workload), Some((path, labels))) = (&subject.spec.workload, labels(subject)) else {
        return;
    };
    let kind = match workload.effective_kind() {
        WorkloadKind::Deployment => "deployment",
        WorkloadKind::StatefulSet => "statefulset",
    };
    let name = subject.name;
    for (key, ours) in [
        (label::APP, name),
        (label::ASYA, name),
        (label::ACTOR, name),
        (label::WORKLOAD, kind),
    ] {
        if labels.get(key).is_some_and(|it| it.as_str() != Some(ours)) {
            found.add(
                path.clone(),
                &format!("label {key} must be absent or \"{ours}\""),
            );
        }
    }
}

/// With an IAM role we create the service account that carries it (VAL-15, SA-1).
pub(super) fn account_and_role_exclude_each_other(subject: &Subject<'_>, found: &mut Violations) {
    let Ok(transport) = subject.transports.usable(&subject.spec.transport) else {
        return;
    };
    let role = transport.role_of_pods(subject.role_arn);
    let Some(spec) = pod_spec(subject).filter(|_| role.is_some()) else {
        return;
    };
    // `serviceAccount` is the deprecated name of the field.
    for key in ["serviceAccountName", "serviceAccount"] {
        if spec.get(key).is_some_and(|it| it.value != &Value::from("")) {
            found.add(
                spec.path_of(key),
                "cannot be combined with an IRSA role; remove one",
            );
        }
    }
}
