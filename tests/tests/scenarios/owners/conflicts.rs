//! CONF-10: owner and operator coexist, with strategy Pod and without scaling.

mod claimed;
mod restart;
mod scaled;
mod systems;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::audit::Mark;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::argo::{Argo, Sync};
use asya_tests::owners::reverter::Reverter;
use asya_tests::owners::{Kind, Owner, RecordingClient};
use asya_tests::scenario::Scenario;
use jiff::Timestamp;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::argo::manifest;
use super::{edit, somebody};
use crate::binding::{condition, status_is};

/// How often an owner reconciles.
const ROUNDS: usize = 200;
/// How often a pod is replaced during that.
const REPLACED: usize = 4;
/// Five attempts with backoff, and on a busy machine another backoff after each attempt that the owner overtakes.
pub(super) const GIVEN_UP: Duration = Duration::from_mins(4);

/// A target with an owner, and an actor that binds it.
struct Stage<'a> {
    scenario: &'a Scenario,
    client: RecordingClient,
    actor: String,
    target: (Kind, String),
    workload: (Kind, String),
    pods: u64,
    since: Mark,
}

impl<'a> Stage<'a> {
    /// Binds a target, and replaces all its pods.
    async fn set(
        scenario: &'a Scenario,
        target: (Kind, &str),
        workload: (Kind, String),
        pods: u64,
    ) -> Result<Self> {
        let stage = Self::bind(scenario, target, workload, pods).await?;
        stage.replace_pods().await?;
        Ok(stage)
    }

    /// Binds a target.
    async fn bind(
        scenario: &'a Scenario,
        (kind, target): (Kind, &str),
        workload: (Kind, String),
        pods: u64,
    ) -> Result<Self> {
        let since = scenario.cluster().audit().mark().await?;
        let stage = Self {
            scenario,
            client: somebody(scenario),
            actor: scenario.name("actor"),
            target: (kind, target.to_owned()),
            workload,
            pods,
            since,
        };
        eventually("the target has its pods", SOON, async || {
            let seen = stage.of_target().await?.len();
            check(seen as u64 == pods, seen)
        })
        .await?;
        let actor = json!({
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
            "metadata": {"name": stage.actor},
            "spec": {
                "transport": "rabbitmq",
                "workloadRef": {"apiVersion": kind.api_version(), "kind": kind.kind, "name": target},
                "runtime": {"targetURL": "http://127.0.0.1:8000"},
            },
        });
        scenario.apply(&actor).await?;
        status_is(scenario, &stage.actor, "it is bound", SOON, |status| {
            condition(status, "TargetResolved").1 == "Resolved" && status["boundSince"].is_string()
        })
        .await?;
        stage.injects().await?;
        Ok(stage)
    }

    /// Replaces all pods.
    async fn replace_pods(&self) -> Result<()> {
        for pod in self.of_target().await? {
            self.client.delete(Kind::POD, &pod).await?;
        }
        self.all_injected().await.map(drop)
    }

    /// The target's pods that are not being deleted.
    async fn of_target(&self) -> Result<Vec<Value>> {
        let mut pods = self.client.list(Kind::POD).await?;
        // The head of a Ray cluster does not count.
        pods.retain(|pod| pod["metadata"]["labels"]["ray.io/node-type"] != "head");
        Ok(pods)
    }

    /// Waits until a dry run of another pod of the target gets the sidecar.
    async fn injects(&self) -> Result<()> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let api = self.client.api(Kind::POD);
        eventually("a new pod would be injected", SOON, async || {
            let pods = self.of_target().await?;
            let live = pods.first().cloned().unwrap_or_default();
            let metadata = &live["metadata"];
            let next: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "probe", "labels": metadata["labels"],
                    "ownerReferences": metadata["ownerReferences"],
                },
                "spec": {"containers": [{"name": "model", "image": "model:1"}]},
            }))?;
            let made = api.create(&dry_run, &next).await?;
            check(
                has_sidecar(&made.data["spec"]),
                &made.data["spec"]["containers"],
            )
        })
        .await
    }

    /// Waits until all pods exist with the sidecar, and status reports it.
    async fn all_injected(&self) -> Result<Value> {
        let all =
            json!({"matched": self.pods, "injected": self.pods, "notInjected": 0, "outdated": 0});
        let status = status_is(
            self.scenario,
            &self.actor,
            "all pods are injected",
            SOON,
            |status| {
                let pods = &status["pods"];
                ["matched", "injected", "notInjected"]
                    .iter()
                    .all(|key| pods[key] == all[key])
            },
        )
        .await?;
        for pod in self.of_target().await? {
            assert!(has_sidecar(&pod["spec"]), "{}", pod["metadata"]["name"]);
        }
        Ok(status)
    }

    /// Like [`Self::all_injected`], after deleting a pod.
    async fn next_is_injected(&self) -> Result<()> {
        if let Some(pod) = self.of_target().await?.first() {
            self.client.delete(Kind::POD, pod).await?;
        }
        self.all_injected().await.map(drop)
    }

    /// The owner reconciles repeatedly while pods are deleted and `change` rolls out another template.
    async fn stands(&self, owner: &Owner, change: impl AsyncFn() -> Result<()>) -> Result<()> {
        for turn in 0..REPLACED {
            if turn == REPLACED / 2 {
                change().await?;
            }
            owner.rounds(ROUNDS / REPLACED).await?;
            let status = self.all_injected().await?;
            assert_eq!(status["conflictCount"], 0, "{status}");
            assert_eq!(condition(&status, "Conflict").0, "False", "{status}");
            self.next_is_injected().await?;
            self.pod_spec_is_not_ours().await?;
            let writes = self.writes_of_ours().await?;
            assert!(writes <= 2, "{writes}");
        }
        Ok(())
    }

    /// Nothing in the workload's pod spec is ours.
    async fn pod_spec_is_not_ours(&self) -> Result<()> {
        let (kind, name) = &self.workload;
        let live = self.client.get(*kind, name).await?.unwrap_or_default();
        let spec = if kind.group == "apps" {
            ["/spec/template/spec", "/f:spec/f:template/f:spec"]
        } else {
            ["/spec", "/f:spec"]
        };
        let [spec, fields] = spec;
        let spec = live.pointer(spec).unwrap_or(&Value::Null);
        assert!(spec.is_object(), "{live}");
        assert!(!spec.to_string().contains("asya"), "{spec}");
        let entries = live["metadata"]["managedFields"].as_array();
        for entry in entries.into_iter().flatten() {
            let manager = entry["manager"].as_str().unwrap_or_default();
            let has_some = entry["fieldsV1"].pointer(fields).is_some();
            assert!(!(manager.starts_with("asya") && has_some), "{entry}");
        }
        Ok(())
    }

    /// The number of our writes to the target or its workload.
    async fn writes_of_ours(&self) -> Result<usize> {
        let user = self.scenario.cluster().operator_user()?;
        self.writes_by(&user).await
    }

    /// The number of writes to them by this user.
    async fn writes_by(&self, user: &str) -> Result<usize> {
        let cluster = self.scenario.cluster();
        let namespace = self.scenario.namespace();
        let writes = cluster.audit().writes_in(self.since, namespace).await?;
        let both = [&self.target, &self.workload];
        let ours = writes.iter().filter(|it| {
            let is_it =
                |(kind, name): &&(Kind, String)| it.resource == kind.plural && it.name == *name;
            it.user == user && both.iter().any(is_it)
        });
        Ok(ours.count())
    }
}

pub(super) fn has_sidecar(spec: &Value) -> bool {
    let containers = spec["containers"].as_array();
    containers.is_some_and(|all| all.iter().any(|it| it["name"] == "asya-sidecar"))
}

/// CONF-10, SIM-7
#[tokio::test]
async fn argo_and_operator_coexist() {
    Scenario::run("beside-argo", async |scenario| {
        let manifest = manifest("model", Some(2));
        let owner = Owner::start(scenario, Argo::new(manifest, Sync::Apply));
        owner.rounds(1).await?;
        let workload = (Kind::DEPLOYMENT, "model".to_owned());
        let stage = Stage::set(scenario, (Kind::DEPLOYMENT, "model"), workload, 2).await?;
        let other = json!({"spec": {"template": {"metadata": {"annotations": {"team": "b"}}}}});
        let change = async || edit(scenario, Kind::DEPLOYMENT, "model", &other).await;
        stage.stands(&owner, change).await?;
        // One to create it, one to revert the user's change.
        assert_eq!(owner.changes(Kind::DEPLOYMENT), 2);
        Ok(())
    })
    .await;
}

/// A manifest whose pods become ready only when the scenario makes them ready: rollouts do not progress, and old pods
/// stay.
fn slow() -> Value {
    let mut manifest = manifest("model", Some(2));
    manifest["spec"]["template"]["metadata"]["labels"]["kwok.test/mode"] = json!("hold");
    manifest
}

/// Makes the current pods ready.
async fn settle(scenario: &Scenario) -> Result<()> {
    let client = somebody(scenario);
    let pods = eventually("both pods have a node", SOON, async || {
        let pods = client.list(Kind::POD).await?;
        let placed = pods.iter().filter(|it| it["spec"]["nodeName"].is_string());
        check(placed.count() == 2, pods.len())?;
        Ok(pods)
    })
    .await?;
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now()});
    for pod in pods {
        let status = json!({"phase": "Running", "conditions": [ready]});
        client.status(Kind::POD, &pod, &status).await?;
    }
    eventually("the Deployment is available", SOON, async || {
        let live = client.get(Kind::DEPLOYMENT, "model").await?;
        let status = live.unwrap_or_default()["status"].clone();
        check(status["availableReplicas"] == 2, status)
    })
    .await
}

/// The only conflict in status.
pub(super) fn conflict(status: &Value) -> &Value {
    assert!(status["conflicts"][1].is_null(), "{status}");
    &status["conflicts"][0]
}

/// An owner reverts every write of ours: we make five attempts, and new pods have the sidecar nevertheless.
async fn against(scenario: &Scenario, owner: &Owner, manager: &str) -> Result<()> {
    let workload = (Kind::DEPLOYMENT, "model".to_owned());
    let stage = Stage::bind(scenario, (Kind::DEPLOYMENT, "model"), workload, 2).await?;
    let what = "no further try is made";
    let status = status_is(scenario, &stage.actor, what, GIVEN_UP, |status| {
        status["conflicts"][0]["state"] == "Stopped"
            && condition(status, "Injected") == ("False", "PodsNotInjected")
    })
    .await?;
    assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
    assert_eq!(status["conflictCount"], 5, "{status}");
    assert!(status["lastConflictTime"].is_string(), "{status}");
    let lost = conflict(&status);
    let field = "spec.template.metadata.annotations[asya.sh/roll]";
    assert_eq!((&lost["field"], &lost["count"]), (&json!(field), &json!(5)));
    assert_eq!(lost["rival"], manager, "{status}");
    let text = status["conditions"].to_string();
    let told = format!("Deployment/model: {manager} took over {field} 5 times; ");
    assert!(text.contains(&told), "{text}");
    // Five attempts, and one write that records who binds the target. It may reach the audit log with a delay.
    eventually("six writes are in the audit log", SOON, async || {
        let writes = stage.writes_of_ours().await?;
        check(writes == 5 + 1, writes)
    })
    .await?;
    scenario.event("BindingConflict", SOON).await?;

    // Once all pods have been replaced, the annotation is not needed.
    stage.replace_pods().await?;
    for _ in 0..REPLACED {
        owner.rounds(ROUNDS / REPLACED).await?;
        stage.next_is_injected().await?;
        stage.pod_spec_is_not_ours().await?;
    }
    let what = "the conflict is over";
    let status = status_is(scenario, &stage.actor, what, SOON, |status| {
        condition(status, "Conflict") == ("False", "NoConflict")
    })
    .await?;
    assert_eq!(status["conflictCount"], 5, "{status}");
    assert_eq!(stage.writes_of_ours().await?, 5 + 1);
    Ok(())
}

/// CONF-2, CONF-8, CONF-9, CONF-10, SIM-7
#[tokio::test]
async fn argo_with_replace_does_not_prevent_injection() {
    Scenario::run("against-replace", async |scenario| {
        let owner = Owner::start(scenario, Argo::new(slow(), Sync::Replace));
        owner.rounds(1).await?;
        settle(scenario).await?;
        against(scenario, &owner, "probably argocd-controller (Update)").await
    })
    .await;
}

/// CONF-2, CONF-8, CONF-9, CONF-10, SIM-8
#[tokio::test]
async fn reverter_does_not_prevent_injection() {
    Scenario::run("against-reverter", async |scenario| {
        let owner = Owner::start(scenario, Reverter::new(vec!["team"]));
        somebody(scenario).create(Kind::DEPLOYMENT, &slow()).await?;
        settle(scenario).await?;
        // A controller that only removes fields leaves no entry in `managedFields`.
        against(scenario, &owner, "probably somebody (Update)").await
    })
    .await;
}
