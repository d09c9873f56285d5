//! The operator's writes during an actor's life: their order, and the permissions they need.

mod bounds;
mod granted;
mod users;

use std::collections::BTreeSet;

use asya_tests::Result;
use asya_tests::audit::Write;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::binding::bound_actor;
use crate::minimal_actor;

const HOME: &str = "asya-system";
const NAME: &str = "asya-operator";
/// API groups of the operator's own objects; objects in other groups are targets.
const OUR_GROUPS: [&str; 8] = [
    "",
    "apps",
    "asya.sh",
    "keda.sh",
    "events.k8s.io",
    "apiextensions.k8s.io",
    ADMISSION,
    RBAC,
];
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// An actor that needs one object of every kind: with an IAM role for SQS, and with scaling.
fn with_all(name: &str, kind: &str) -> Value {
    let mut actor = minimal_actor(name);
    actor["metadata"]["annotations"] =
        json!({"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"});
    actor["spec"]["transport"] = json!("sqs");
    actor["spec"]["workload"]["kind"] = json!(kind);
    actor["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 1});
    actor
}

/// Causes the same Event twice, with another one in between (OPS-7).
async fn cause_events(scenario: &Scenario, name: &str) -> Result<()> {
    let bad = |key: &str, value: Value| {
        let mut actor = minimal_actor(name);
        actor["spec"]["workload"]["template"]["spec"]["containers"][0][key] = value;
        actor
    };
    let (command, named) = (bad("command", json!(["sh"])), bad("name", json!("handler")));
    for (actor, events, counted) in [(&command, 1, 0), (&named, 2, 0), (&command, 2, 1)] {
        scenario.apply(actor).await?;
        eventually(format_args!("{events} Events"), AFTER_START, async || {
            let about = format!("regarding.name={name},reason=ValidationFailed");
            let list = ListParams::default().fields(&about);
            let found = scenario.api::<Event>().list(&list).await?.items;
            let again = found.iter().filter(|it| it.series.is_some()).count();
            check(
                (found.len(), again) == (events, counted),
                format_args!("{found:?}"),
            )
        })
        .await?;
    }
    Ok(())
}

/// A permission: group, resource and verb.
type Right = (String, String, String);

/// The permissions that a write required: an apply that creates an object requires both `create` and `patch`.
fn needed(write: &Write) -> Vec<Right> {
    let resource = match &*write.subresource {
        "" => write.resource.clone(),
        subresource => format!("{}/{subresource}", write.resource),
    };
    let right = |verb: &str| (write.group.clone(), resource.clone(), verb.to_owned());
    let made = write.verb == "patch" && write.code == 201;
    let verbs = [Some(&*write.verb), made.then_some("create")];
    verbs.into_iter().flatten().map(right).collect()
}

/// The write permissions in these rules.
fn granted(rules: Option<Vec<PolicyRule>>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let verbs = rule.verbs.iter().filter(|verb| WRITES.contains(&&***verb));
                rights.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb.clone())));
            }
        }
    }
    rights
}

fn right(group: &str, resource: &str, verb: &str) -> Right {
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

/// The kinds of children in the order of their first write with this verb.
fn order(writes: &[Write], verb: &str, of: &[&str]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut writes: Vec<_> = writes.iter().filter(|write| write.verb == verb).collect();
    writes.sort_by_key(|write| write.time);
    for write in writes {
        if of.contains(&&*write.resource) && !order.contains(&write.resource) {
            order.push(write.resource.clone());
        }
    }
    order
}

/// The leader's writes for the webhook: the configurations and the `ClusterRole` that owns them at start, and dry runs
/// of pods that must not start without the sidecar (CFG-8, CFG-10).
async fn admission(scenario: &Scenario, user: &str) -> Result<Vec<Right>> {
    let audit = scenario.cluster().audit();
    let name = scenario.name("needed");
    let mut actor = bound_actor(&name, "model");
    actor["spec"]["binding"] = json!({"required": true});
    scenario.apply(&actor).await?;
    let written = async |from| -> Result<Vec<Write>> {
        let mut writes = audit.requests_since(from, user).await?;
        let groups = [ADMISSION, RBAC];
        // Skip dry runs in other namespaces: in a terminating namespace they are rejected.
        let here = |it: &Write| it.resource == "pods" && it.namespace == scenario.namespace();
        writes.retain(|it| groups.contains(&&*it.group) || here(it));
        Ok(writes)
    };
    let writes = eventually("a pod is tried", AFTER_START, async || {
        let writes = written(audit.beginning()).await.map_err(NotYet::new)?;
        let tried = writes
            .iter()
            .any(|it| it.resource == "pods" && it.namespace == scenario.namespace());
        check(tried, "none")?;
        Ok(writes)
    })
    .await?;
    scenario
        .kubectl(&["delete", "asya", &name, "--timeout=60s"])
        .await?;
    let refused: Vec<_> = writes.iter().filter(|it| it.code == 403).collect();
    assert!(refused.is_empty(), "a right is missing: {refused:#?}");
    Ok(writes.iter().flat_map(needed).collect())
}

/// API-9, OPS-9, FW-24, FIN-2
#[tokio::test]
async fn chart_grants_exactly_the_rights_that_ordered_writes_need() {
    Scenario::run("rights", async |scenario| {
        let (user, audit) = (
            scenario.cluster().operator_user()?,
            scenario.cluster().audit(),
        );
        let mark = audit.mark().await?;
        let (one, other) = (scenario.name("one"), scenario.name("other"));
        scenario.apply(&with_all(&one, "StatefulSet")).await?;
        scenario.actor_status(&one, "Running", AFTER_START).await?;
        scenario.apply(&with_all(&other, "Deployment")).await?;
        scenario
            .actor_status(&other, "Running", AFTER_START)
            .await?;
        let bad = scenario.name("bad");
        cause_events(scenario, &bad).await?;
        let made = audit.writes_in(mark, scenario.namespace()).await?;
        scenario
            .kubectl(&["delete", "asya", &bad, &other, "--timeout=60s"])
            .await?;
        // The deletion of the last actor also removes objects that actors share.
        scenario
            .kubectl(&["delete", "asya", &one, "--timeout=60s"])
            .await?;
        eventually("what actors share is gone", AFTER_START, async || {
            let left = scenario.api::<ConfigMap>().get_opt("asya-runtime").await?;
            check(left.is_none(), "the script is there")
        })
        .await?;

        let coming = [
            "serviceaccounts",
            "configmaps",
            "statefulsets",
            "triggerauthentications",
            "scaledobjects",
        ];
        let first: Vec<Write> = made
            .into_iter()
            .filter(|write| write.user == user && !write.name.contains(&*other))
            .collect();
        assert_eq!(order(&first, "patch", &coming), coming, "{first:#?}");
        let mut writes = audit.writes_since(mark, &user).await?;
        writes.retain(|write| write.namespace == scenario.namespace());
        let going = [
            "scaledobjects",
            "triggerauthentications",
            "statefulsets",
            "serviceaccounts",
            "configmaps",
        ];
        let of_one: Vec<Write> = writes
            .iter()
            .filter(|write| !write.name.contains(&*other))
            .cloned()
            .collect();
        assert_eq!(order(&of_one, "delete", &going), going, "{of_one:#?}");

        assert!(
            writes.iter().all(|write| write.code != 403),
            "a right is missing: {writes:#?}"
        );
        let mut exercised: BTreeSet<Right> = writes.iter().flat_map(needed).collect();
        exercised.extend(admission(scenario, &user).await?);
        // Written only at start; other scenarios cover the CRD.
        let crds = "customresourcedefinitions";
        exercised.extend(["create", "patch"].map(|verb| right("apiextensions.k8s.io", crds, verb)));
        // The admission plugin OwnerReferencesPermissionEnforcement requires these: to set `blockOwnerDeletion`, and to
        // change an object's owner.
        exercised.insert(right("asya.sh", "asyncactors/finalizers", "update"));
        for (group, resource) in [
            (ADMISSION, "mutatingwebhookconfigurations"),
            (ADMISSION, "validatingwebhookconfigurations"),
            (RBAC, "clusterroles"),
        ] {
            exercised.insert(right(group, resource, "delete"));
        }
        let client = scenario.client();
        let role = Api::<ClusterRole>::all(client.clone()).get(NAME).await?;
        // Other scenarios evict bindings' pods.
        exercised.insert(right("", "pods/eviction", "create"));
        let mut granted_here = granted(role.rules);
        // Scenarios of bindings cover writes to targets.
        granted_here.retain(|(group, resource, _)| {
            OUR_GROUPS.contains(&&**group) && !resource.ends_with("/scale")
        });
        assert_eq!(granted_here, exercised);

        let leases = eventually("the lease is renewed", AFTER_START, async || {
            let all = audit.writes_in(mark, HOME).await.map_err(NotYet::new)?;
            let leases = all.iter().filter(|write| write.resource == "leases");
            let exercised: BTreeSet<Right> = leases.flat_map(needed).collect();
            check(!exercised.is_empty(), "no write")?;
            Ok(exercised)
        })
        .await?;
        let group = "coordination.k8s.io";
        assert_eq!(leases, BTreeSet::from([right(group, "leases", "update")]));
        let role = Api::<Role>::namespaced(client, HOME).get(NAME).await?;
        let both = ["create", "update"];
        let both = both.map(|verb| [right(group, "leases", verb), right("", "secrets", verb)]);
        let mut both: BTreeSet<_> = both.into_iter().flatten().collect();
        // Needed for rotations of the webhook's CA, which other scenarios cover.
        both.insert(right("asya.sh", "asyncactors", "create"));
        // Needed for an immutable Secret, which unit tests cover.
        both.insert(right("", "secrets", "delete"));
        assert_eq!(granted(role.rules), both, "made once, then replaced");
        Ok(())
    })
    .await;
}
