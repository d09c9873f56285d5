//! The webhook entry that guards deletions of queues with messages (QUE-40, QUE-49), and of what an actor with policy
//! `Orphan` keeps (FW-23). It fails open and skips deletions by Kubernetes' own controllers, so it never blocks the
//! deletion of a namespace.

use k8s_openapi::api::admissionregistration::v1::{RuleWithOperations, ValidatingWebhook};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::entry::{client_config, condition};
use super::{DELETE_PATH, DELETION, EntrySettings};
use crate::names::GROUP;

/// Name of our `CustomResourceDefinition`.
pub const CRD_NAME: &str = "asyncactors.asya.sh";

/// Matches the controllers that delete the contents of a namespace, however the cluster authenticates them.
const OF_KUBERNETES: &str = "request.userInfo.username == 'system:kube-controller-manager' || \
    request.userInfo.username.startsWith('system:serviceaccount:kube-system:')";

/// Limits the webhook to the CRD itself and to actors that keep their objects, or whose queue must be empty.
const MAY_LOSE: &str = "request.resource.resource == 'customresourcedefinitions' \
    ? oldObject.metadata.name == 'asyncactors.asya.sh' \
    : (has(oldObject.spec) && ((has(oldObject.spec.deletionPolicy) && oldObject.spec.deletionPolicy == 'Orphan') || \
    (has(oldObject.spec.queue) && has(oldObject.spec.queue.deletionPolicy) && \
    oldObject.spec.queue.deletionPolicy == 'DeleteIfEmpty' && !has(oldObject.metadata.deletionTimestamp))))";

pub(super) fn entry(settings: &EntrySettings) -> ValidatingWebhook {
    let rule = |group: &str, version: &str, resource: &str, scope: &str| RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        operations: Some(vec!["DELETE".to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        scope: Some(scope.to_owned()),
    };
    ValidatingWebhook {
        name: DELETION.to_owned(),
        // The finalizer checks again.
        failure_policy: Some("Ignore".to_owned()),
        client_config: client_config(settings, DELETE_PATH),
        rules: Some(vec![
            rule(GROUP, "v1alpha1", "asyncactors", "Namespaced"),
            rule(
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "Cluster",
            ),
        ]),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        match_conditions: Some(vec![
            condition("not-of-kubernetes", format!("!({OF_KUBERNETES})")),
            condition("may-lose-something", MAY_LOSE),
        ]),
        match_policy: Some("Equivalent".to_owned()),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(5),
        admission_review_versions: vec!["v1".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::settings;
    use super::entry;

    /// QUE-40, QUE-49, ADM-5, FW-23
    #[test]
    fn deletions_are_reviewed_fail_open_and_skip_namespace_deletion() {
        let entry = json!(entry(&settings()));
        assert_eq!(entry["failurePolicy"], "Ignore");
        assert_eq!(
            entry["clientConfig"]["service"]["path"],
            "/validate/deletions"
        );
        let rules = entry["rules"].as_array().unwrap();
        for rule in rules {
            assert_eq!(rule["operations"], json!(["DELETE"]));
        }
        let asked: Vec<_> = rules.iter().map(|rule| &rule["resources"][0]).collect();
        assert_eq!(asked, ["asyncactors", "customresourcedefinitions"]);
        let conditions = entry["matchConditions"].to_string();
        for part in [
            "namespace-controller",
            "asyncactors.asya.sh",
            "DeleteIfEmpty",
            "oldObject.spec.deletionPolicy == 'Orphan'",
        ] {
            let part = part.replace("namespace-controller", "system:serviceaccount:kube-system:");
            assert!(conditions.contains(&part), "{part}: {conditions}");
        }
    }
}
