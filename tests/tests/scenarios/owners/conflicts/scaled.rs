//! Somebody changes the `ScaledObject` of a binding.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::owners::{Hand, Kind, Owner, Rule};
use asya_tests::scenario::Scenario;
use serde_json::json;

use super::{GIVEN_UP, conflict};
use crate::binding::{bound_actor, condition, status_is};
use crate::owners::{SOON, somebody};

const SCALED_OBJECT: Kind = Kind::new("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");

/// The autoscaler looks every 15 s.
const FOUGHT: Duration = Duration::from_mins(4);

/// Wants other limits, whatever the actor says.
struct Meddler;

impl Rule for Meddler {
    fn manager(&self) -> &'static str {
        "meddler"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![SCALED_OBJECT]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reconcile(&self, hand: &Hand) -> Result<()> {
        for live in hand.list(SCALED_OBJECT).await? {
            if live["spec"]["maxReplicaCount"] != 99 {
                let patch = json!({"spec": {"maxReplicaCount": 99}});
                hand.merge(SCALED_OBJECT, &live, &patch).await?;
            }
        }
        Ok(())
    }
}

/// CONF-5, CONF-6, CONF-8, CONF-9
#[tokio::test]
async fn scaled_object_that_somebody_keeps_changing_is_left_after_five_tries() {
    Scenario::run("meddled", async |scenario| {
        let hand = somebody(scenario);
        let manifest = crate::owners::argo::manifest("model", Some(1));
        hand.create(Kind::DEPLOYMENT, &manifest).await?;
        let name = scenario.name("actor");
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        actor["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
        let since = scenario.cluster().audit().mark().await?;
        let owner = Owner::start(scenario, Meddler);
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
        assert_eq!(lost["rival"], "meddler (Update)", "{status}");
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mut writes = audit.writes_in(since, scenario.namespace()).await?;
        writes.retain(|it| it.resource == "scaledobjects" && it.user == user);
        assert_eq!(writes.len(), 5, "{writes:?}");

        drop(owner);
        actor["spec"]["scaling"]["maxReplicas"] = json!(4);
        scenario.apply(&actor).await?;
        eventually("what the user says is applied", SOON, async || {
            let live = hand.get(SCALED_OBJECT, &name).await?.unwrap_or_default();
            let most = &live["spec"]["maxReplicaCount"];
            check(most == 4, most)
        })
        .await?;
        let what = "the conflict is over";
        let status = status_is(scenario, &name, what, SOON, |status| {
            condition(status, "Conflict") == ("False", "NoConflict")
        })
        .await?;
        assert_eq!(status["conflictCount"], 5, "{status}");
        Ok(())
    })
    .await;
}

/// Wants another number of pods than the queue.
struct Scaler;

impl Rule for Scaler {
    fn manager(&self) -> &'static str {
        "scaler"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![Kind::DEPLOYMENT]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reconcile(&self, hand: &Hand) -> Result<()> {
        for live in hand.list(Kind::DEPLOYMENT).await? {
            if live["spec"]["replicas"] != 4 {
                hand.merge(Kind::DEPLOYMENT, &live, &json!({"spec": {"replicas": 4}}))
                    .await?;
            }
        }
        Ok(())
    }
}

/// CONF-4, CONF-8, CONF-9
#[tokio::test]
async fn autoscaler_that_somebody_fights_is_paused_after_five_losses() {
    Scenario::run("fought", async |scenario| {
        let hand = somebody(scenario);
        let manifest = crate::owners::argo::manifest("model", Some(2));
        hand.create(Kind::DEPLOYMENT, &manifest).await?;
        let name = scenario.name("actor");
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        actor["spec"]["scaling"] = json!({
            "enabled": true, "minReplicas": 2, "maxReplicas": 3,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        });
        scenario.apply(&actor).await?;
        let asked = async || {
            let hpas = hand.list(Kind::HPA).await?;
            let asked = hpas
                .first()
                .map(|it| it["status"]["desiredReplicas"].clone());
            check(asked == Some(json!(2)), format_args!("{asked:?}"))
        };
        eventually("the autoscaler asks for 2", GIVEN_UP, asked).await?;
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
                let live = hand.get(SCALED_OBJECT, &name).await?.unwrap_or_default();
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
        let what = "the conflict is over";
        let status = status_is(scenario, &name, what, SOON, |status| {
            condition(status, "Conflict") == ("False", "NoConflict")
        })
        .await?;
        assert_eq!(status["conflictCount"], 5, "{status}");
        Ok(())
    })
    .await;
}
