//! Targets of third-party kinds.

mod ends;
mod kept;
mod lookalikes;
mod lost_fields;
mod mounted;
mod obstacles;
mod outage;
mod refused;
mod replaced;
mod rest;
mod rolling;
mod secretless;
pub(crate) mod systems;
mod turns;
mod unready;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{SOON, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, older_than_the_next, status_is};

/// BIND-40, RES-6
const BOUND_WITHIN: Duration = Duration::from_secs(5);
/// Permissions are checked again every 30 seconds.
const GRANTED_WITHIN: Duration = Duration::from_secs(90);

/// A kind in its own group, used only by this scenario.
struct Thing {
    group: String,
}

impl Thing {
    fn of(scenario: &Scenario) -> Self {
        let namespace = scenario.namespace();
        Self {
            group: format!("{namespace}.example.org"),
        }
    }

    fn crd(&self) -> String {
        format!("things.{}", self.group)
    }

    async fn install(&self, scenario: &Scenario) -> Result<()> {
        let version = |name: &str, stored: bool| {
            json!({
                "name": name, "served": true, "storage": stored,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        };
        let crd: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": self.crd()},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                "versions": [version("v1", true), version("v1alpha1", false)],
            },
        }))?;
        let crds = Api::<CustomResourceDefinition>::all(scenario.client());
        crds.create(&PostParams::default(), &crd).await?;
        Ok(())
    }

    /// Grants the operator read access to the kind.
    async fn grant(&self, scenario: &Scenario) -> Result<()> {
        let name = &self.group;
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": [name], "resources": ["things"], "verbs": ["get", "list", "watch"]}],
        }))?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "asya-operator", "namespace": "asya-system"}],
        }))?;
        let (client, new) = (scenario.client(), PostParams::default());
        Api::<ClusterRole>::all(client.clone())
            .create(&new, &role)
            .await?;
        Api::<ClusterRoleBinding>::all(client)
            .create(&new, &binding)
            .await?;
        Ok(())
    }

    async fn remove(&self, scenario: &Scenario) -> Result<()> {
        let (client, now) = (scenario.client(), DeleteParams::default());
        Api::<CustomResourceDefinition>::all(client.clone())
            .delete(&self.crd(), &now)
            .await?;
        Api::<ClusterRole>::all(client.clone())
            .delete(&self.group, &now)
            .await?;
        Api::<ClusterRoleBinding>::all(client)
            .delete(&self.group, &now)
            .await?;
        Ok(())
    }

    /// Creates an object of this kind, with a Deployment that it owns.
    async fn make(&self, scenario: &Scenario, name: &str) -> Result<Value> {
        let kind = GroupVersionKind::gvk(&self.group, "v1", "Thing");
        let resource = ApiResource::from_gvk_with_plural(&kind, "things");
        let things: Api<DynamicObject> =
            Api::namespaced_with(scenario.client(), scenario.namespace(), &resource);
        let made = eventually(format_args!("{} is served", self.crd()), SOON, async || {
            Ok(things
                .create(&PostParams::default(), &DynamicObject::new(name, &resource))
                .await?)
        })
        .await?;
        let owner = json!({
            "apiVersion": resource.api_version, "kind": "Thing", "name": name, "uid": made.metadata.uid,
            "controller": true,
        });
        let mut deployment = serde_json::to_value(model(name, 2)?)?;
        deployment["metadata"]["ownerReferences"] = json!([owner]);
        let deployment: Deployment = serde_json::from_value(deployment)?;
        let deployments = scenario.api::<Deployment>();
        let made = deployments
            .create(&PostParams::default(), &deployment)
            .await?;
        Ok(json!(made.metadata.uid))
    }

    fn actor(&self, name: &str, target: &str) -> Value {
        let mut actor = bound_actor(name, target);
        actor["spec"]["workloadRef"] = json!({
            "apiVersion": format!("{}/v9", self.group), "kind": "Thing", "name": target,
        });
        actor
    }
}

/// RES-1, RES-3, RES-6, RES-24, BIND-40
#[tokio::test]
async fn unknown_kind_is_bound_once_installed_and_readable() {
    Scenario::run("things", async |scenario| {
        let thing = Thing::of(scenario);
        let name = scenario.name("thing");
        scenario.apply(&thing.actor(&name, "it")).await?;
        let waits = |reason: &'static str| {
            move |status: &Value| condition(status, "TargetResolved") == ("False", reason)
        };
        let status = status_is(
            scenario,
            &name,
            "its kind is missing",
            SOON,
            waits("KindNotInstalled"),
        );
        assert_eq!(status.await?["status"], "Creating");

        let forbidden = waits("KindForbidden");
        let status = scenario.timed(async || {
            thing.install(scenario).await?;
            status_is(
                scenario,
                &name,
                "it may not be read",
                BOUND_WITHIN,
                forbidden,
            )
            .await
        });
        let told = status.await?["conditions"].to_string();
        assert!(told.contains("resources: [things]"), "{told}");

        thing.grant(scenario).await?;
        status_is(
            scenario,
            &name,
            "it may be read",
            GRANTED_WITHIN,
            waits("TargetNotFound"),
        )
        .await?;
        let bound = scenario.timed(async || {
            let workload = thing.make(scenario, "it").await?;
            status_is(scenario, &name, "it is bound", BOUND_WITHIN, |status| {
                status["resolvedTarget"]["uid"] == workload && status["pods"]["matched"] == 2
            })
            .await
        });
        let status = bound.await?;
        assert_eq!(
            status["resolvedTarget"]["chain"],
            json!(["Thing/it", "Deployment/it"])
        );
        assert_eq!(status["desiredReplicas"], 2);

        let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
        let deployments = scenario.api::<Deployment>();
        deployments
            .patch("it", &PatchParams::default(), &scale)
            .await?;
        status_is(scenario, &name, "one pod less", SOON, |status| {
            status["pods"]["matched"] == 1 && status["desiredReplicas"] == 1
        })
        .await?;

        thing.remove(scenario).await?;
        let gone = status_is(
            scenario,
            &name,
            "its kind is gone",
            SOON,
            waits("KindNotInstalled"),
        );
        assert_eq!(gone.await?["status"], "WorkloadError");
        Ok(())
    })
    .await;
}

/// BIND-45: the pods are the same, whichever object the target is bound by.
#[tokio::test]
async fn workload_bound_through_its_owner_cannot_be_bound_directly() {
    Scenario::run("shared", async |scenario| {
        let thing = Thing::of(scenario);
        thing.install(scenario).await?;
        thing.grant(scenario).await?;
        thing.make(scenario, "it").await?;
        let (first, second) = (scenario.name("owner"), scenario.name("workload"));
        scenario.apply(&bound_actor(&first, "it")).await?;
        status_is(scenario, &first, "it is bound", SOON, |status| {
            condition(status, "TargetResolved").1 == "Resolved"
        })
        .await?;
        older_than_the_next(scenario, &first).await?;
        scenario.apply(&thing.actor(&second, "it")).await?;
        status_is(
            scenario,
            &second,
            "another has it",
            GRANTED_WITHIN,
            |status| condition(status, "TargetResolved") == ("False", "AlreadyBound"),
        )
        .await?;
        let bound = scenario.timed(async || {
            scenario.kubectl(&["delete", "asya", &first]).await?;
            scenario.actor_gone(&first, SOON).await?;
            status_is(
                scenario,
                &second,
                "now it is bound",
                BOUND_WITHIN,
                |status| condition(status, "TargetResolved").1 == "Resolved",
            )
            .await
        });
        bound.await?;
        thing.remove(scenario).await?;
        Ok(())
    })
    .await;
}

/// RES-4
#[tokio::test]
async fn binding_to_a_stateful_set_reports_its_owner() {
    Scenario::run("owned", async |scenario| {
        let sets = scenario.api::<StatefulSet>();
        let mut set = serde_json::to_value(model("set", 1)?)?;
        set["kind"] = json!("StatefulSet");
        set["spec"]["serviceName"] = json!("set");
        set["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.org/v1", "kind": "Nobody", "name": "nobody", "uid": "0", "controller": true,
        }]);
        let set: StatefulSet = serde_json::from_value(set)?;
        sets.create(&PostParams::default(), &set).await?;
        let name = scenario.name("set");
        let mut actor = bound_actor(&name, "set");
        actor["spec"]["workloadRef"]["kind"] = json!("StatefulSet");
        scenario.apply(&actor).await?;
        let status = status_is(scenario, &name, "it is bound", SOON, |status| {
            condition(status, "TargetResolved").1 == "Resolved"
        });
        let told = status.await?["conditions"].to_string();
        assert!(told.contains("belongs to Nobody/nobody"), "{told}");
        Ok(())
    })
    .await;
}
