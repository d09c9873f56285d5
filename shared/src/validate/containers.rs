//! Containers of the template.

use std::collections::HashSet;

use super::Subject;
use super::template::{TemplateNode, pod_spec, runtime_containers};
use super::violation::Violations;
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};

/// All containers and init containers.
fn all<'a>(subject: &Subject<'a>) -> Vec<TemplateNode<'a>> {
    let Some(spec) = pod_spec(subject) else {
        return Vec::new();
    };
    let mut all = spec.items("containers");
    all.extend(spec.items("initContainers"));
    all
}

/// VAL-3.
pub(super) fn has_one_runtime(subject: &Subject<'_>, found: &mut Violations) {
    let Some(workload) = &subject.spec.workload else {
        return;
    };
    // `template::shape` reports anything that is not a list.
    let containers = workload
        .template
        .pointer("/spec/containers")
        .filter(|it| !it.is_null());
    if containers.is_some_and(|it| !it.is_array()) {
        return;
    }
    let count = runtime_containers(subject).len();
    if count != 1 {
        found.add(
            "spec.workload.template.spec.containers",
            &format!(
                "exactly one container must be named {RUNTIME_CONTAINER}, found {count}; \
                 rename the one that runs your handler"
            ),
        );
    }
}

/// VAL-4.
pub(super) fn reserves_sidecar_name(subject: &Subject<'_>, found: &mut Violations) {
    for container in all(subject)
        .iter()
        .filter(|it| it.text("name") == Some(SIDECAR_CONTAINER))
    {
        let text = format!(
            "{SIDECAR_CONTAINER} is reserved for the injected sidecar; rename this container"
        );
        found.add(container.path_of("name"), &text);
    }
}

/// Other containers may have a command, and the runtime may have arguments (VAL-5).
pub(super) fn runtime_has_no_command(subject: &Subject<'_>, found: &mut Violations) {
    for container in runtime_containers(subject) {
        if !container.items("command").is_empty() {
            found.add(
                container.path_of("command"),
                "command is set by the operator; use args or ASYA_HANDLER",
            );
        }
    }
}

/// VAL-6.
pub(super) fn names_are_unique(subject: &Subject<'_>, found: &mut Violations) {
    let mut seen = HashSet::new();
    for container in all(subject) {
        if let Some(name) = container.text("name")
            && !seen.insert(name)
        {
            found.add(
                container.path_of("name"),
                &format!("duplicate container name {name}"),
            );
        }
    }
}

/// VAL-6.
pub(super) fn runtime_has_an_image(subject: &Subject<'_>, found: &mut Violations) {
    for container in runtime_containers(subject) {
        let missing = container.get("image").is_none() || container.text("image") == Some("");
        if missing {
            found.add(container.path_of("image"), "image is required");
        }
    }
}
