//! Derives the missing RBAC rule from a response of the API server (FW-27).

use asya_shared::names::IMPERSONATED_SERVICE_ACCOUNT;

use super::{Fault, Reason, Requeue};

/// The fault for a missing permission; `None` if `message` reports something else.
pub(super) fn missing_permission(object: &str, message: &str) -> Option<Fault> {
    let forbidden = ForbiddenMessage::parse(message).map(|it| it.describe());
    let missing = forbidden.or_else(|| missing_for_owner(message))?;
    Some(Fault {
        reason: Reason::NotAuthorized,
        message: format!("{object}: {missing}"),
        requeue: Requeue::SlowBackoff,
    })
}

/// The permission that admission plugin `OwnerReferencesPermissionEnforcement` misses. It does not say who lacks it.
fn missing_for_owner(message: &str) -> Option<String> {
    let (object, refusal) = message.split_once(" is forbidden: ")?;
    let rule = if refusal.starts_with(CANNOT_BLOCK_DELETION) {
        rule("asya.sh", "asyncactors/finalizers", "update")
    } else if refusal.starts_with(CANNOT_SET_OWNER) {
        // `deployments.apps "name"`, or `configmaps "name"`
        let (resource, _) = object.split_once(' ')?;
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        rule(group, resource, "delete")
    } else {
        return None;
    };
    Some(format!(
        "the account that applies it (with controller.impersonate {IMPERSONATED_SERVICE_ACCOUNT}, otherwise the \
         operator's) is missing the rule {rule} in its namespace, which admission plugin \
         OwnerReferencesPermissionEnforcement requires; grant it with a Role and a RoleBinding"
    ))
}

const CANNOT_BLOCK_DELETION: &str = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't \
                                     set finalizers on";
const CANNOT_SET_OWNER: &str = "cannot set an ownerRef on a resource you can't delete";

fn rule(group: &str, resource: &str, verbs: &str) -> String {
    format!("{{apiGroups: [{group:?}], resources: [{resource}], verbs: [{verbs}]}}")
}

/// The API server's wording: `User "U" cannot VERB resource "R" in API group "G" in the namespace "N"`.
struct ForbiddenMessage<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    group: &'a str,
    namespace: &'a str,
}

impl<'a> ForbiddenMessage<'a> {
    fn parse(message: &'a str) -> Option<Self> {
        let (_, rest) = message.split_once("is forbidden: User \"")?;
        let (user, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, rest) = rest.split_once("\" in the namespace \"")?;
        let (namespace, _) = rest.split_once('"')?;
        Some(Self {
            user,
            verb,
            resource,
            group,
            namespace,
        })
    }

    fn describe(&self) -> String {
        let account = self.user.strip_prefix("system:serviceaccount:");
        let account = account.and_then(|account| account.split_once(':'));
        let account_name = account.map_or_else(
            || format!("user {}", self.user),
            |(namespace, name)| format!("ServiceAccount {namespace}/{name}"),
        );
        // An apply may create the object, so it needs both verbs.
        let verbs = match self.verb {
            "create" | "patch" => "create, patch",
            verb => verb,
        };
        let rule = rule(self.group, self.resource, verbs);
        format!(
            "{account_name} is missing the rule {rule} in namespace {}; grant it with a Role and a RoleBinding or, if \
             the namespace is being deleted, with a ClusterRole and a ClusterRoleBinding",
            self.namespace
        )
    }
}

#[cfg(test)]
mod tests {
    use super::missing_permission;
    use crate::fault::Reason;

    fn message_for(message: &str) -> Option<String> {
        let fault = missing_permission("Deployment team/a", message)?;
        assert_eq!(fault.reason, Reason::NotAuthorized);
        Some(fault.message)
    }

    /// FW-27, QUE-45
    #[test]
    fn account_and_missing_rule_are_named() {
        let forbidden = r#"deployments.apps "a" is forbidden: User "system:serviceaccount:team:asya-applier" cannot patch resource "deployments" in API group "apps" in the namespace "team": RBAC: role not found"#;
        assert_eq!(
            message_for(forbidden).unwrap(),
            "Deployment team/a: ServiceAccount team/asya-applier is missing the rule {apiGroups: [\"apps\"], \
             resources: [deployments], verbs: [create, patch]} in namespace team; grant it with a Role and a \
             RoleBinding or, if the namespace is being deleted, with a ClusterRole and a ClusterRoleBinding"
        );
        let impersonation = r#"serviceaccounts "asya-applier" is forbidden: User "system:serviceaccount:asya-system:asya-operator" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "team""#;
        let impersonation = message_for(impersonation).unwrap();
        assert!(
            impersonation.contains(r#"asya-system/asya-operator is missing the rule {apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}"#),
            "{impersonation}"
        );
        let user = r#"deployments.apps "a" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" in the namespace "team""#;
        assert!(
            message_for(user)
                .unwrap()
                .contains("user jane is missing the rule")
        );
    }

    /// FW-27: admission plugin `OwnerReferencesPermissionEnforcement` does not say whom it refuses.
    #[test]
    fn missing_rules_for_owner_references_are_named() {
        let block = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
        let adopt = "cannot set an ownerRef on a resource you can't delete: , <nil>";
        for (refused, why, rule) in [
            (
                "deployments.apps",
                block,
                r#"{apiGroups: ["asya.sh"], resources: [asyncactors/finalizers], verbs: [update]}"#,
            ),
            (
                "deployments.apps",
                adopt,
                r#"{apiGroups: ["apps"], resources: [deployments], verbs: [delete]}"#,
            ),
            (
                "serviceaccounts",
                adopt,
                r#"{apiGroups: [""], resources: [serviceaccounts], verbs: [delete]}"#,
            ),
        ] {
            let message = format!("{refused} \"a\" is forbidden: {why}");
            assert_eq!(
                message_for(&message).unwrap(),
                format!(
                    "Deployment team/a: the account that applies it (with controller.impersonate asya-applier, otherwise \
                     the operator's) is missing the rule {rule} in its namespace, which admission plugin \
                     OwnerReferencesPermissionEnforcement requires; grant it with a Role and a RoleBinding"
                )
            );
        }
    }

    /// API-5
    #[test]
    fn rejected_content_is_not_a_missing_permission() {
        for text in [
            r#"pods "a" is forbidden: exceeded quota: small, requested: pods=1"#,
            r#"deployments.apps "a" is forbidden: violates PodSecurity "restricted""#,
            "admission webhook denied the request",
        ] {
            assert_eq!(message_for(text), None, "{text}");
        }
    }
}
