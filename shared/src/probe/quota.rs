//! Quotas that reject the pod of a dry run (SAFE-7).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::INJECTED_CONTAINERS;

const EXCEEDED: &str = "exceeded quota";

/// Whether a quota caused this response of the API server.
#[must_use]
pub fn is_quota_rejection(message: &str) -> bool {
    message.contains(EXCEEDED) || message.contains("failed quota")
}

/// Why a pod is rejected whose first dry run a quota rejected, and whose second one, without requests, is rejected with
/// this message; `None` if the quota has room for what injection adds.
#[must_use]
pub fn after_second_rejection<'a>(first: &'a str, second: &'a str) -> Option<&'a str> {
    if is_quota_rejection(second) {
        return Some(second);
    }
    // Quotas are evaluated last, so everything else has admitted the pod as it is.
    (!first.contains(EXCEEDED)).then_some(first)
}

/// Sets requests and limits of all containers to zero, except of injected ones, which a pod template may already
/// contain. A dry run counts against a quota that the target may already use up, so this variant checks only whether
/// the quota has room for what injection adds.
#[must_use]
pub fn without_requests(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.resources = None;
        let init = spec.init_containers.iter_mut().flatten();
        let all = spec.containers.iter_mut().chain(init);
        for container in all.filter(|container| !INJECTED_CONTAINERS.contains(&&*container.name)) {
            let zero = ["cpu", "memory"].map(|name| (name.to_owned(), Quantity("0".to_owned())));
            let zero = Some(BTreeMap::from(zero));
            container.resources = Some(ResourceRequirements {
                requests: zero.clone(),
                limits: zero,
                ..ResourceRequirements::default()
            });
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SAFE-7
    #[test]
    fn second_dry_run_decides_whether_the_quota_has_room_for_the_sidecar() {
        let (exceeded, missing, range) = (
            "forbidden: exceeded quota: q",
            "forbidden: failed quota: q: must specify limits.memory",
            "forbidden: minimum memory usage per Container is 64Mi",
        );
        for (first, second, expected) in [
            (exceeded, exceeded, Some(exceeded)),
            (exceeded, range, None),
            (missing, missing, Some(missing)),
            (missing, range, Some(missing)),
        ] {
            assert_eq!(
                after_second_rejection(first, second),
                expected,
                "{first} {second}"
            );
        }
        assert!(!is_quota_rejection(range));
    }
}
