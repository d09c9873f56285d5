//! Another controller changes the `ScaledObject` of a binding.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::{self, Kind, Owner, Reconciler, RecordingClient};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::{GIVEN_UP, conflict};
use crate::binding::{bound_actor, condition, status_is};
use crate::owners::somebody;

pub(super) const SCALED_OBJECT: Kind =
    Kind::new("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");

/// The HPA controller evaluates metrics every 15 s.
const FOUGHT: Duration = Duration::from_mins(4);

/// Creates a Deployment with this many pods, and an actor that scales it with these settings.
async fn scaled(
    scenario: &Scenario,
    replicas: i64,
    scaling: &Value,
) -> Result<(RecordingClient, String, Value)> {
    let client = somebody(scenario);
    let manifest = crate::owners::argo::manifest("model", Some(replicas));
    client.create(Kind::DEPLOYMENT, &manifest).await?;
    let name = scenario.name("actor");
    let mut actor = bound_actor(&name, "model");
    actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
    actor["spec"]["scaling"] = scaling.clone();
    Ok((client, name, actor))
}

/// Waits until KEDA's HPA requests two pods.
pub(super) async fn autoscaler_asks_for_two(client: &RecordingClient) -> Result<()> {
    eventually("the autoscaler asks for 2", GIVEN_UP, async || {
        let hpas = client.list(Kind::HPA).await?;
        let asked = hpas
            .first()
            .map(|it| it["status"]["desiredReplicas"].clone());
        check(asked == Some(json!(2)), format_args!("{asked:?}"))
    })
    .await
}

/// Waits until the conflict is over and only its count remains.
async fn is_over(scenario: &Scenario, name: &str) -> Result<()> {
    let what = "the conflict is over";
    let status = status_is(scenario, name, what, SOON, |status| {
        condition(status, "Conflict") == ("False", "NoConflict")
    })
    .await?;
    assert_eq!(status["conflictCount"], 5, "{status}");
    Ok(())
}

/// Enforces limits other than the actor's.
struct LimitsOwner;

impl Reconciler for LimitsOwner {
    fn manager(&self) -> &'static str {
        "limits-owner"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![SCALED_OBJECT]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reconcile(&self, client: &RecordingClient) -> owners::Result<()> {
        for live in client.list(SCALED_OBJECT).await? {
            if live["spec"]["maxReplicaCount"] != 99 {
                let patch = json!({"spec": {"maxReplicaCount": 99}});
                client.merge(SCALED_OBJECT, &live, &patch).await?;
            }
        }
        Ok(())
    }
}

/// CONF-5, CONF-6, CONF-8, CONF-9
#[tokio::test]
async fn contested_scaled_object_is_left_after_five_attempts() {
    Scenario::run("contested", async |scenario| {
        let scaling = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
        let (client, name, mut actor) = scaled(scenario, 1, &scaling).await?;
        let since = scenario.cluster().audit().mark().await?;
        let owner = Owner::start(scenario, LimitsOwner);
        scenario.apply(&actor).await?;

        let status = status_is(scenario, &name, "it is given up", GIVEN_UP, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "ScalingReady") == ("False", "BindingConflict")
        })
        .await?;
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        assert_eq!(status["conflictCount"], 5, "{status}");
        let lost = conflict(&status);
        assert_eq!(lost["field"], "spec.maxReplicaCount", "{status}");
        assert_eq!(lost["object"], format!("ScaledObject/{name}"), "{status}");
        assert_eq!(lost["rival"], "limits-owner (Update)", "{status}");
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mut writes = audit.writes_in(since, scenario.namespace()).await?;
        writes.retain(|it| it.resource == "scaledobjects" && it.user == user);
        assert_eq!(writes.len(), 5, "{writes:?}");

        drop(owner);
        actor["spec"]["scaling"]["maxReplicas"] = json!(4);
        scenario.apply(&actor).await?;
        eventually("what the user says is applied", SOON, async || {
            let live = client.get(SCALED_OBJECT, &name).await?.unwrap_or_default();
            let most = &live["spec"]["maxReplicaCount"];
            check(most == 4, most)
        })
        .await?;
        is_over(scenario, &name).await
    })
    .await;
}

/// Enforces a number of pods other than the one that the queue requests.
pub(super) struct Scaler;

impl Reconciler for Scaler {
    fn manager(&self) -> &'static str {
        "scaler"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![Kind::DEPLOYMENT]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reconcile(&self, client: &RecordingClient) -> owners::Result<()> {
        for live in client.list(Kind::DEPLOYMENT).await? {
            if live["spec"]["replicas"] != 4 {
                client
                    .merge(Kind::DEPLOYMENT, &live, &json!({"spec": {"replicas": 4}}))
                    .await?;
            }
        }
        Ok(())
    }
}

/// CONF-4, CONF-8, CONF-9
#[tokio::test]
async fn contested_autoscaler_is_paused_after_five_losses() {
    Scenario::run("fought", async |scenario| {
        let scaling = json!({
            "enabled": true, "minReplicas": 2, "maxReplicas": 3,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        });
        let (client, name, mut actor) = scaled(scenario, 2, &scaling).await?;
        scenario.apply(&actor).await?;
        autoscaler_asks_for_two(&client).await?;
        let owner = Owner::start(scenario, Scaler);
        let status = status_is(scenario, &name, "it is given up", FOUGHT, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "ScalingReady") == ("False", "BindingConflict")
        })
        .await?;
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        let lost = conflict(&status);
        let told = [
            &lost["part"],
            &lost["field"],
            &lost["object"],
            &lost["rival"],
        ];
        let wanted = [
            "Replicas",
            "spec.replicas",
            "Deployment/model",
            "scaler (Update)",
        ];
        assert_eq!(told, wanted, "{status}");
        assert_eq!(status["conflictCount"], 5, "{status}");
        let paused = async |wanted: bool| {
            eventually(format_args!("paused: {wanted}"), SOON, async || {
                let live = client.get(SCALED_OBJECT, &name).await?.unwrap_or_default();
                let annotations = &live["metadata"]["annotations"];
                let is_so = annotations["autoscaling.keda.sh/paused"] == "true";
                check(is_so == wanted, annotations)
            })
            .await
        };
        paused(true).await?;
        drop(owner);
        actor["spec"]["scaling"]["maxReplicas"] = json!(5);
        scenario.apply(&actor).await?;
        paused(false).await?;
        is_over(scenario, &name).await
    })
    .await;
}
