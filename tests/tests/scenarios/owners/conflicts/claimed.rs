//! A target whose owner leaves scaling to others while an annotation says so, and another controller that removes the
//! annotation.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::kserve::{
    AUTOSCALER_CLASS, INFERENCE_SERVICE, Kserve, deployment_of, inference_service,
};
use asya_tests::owners::{self, Kind, Owner, Reconciler, RecordingClient};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::scaled::{SCALED_OBJECT, Scaler, autoscaler_asks_for_two};
use super::{GIVEN_UP, conflict};
use crate::binding::{condition, status_is};
use crate::targets::systems::bind_as;

/// Removes the autoscaler class from all services, and sets its own annotation on them.
struct ClassRemover;

impl Reconciler for ClassRemover {
    fn manager(&self) -> &'static str {
        "class-remover"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![INFERENCE_SERVICE]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reconcile(&self, client: &RecordingClient) -> owners::Result<()> {
        for live in client.list(INFERENCE_SERVICE).await? {
            let annotations = &live["metadata"]["annotations"];
            if annotations[AUTOSCALER_CLASS].is_string() {
                let left = json!({AUTOSCALER_CLASS: null, "fleet.example.com/owned": "yes"});
                let patch = json!({"metadata": {"annotations": left}});
                client.merge(INFERENCE_SERVICE, &live, &patch).await?;
            }
        }
        Ok(())
    }
}

/// Binds an `InferenceService`, scaled between two and three pods.
async fn bind(scenario: &Scenario) -> Result<(Owner, String)> {
    let target = inference_service("iris", &json!({}));
    let spec = json!({"scaling": {"enabled": true, "minReplicas": 2, "maxReplicas": 3}});
    bind_as(scenario, Kserve, (INFERENCE_SERVICE, &target), &spec).await
}

fn is_scaled(status: &Value) -> bool {
    condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
}

/// CONF-3, CONF-6, CONF-8, CONF-9, SO-5, SIM-1
#[tokio::test]
async fn removed_autoscaler_class_is_written_five_times() {
    Scenario::run("unclaimed", async |scenario| {
        let remover = Owner::start(scenario, ClassRemover);
        let since = scenario.cluster().audit().mark().await?;
        let (owner, name) = bind(scenario).await?;
        let client = owner.client();
        let status = status_is(scenario, &name, "told", GIVEN_UP, |status| {
            condition(status, "Conflict") == ("True", "BindingConflict")
                && condition(status, "ScalingReady") == ("False", "RivalAutoscaler")
        })
        .await?;
        let lost = conflict(&status);
        assert_eq!(lost["part"], "Autoscaler", "{status}");
        let what = "no further try is made";
        let status = status_is(scenario, &name, what, GIVEN_UP, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "ScalingReady") == ("False", "RivalAutoscaler")
        })
        .await?;
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        assert_eq!(status["conflictCount"], 5, "{status}");
        let (lost, field) = (
            conflict(&status),
            "metadata.annotations[serving.kserve.io/autoscalerClass]",
        );
        let manager = "probably class-remover (Update)";
        let told = [&lost["field"], &lost["object"], &lost["rival"]];
        assert_eq!(told, [field, "InferenceService/iris", manager], "{status}");
        let text = status["conditions"].to_string();
        let told = format!("InferenceService/iris: {manager} took over {field} 5 times; ");
        assert!(text.contains(&told), "{text}");
        scenario.event("BindingConflict", SOON).await?;
        let hpa = deployment_of("iris");
        eventually("KServe scales again", SOON, async || {
            let own = client.get(Kind::HPA, &hpa).await?;
            let ours = client.list(SCALED_OBJECT).await?;
            check(
                own.is_some() && ours.is_empty(),
                format_args!("{own:?}, {ours:?}"),
            )
        })
        .await?;
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mut writes = audit.writes_in(since, scenario.namespace()).await?;
        writes.retain(|it| it.resource == "inferenceservices" && it.user == user);
        assert_eq!(writes.len(), 5, "{writes:?}");

        drop(remover);
        let more = json!({"spec": {"scaling": {"maxReplicas": 4}}});
        let patch = [
            "patch",
            "asya",
            &name,
            "--type=merge",
            "-p",
            &more.to_string(),
        ];
        scenario.kubectl(&patch).await?;
        let what = "the conflict is over, and the queue scales";
        let status = status_is(scenario, &name, what, GIVEN_UP, |status| {
            condition(status, "Conflict") == ("False", "NoConflict") && is_scaled(status)
        })
        .await?;
        assert_eq!(status["conflictCount"], 5, "{status}");
        Ok(())
    })
    .await;
}

/// CONF-4, CONF-8, SO-5, SIM-1
#[tokio::test]
async fn other_scaler_of_an_inference_service_is_reported() {
    Scenario::run("fought-kserve", async |scenario| {
        let (owner, name) = bind(scenario).await?;
        status_is(scenario, &name, "the queue scales it", GIVEN_UP, is_scaled).await?;
        autoscaler_asks_for_two(owner.client()).await?;
        let _scaler = Owner::start(scenario, Scaler);
        let status = status_is(scenario, &name, "it is reported", GIVEN_UP, |status| {
            condition(status, "Conflict") == ("True", "BindingConflict")
        })
        .await?;
        let lost = conflict(&status);
        let told = [&lost["part"], &lost["object"], &lost["rival"]];
        let workload = format!("Deployment/{}", deployment_of("iris"));
        let manager = "scaler (Update); the object is controlled by InferenceService iris";
        assert_eq!(told, ["Replicas", &workload, manager], "{status}");
        Ok(())
    })
    .await;
}
