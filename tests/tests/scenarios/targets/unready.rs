//! Targets whose replacements never become ready lose at most one pod.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::MODE;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::owners::inference_set::{INFERENCE_SET, InferenceSets, inference_set};
use asya_tests::owners::kaito::{Kaito, WORKSPACE};
use asya_tests::owners::ray::{RAY_CLUSTER, RayClusters, ray_cluster};
use asya_tests::owners::{Kind, Owner, crds};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::systems::{bind_as, bind_target, create_target};
use crate::binding::{bound_actor, condition, model, status_is};

const WAIT: Duration = Duration::from_mins(3);
/// `timeout.progress` of the actors, instead of 10 minutes.
const PROGRESS: Duration = Duration::from_secs(20);
/// Twice the progress timeout, as 20 minutes are twice the default.
const WATCHED: Duration = Duration::from_secs(40);
const PODS: usize = 3;

/// A target whose new pods do not become ready until released.
pub(super) struct HeldTarget<'a> {
    scenario: &'a Scenario,
    selector: &'static str,
}

/// A pod that is not being deleted.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) ready: bool,
    pub(super) sidecar: bool,
}

impl<'a> HeldTarget<'a> {
    pub(super) fn new(scenario: &'a Scenario, selector: &'static str) -> Self {
        Self { scenario, selector }
    }

    pub(super) async fn pods(&self) -> Result<Vec<Seen>, kube::Error> {
        let selector = ListParams::default().labels(self.selector);
        let pods = self.scenario.api::<Pod>().list(&selector).await?;
        let stay = pods.items.into_iter();
        let stay = stay.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(stay
            .map(|pod| {
                let conditions = pod.status.and_then(|it| it.conditions);
                let mut conditions = conditions.into_iter().flatten();
                let containers = pod.spec.into_iter().flat_map(|it| it.containers);
                Seen {
                    ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
                    sidecar: containers.into_iter().any(|it| it.name == "asya-sidecar"),
                }
            })
            .collect())
    }

    /// Makes all waiting pods ready.
    pub(super) async fn release(&self) -> Result<()> {
        let unlabel = format!("{MODE}-");
        let selector = format!("--selector={}", self.selector);
        let label = ["label", "pods", &selector, &unlabel];
        self.scenario.kubectl(&label).await.map(drop)
    }

    /// Makes pods ready until there are this many and all are ready.
    pub(super) async fn ready(&self, count: usize) -> Result<()> {
        eventually("all pods are ready", WAIT, async || {
            self.release().await.map_err(NotYet::new)?;
            let pods = self.pods().await?;
            let ready = pods.iter().filter(|it| it.ready).count();
            check(
                (ready, pods.len()) == (count, count),
                format_args!("{pods:?}"),
            )
        })
        .await
    }

    /// Checks that at most one pod is not ready, until `is_so` holds and for some time after that.
    async fn loses_at_most_one(
        &self,
        what: &str,
        is_so: impl AsyncFn() -> Result<bool>,
    ) -> Result<()> {
        let mut until = None;
        eventually(format_args!("{what}, for some time"), WAIT, async || {
            let pods = self.pods().await?;
            let ready = pods.iter().filter(|it| it.ready).count();
            assert!(ready + 1 >= PODS, "{what}: {pods:?}");
            if until.is_none() && is_so().await.map_err(NotYet::new)? {
                until = Some(Instant::now() + WATCHED);
            }
            let is_over = until.is_some_and(|until| Instant::now() > until);
            check(is_over, format_args!("{pods:?}"))
        })
        .await
    }

    /// Releases waiting pods until all have the sidecar, or none has.
    async fn continues(&self, with_sidecar: bool) -> Result<()> {
        eventually("the others follow", WAIT, async || {
            self.release().await.map_err(NotYet::new)?;
            let pods = self.pods().await?;
            let done = pods
                .iter()
                .filter(|it| it.ready && it.sidecar == with_sidecar);
            check(done.count() == PODS, format_args!("{pods:?}"))
        })
        .await
    }

    /// Binds and unbinds the target while no replacement becomes ready.
    async fn bound_and_unbound(&self, actor: &str) -> Result<()> {
        let scenario = self.scenario;
        let told = |kind: &'static str, reason: &'static str| {
            async move || {
                let actor = scenario.actors().get(actor).await?;
                Ok(condition(&actor.data["status"], kind) == ("False", reason))
            }
        };
        let halted = told("Injected", "RolloutHalted");
        self.loses_at_most_one("the rollout stops", halted).await?;
        scenario.event("RolloutHalted", WAIT).await?;
        let status = scenario.actors().get(actor).await?.data["status"].clone();
        let text = status["conditions"].to_string();
        assert!(text.contains("20 s (spec.timeout.progress)"), "{text}");
        assert_eq!(status["rollout"]["stalled"], true);
        self.continues(true).await?;
        let all = |status: &Value| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["rollout"].is_null()
        };
        status_is(scenario, actor, "all are replaced", WAIT, all).await?;

        let delete = ["delete", "asya", actor, "--wait=false"];
        scenario.kubectl(&delete).await?;
        let blocked = told("Ready", "UnbindBlocked");
        self.loses_at_most_one("unbinding stops", blocked).await?;
        self.continues(false).await?;
        scenario.actor_gone(actor, WAIT).await
    }
}

fn actor(name: &str, kind: &str) -> Value {
    let mut actor = bound_actor(name, "web");
    actor["spec"]["workloadRef"]["kind"] = json!(kind);
    actor["spec"]["timeout"] = json!({"progress": PROGRESS.as_secs()});
    actor
}

fn held() -> Result<Value> {
    let mut held = serde_json::to_value(model("web", 3)?)?;
    held["spec"]["template"]["metadata"]["labels"][MODE] = json!("hold");
    Ok(held)
}

/// A `StatefulSet` whose new pods do not become ready until released, with these fields of its spec, and an actor that
/// binds it.
async fn bound_stateful_set<'a>(
    scenario: &'a Scenario,
    fields: &Value,
    pods: usize,
) -> Result<(HeldTarget<'a>, String)> {
    let mut target = held()?;
    target["kind"] = json!("StatefulSet");
    target["spec"]["serviceName"] = json!("web");
    for (field, value) in fields.as_object().into_iter().flatten() {
        target["spec"][field] = value.clone();
    }
    let target: StatefulSet = serde_json::from_value(target)?;
    let sets = scenario.api::<StatefulSet>();
    sets.create(&PostParams::default(), &target).await?;
    let held = HeldTarget::new(scenario, "app=web");
    held.ready(pods).await?;
    let name = scenario.name("unready");
    scenario.apply(&actor(&name, "StatefulSet")).await?;
    Ok((held, name))
}

/// SAFE-11, SAFE-12
#[tokio::test]
async fn deployment_keeps_its_pods_while_no_replacement_becomes_ready() {
    Scenario::run("unready-deployment", async |scenario| {
        let target: Deployment = serde_json::from_value(held()?)?;
        let deployments = scenario.api::<Deployment>();
        deployments.create(&PostParams::default(), &target).await?;
        let held = HeldTarget::new(scenario, "app=web");
        held.ready(PODS).await?;
        let name = scenario.name("unready");
        scenario.apply(&actor(&name, "Deployment")).await?;
        held.bound_and_unbound(&name).await
    })
    .await;
}

/// SAFE-11, SAFE-14: its own strategy would terminate all of them at once.
#[tokio::test]
async fn deployment_that_recreates_its_pods_loses_one_while_no_replacement_becomes_ready() {
    Scenario::run("unready-recreated", async |scenario| {
        let mut target = held()?;
        target["spec"]["strategy"] = json!({"type": "Recreate"});
        let target: Deployment = serde_json::from_value(target)?;
        let deployments = scenario.api::<Deployment>();
        deployments.create(&PostParams::default(), &target).await?;
        let held = HeldTarget::new(scenario, "app=web");
        held.ready(PODS).await?;
        let name = scenario.name("unready");
        scenario.apply(&actor(&name, "Deployment")).await?;
        held.bound_and_unbound(&name).await
    })
    .await;
}

/// SAFE-11, SAFE-12, ROLL-6
#[tokio::test]
async fn stateful_set_on_delete_loses_one_pod_while_no_replacement_becomes_ready() {
    Scenario::run("unready-set", async |scenario| {
        let fields = json!({
            "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"},
        });
        let (held, name) = bound_stateful_set(scenario, &fields, PODS).await?;
        held.bound_and_unbound(&name).await
    })
    .await;
}

/// SAFE-13: with parallel pod management, its controller would start with the pod of the highest ordinal, whether or
/// not it is ready.
#[tokio::test]
async fn unbinding_replaces_the_pod_of_a_stateful_set_that_is_not_ready_before_any_other() {
    Scenario::run("unready-unbound", async |scenario| {
        let fields = json!({"podManagementPolicy": "Parallel"});
        let (held, name) = bound_stateful_set(scenario, &fields, PODS).await?;
        let sets = scenario.api::<StatefulSet>();
        held.continues(true).await?;
        status_is(scenario, &name, "all are replaced", WAIT, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["rollout"].is_null()
        })
        .await?;
        let pods = scenario.api::<Pod>();
        let uid = async |pod: &str| -> Result<_> { Ok(pods.get(pod).await?.metadata.uid) };
        let ready = [uid("web-1").await?, uid("web-2").await?];

        pods.delete("web-0", &DeleteParams::default()).await?;
        eventually("a pod is not ready", WAIT, async || {
            let set = sets.get("web").await?.status.unwrap_or_default();
            check(
                (set.replicas, set.ready_replicas) == (3, Some(2)),
                format_args!("{set:?}"),
            )
        })
        .await?;
        let delete = ["delete", "asya", &name, "--wait=false"];
        scenario.kubectl(&delete).await?;
        let status = status_is(scenario, &name, "unbinding waits", WAIT, |status| {
            condition(status, "Ready") == ("False", "UnbindBlocked")
        })
        .await?;
        let text = status["conditions"].to_string();
        assert!(
            text.contains(
                "pod web-0 is not ready, and StatefulSet/web would have a ready pod replaced"
            ),
            "{text}"
        );
        assert_eq!([uid("web-1").await?, uid("web-2").await?], ready);
        let with_sidecar = held.pods().await?.into_iter().filter(|it| it.sidecar);
        assert_eq!(with_sidecar.count(), 2, "web-0 is replaced without it");

        held.continues(false).await?;
        scenario.actor_gone(&name, WAIT).await
    })
    .await;
}

/// BIND-43: its controller waits for an unready pod, although the new revision would fix it.
#[tokio::test]
async fn actor_whose_sidecar_breaks_the_only_pod_of_a_stateful_set_is_unbound() {
    Scenario::run("unready-ordered", async |scenario| {
        let fields = json!({"replicas": 1});
        let (held, name) = bound_stateful_set(scenario, &fields, 1).await?;
        let only_pod = async |sidecar: bool| {
            eventually("it is replaced", WAIT, async || {
                let pods = held.pods().await?;
                let is_so = |it: &Seen| !it.ready && it.sidecar == sidecar;
                check(
                    pods.len() == 1 && pods.iter().all(is_so),
                    format_args!("{pods:?}"),
                )
            })
            .await
        };
        only_pod(true).await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        only_pod(false).await?;
        scenario.actor_gone(&name, WAIT).await
    })
    .await;
}

/// SAFE-11, SAFE-12
#[tokio::test]
async fn ray_cluster_loses_one_worker_while_no_replacement_becomes_ready() {
    Scenario::run("unready-ray", async |scenario| {
        let mut target = ray_cluster("web", 3);
        let group = &mut target["spec"]["workerGroupSpecs"][0]["template"];
        group["metadata"] = json!({"labels": {MODE: "hold"}});
        let held = HeldTarget::new(scenario, "ray.io/node-type=worker");
        let spec = json!({
            "timeout": {"progress": PROGRESS.as_secs()}, "binding": {"rollout": "OnRestart"},
        });
        let made = (RAY_CLUSTER, &target);
        let (_owner, name) = bind_as(scenario, RayClusters, made, &spec).await?;
        held.ready(PODS).await?;
        begin_rollout(scenario, &name).await?;
        held.bound_and_unbound(&name).await
    })
    .await;
}

/// SAFE-11, SAFE-12, RES-14: a rollout of all its workloads would stop every model at once.
#[tokio::test]
async fn inference_set_loses_one_model_while_no_replacement_becomes_ready() {
    Scenario::run("unready-models", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let _workspaces = Owner::start(scenario, Kaito);
        let made = (INFERENCE_SET, &inference_set("phis", "phi-4", 3));
        let (_owner, target) = create_target(scenario, InferenceSets, made).await?;
        let held = HeldTarget::new(scenario, "inferenceset.kaito.sh/created-by=phis");
        held.ready(PODS).await?;
        hold_new_pods(scenario, &held).await?;
        // Only now, because pods that start after the binding have the sidecar.
        let spec = json!({"timeout": {"progress": PROGRESS.as_secs()}});
        let name = bind_target(scenario, INFERENCE_SET, &target, &spec).await?;
        held.bound_and_unbound(&name).await
    })
    .await;
}

/// Makes the operator replace the pods of an actor's target.
async fn begin_rollout(scenario: &Scenario, actor: &str) -> Result<()> {
    let always = Patch::Merge(json!({"spec": {"binding": {"rollout": "Always"}}}));
    let actors = scenario.actors();
    actors
        .patch(actor, &PatchParams::default(), &always)
        .await?;
    Ok(())
}

/// Changes the template of every StatefulSet, which replaces its pods, and makes the new pods ready.
async fn hold_new_pods(scenario: &Scenario, held: &HeldTarget<'_>) -> Result<()> {
    let sets = scenario.api::<StatefulSet>();
    let changed = json!({"spec": {"template": {"metadata": {"labels": {MODE: "hold"}}}}});
    for set in sets.list(&ListParams::default()).await? {
        let name = set.metadata.name.unwrap_or_default();
        sets.patch(&name, &PatchParams::default(), &Patch::Merge(&changed))
            .await?;
    }
    eventually("all pods have the new template", WAIT, async || {
        held.release().await.map_err(NotYet::new)?;
        let all = sets.list(&ListParams::default()).await?;
        let is_rolled = |set: &StatefulSet| {
            let status = set.status.as_ref();
            status.is_some_and(|it| {
                it.observed_generation == set.metadata.generation
                    && it.current_revision == it.update_revision
                    && it.ready_replicas == Some(1)
            })
        };
        let rolled = all.iter().filter(|it| is_rolled(it)).count();
        check(rolled == PODS, format_args!("{rolled} of {PODS}"))
    })
    .await
}

/// SAFE-10: an evicted pod stays listed and has a replacement; it does not count as a pod without the sidecar.
#[tokio::test]
async fn finished_pod_makes_no_rollout() {
    Scenario::run("finished", async |scenario| {
        let (name, deployments) = (scenario.name("finished"), scenario.api::<Deployment>());
        let target = model("web", 2)?;
        deployments.create(&PostParams::default(), &target).await?;
        let held = HeldTarget::new(scenario, "app=web");
        let ready = async || -> Result<usize, NotYet> {
            let pods = held.pods().await?;
            Ok(pods.iter().filter(|it| it.ready).count())
        };
        eventually("its pods are ready", WAIT, async || {
            let ready = ready().await?;
            check(ready == 2, ready)
        })
        .await?;
        let pods = scenario.api::<Pod>();
        let all = pods.list(&ListParams::default().labels("app=web")).await?;
        let one = all.items.first().and_then(|it| it.metadata.name.clone());
        let evicted = json!({"status": {
            "phase": "Failed", "reason": "Evicted",
            "conditions": [{"type": "Ready", "status": "False"}],
        }});
        pods.patch_status(
            &one.unwrap_or_default(),
            &PatchParams::default(),
            &Patch::Strategic(evicted),
        )
        .await?;
        eventually("it is replaced, and stays", WAIT, async || {
            let (ready, all) = (ready().await?, held.pods().await?.len());
            check((ready, all) == (2, 3), format_args!("{ready} of {all}"))
        })
        .await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        let injected = |status: &Value| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["pods"]["matched"] == 2
        };
        status_is(scenario, &name, "the others are rolled", WAIT, injected).await?;
        let rolled = deployments.get("web").await?.metadata.generation;
        let until = Instant::now() + Duration::from_secs(15);
        eventually("nothing more is rolled", WAIT, async || {
            let now = deployments.get("web").await?.metadata.generation;
            assert_eq!(now, rolled);
            check(Instant::now() > until, "not long enough")
        })
        .await?;
        let client =
            asya_tests::owners::RecordingClient::new(scenario.client(), scenario.namespace(), "us");
        let finished = client.list(Kind::POD).await?;
        let finished = finished
            .iter()
            .filter(|it| it["status"]["phase"] == "Failed");
        assert_eq!(finished.count(), 1, "it is there all the time");
        Ok(())
    })
    .await;
}
