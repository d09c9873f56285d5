//! Derives the missing RBAC rule from a response of the API server (FW-27).

use super::{Fault, Reason, Requeue};

/// The fault for a missing permission; `None` if `message` reports something else.
pub(super) fn missing_permission(object: &str, message: &str) -> Option<Fault> {
    let forbidden = ForbiddenMessage::parse(message)?;
    Some(Fault {
        reason: Reason::NotAuthorized,
        message: format!("{object}: {}", forbidden.describe()),
        requeue: Requeue::SlowBackoff,
    })
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
        let group = self.group;
        let resource = self.resource;
        format!(
            "{account_name} is missing the rule {{apiGroups: [{group:?}], resources: [{resource}], verbs: [{verbs}]}} in \
             namespace {}; grant it with a Role and a RoleBinding or, if the namespace is being deleted, with a \
             ClusterRole and a ClusterRoleBinding",
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
