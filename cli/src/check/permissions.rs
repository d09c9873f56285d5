//! Permissions that the operator's programs need in every installation. The chart grants them, and more if its values
//! require it.

use asya_shared::admission::{injector_name, owner_role_name, validator_name};
use asya_shared::names::LEASE;

use crate::cluster::Permission;
use crate::installation::{self, OperatorDeployment, TLS_SECRET};

/// A rule of a `ClusterRole` or Role.
#[derive(Clone, Copy)]
struct RoleRule {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

const fn rule(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> RoleRule {
    RoleRule {
        group,
        resource,
        verbs,
    }
}

/// The flag that names the release, from which the names of the webhook configurations are derived.
const WEBHOOK_RULES: &str = "--webhook-rules=";

const READ: &[&str] = &["list", "watch"];
const MANAGE: &[&str] = &["list", "watch", "create", "patch", "delete"];
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Of the controller, in the actors' namespaces.
const IN_NAMESPACES: [RoleRule; 10] = [
    rule("asya.sh", "asyncactors", &["list", "watch", "patch"]),
    rule("asya.sh", "asyncactors/status", &["patch"]),
    // Some API servers require it to set an owner reference with `blockOwnerDeletion`, as children have.
    rule("asya.sh", "asyncactors/finalizers", &["update"]),
    rule("apps", "deployments", MANAGE),
    rule("apps", "statefulsets", MANAGE),
    rule("", "configmaps", &["create", "patch", "delete"]),
    rule("", "pods", READ),
    rule("", "events", READ),
    rule("keda.sh", "scaledobjects", MANAGE),
    rule("autoscaling", "horizontalpodautoscalers", READ),
];

/// Of the controller, in the actors' namespaces, if the webhook is installed.
const FOR_BINDINGS: [RoleRule; 2] = [
    rule("", "pods", &["create"]),
    rule("policy", "poddisruptionbudgets", READ),
];

/// Of the controller, in the whole cluster.
const IN_CLUSTER: [RoleRule; 3] = [
    rule("", "namespaces", READ),
    rule("events.k8s.io", "events", &["create", "patch"]),
    rule("apiextensions.k8s.io", "customresourcedefinitions", READ),
];

/// Of the controller, in the whole cluster, if the webhook is installed.
const FOR_WEBHOOK: [RoleRule; 2] = [
    rule(ADMISSION, "mutatingwebhookconfigurations", READ),
    rule(ADMISSION, "validatingwebhookconfigurations", READ),
];

/// Of the controller, for the webhook configurations. Some API servers let only clients that may delete an object
/// change its owner.
const WRITE_CONFIGURATION: &[&str] = &["create", "patch", "delete"];
const WRITE_OWNER: &[&str] = &["list", "watch", "patch", "delete"];

/// Of the webhook, in the whole cluster.
const OF_WEBHOOK: [RoleRule; 1] = [rule("asya.sh", "asyncactors", READ)];

/// A permission that a `ServiceAccount` of the operator needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    pub service_account: String,
    pub permission: Permission,
    /// All namespaces if absent.
    pub namespace: Option<String>,
    /// Any name if absent.
    pub name: Option<String>,
}

/// Permissions that the programs of these Deployments need. `watched` are the actors' namespaces; if it is empty, all.
pub fn needed(deployments: &[OperatorDeployment], home: &str, watched: &[String]) -> Vec<Needed> {
    let mut all = Vec::new();
    let webhook = installation::webhook(deployments);
    if let Some(controller) = installation::controller(deployments) {
        let in_namespaces = || {
            let for_bindings = webhook.map(|_| FOR_BINDINGS).into_iter().flatten();
            IN_NAMESPACES.into_iter().chain(for_bindings)
        };
        if watched.is_empty() {
            add(&mut all, controller, in_namespaces(), None, None);
        }
        for namespace in watched {
            add(&mut all, controller, in_namespaces(), Some(namespace), None);
        }
        let for_webhook = webhook.map(|_| FOR_WEBHOOK).into_iter().flatten();
        let in_cluster = IN_CLUSTER.into_iter().chain(for_webhook);
        add(&mut all, controller, in_cluster, None, None);
        let release = controller.flag(WEBHOOK_RULES).filter(|it| !it.is_empty());
        for (rule, name) in release.into_iter().flat_map(named_after) {
            add(&mut all, controller, [rule], None, Some(&name));
        }
        if controller.flag("--leader-elect=") == Some("true") {
            let lease = [rule("coordination.k8s.io", "leases", &["get", "update"])];
            add(&mut all, controller, lease, Some(home), Some(LEASE));
        }
    }
    if let Some(webhook) = webhook {
        add(&mut all, webhook, OF_WEBHOOK, None, None);
        let named = [
            ("secrets", webhook.flag(TLS_SECRET)),
            ("configmaps", webhook.facts_config_map()),
        ];
        for (resource, name) in named {
            let get = [rule("", resource, &["get"])];
            add(&mut all, webhook, get, Some(home), name);
        }
    }
    all
}

/// Cluster-wide objects that are named after the release, and what the controller does to them.
fn named_after(release: &str) -> [(RoleRule, String); 3] {
    let clusterroles = "clusterroles";
    let mutating = "mutatingwebhookconfigurations";
    let validating = "validatingwebhookconfigurations";
    [
        (
            rule(ADMISSION, mutating, WRITE_CONFIGURATION),
            injector_name(release, 0),
        ),
        (
            rule(ADMISSION, validating, WRITE_CONFIGURATION),
            validator_name(release),
        ),
        (
            rule("rbac.authorization.k8s.io", clusterroles, WRITE_OWNER),
            owner_role_name(release),
        ),
    ]
}

fn add(
    all: &mut Vec<Needed>,
    of: &OperatorDeployment,
    rules: impl IntoIterator<Item = RoleRule>,
    namespace: Option<&str>,
    name: Option<&str>,
) {
    for rule in rules {
        all.extend(rule.verbs.iter().map(|verb| Needed {
            service_account: of.service_account.clone(),
            permission: Permission {
                verb,
                group: rule.group,
                resource: rule.resource,
            },
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, args: &[&str]) -> OperatorDeployment {
        OperatorDeployment {
            service_account: name.to_owned(),
            args: args.iter().map(|it| (*it).to_owned()).collect(),
            ..OperatorDeployment::default()
        }
    }

    fn namespaces_of(all: &[Needed], resource: &str) -> Vec<Option<String>> {
        let of_it = all
            .iter()
            .filter(|it| it.permission.resource == resource && it.permission.verb == "list");
        of_it.map(|it| it.namespace.clone()).collect()
    }

    /// The verbs on a resource that the controller needs, and the name that they are limited to.
    fn verbs<'a>(all: &'a [Needed], resource: &str, name: Option<&str>) -> Vec<&'a str> {
        let of_it = all
            .iter()
            .filter(|it| it.permission.resource == resource && it.name.as_deref() == name);
        of_it.map(|it| it.permission.verb).collect()
    }

    /// CFG-1, SEC-12
    #[test]
    fn rights_to_set_and_change_owners_are_asked_for() {
        let flags = ["--webhook-rules=asya"];
        let all = needed(&[deployment("controller", &flags)], "home", &[]);
        let [injector, validator, owner] =
            ["asya-injector", "asya-validator", "asya-webhook-anchor"].map(Some);
        assert_eq!(verbs(&all, "asyncactors/finalizers", None), ["update"]);
        let create = ["create", "patch", "delete"];
        assert_eq!(
            verbs(&all, "mutatingwebhookconfigurations", injector),
            create
        );
        assert_eq!(
            verbs(&all, "validatingwebhookconfigurations", validator),
            create
        );
        assert_eq!(
            verbs(&all, "clusterroles", owner),
            ["list", "watch", "patch", "delete"]
        );
        let without = needed(
            &[deployment("controller", &["--webhook-rules="])],
            "home",
            &[],
        );
        assert!(without.iter().all(|it| it.name.is_none()), "{without:?}");
    }

    #[test]
    fn rights_follow_from_what_is_installed() {
        let controller = deployment("controller", &["--leader-elect=true"]);
        let webhook = deployment("webhook", &["--facts-config-map=facts", "--tls-secret=tls"]);
        let both = [controller.clone(), webhook];
        let everywhere = needed(&both, "home", &[]);
        assert_eq!(namespaces_of(&everywhere, "deployments"), [None]);
        let named = |name: &str| {
            let found = everywhere
                .iter()
                .find(|it| it.name.as_deref() == Some(name));
            found.map(|it| (&*it.service_account, it.namespace.as_deref()))
        };
        assert_eq!(named("tls"), Some(("webhook", Some("home"))));
        assert_eq!(named(LEASE), Some(("controller", Some("home"))));

        let watched = ["a".to_owned(), "b".to_owned()];
        let some = needed(&both, "home", &watched);
        assert_eq!(
            namespaces_of(&some, "deployments"),
            watched.clone().map(Some)
        );
        let alone = needed(&[controller], "home", &[]);
        assert_eq!(
            namespaces_of(&alone, "poddisruptionbudgets"),
            [None::<String>; 0]
        );
        assert_eq!(needed(&[], "home", &[]), []);
    }
}
