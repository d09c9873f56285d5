//! Reclaims fields that users' tools wrote to our workloads; also workloads that cannot be changed in place.

use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::minimal_actor;
use crate::ownership::condition_with_reason;

fn variables(deployment: &Deployment) -> Vec<String> {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|it| it.template.spec.as_ref());
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    let all = containers.flat_map(|container| container.env.iter().flatten());
    all.map(|variable| variable.name.clone()).collect()
}

/// FW-22
#[tokio::test]
async fn kubectl_fields_are_reclaimed_once_on_request() {
    Scenario::run("reclaim", async |scenario| {
        let name = scenario.name("edited");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        let deployment = format!("deployment/{name}");
        let set = async |variable: &str| {
            let words = ["set", "env", &deployment, "-c", "asya-runtime", variable];
            scenario.kubectl(&words).await
        };
        set("BY_HAND=1").await?;
        let annotate = ["annotate", "asya", &name, "asya.sh/reclaim-fields=true"];
        scenario.kubectl(&annotate).await?;
        let deployments = scenario.api::<Deployment>();
        let has = async |variable: &str| {
            let found = deployments.get(&name).await?;
            Ok::<_, NotYet>(variables(&found).iter().any(|it| it == variable))
        };
        eventually("what was set by hand is gone", AFTER_START, async || {
            check(!has("BY_HAND").await?, "it is there")
        })
        .await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;

        set("AFTERWARDS=1").await?;
        // Events arrive in order: once this change is repaired, the previous one has been observed, too.
        let image = ["set", "image", &deployment, "asya-runtime=rival:1"];
        scenario.kubectl(&image).await?;
        eventually("a changed image comes back", AFTER_START, async || {
            let found = deployments.get(&name).await?;
            let text = json!(found.spec).to_string();
            check(!text.contains("rival:1"), "it is there")
        })
        .await?;
        assert!(has("AFTERWARDS").await.unwrap(), "it was reclaimed again");
        Ok(())
    })
    .await;
}

/// FW-22
#[tokio::test]
async fn immutable_stateful_set_is_reported_and_recreated_if_allowed() {
    Scenario::run("recreate", async |scenario| {
        let name = scenario.name("fixed");
        let labels = json!({"app": name, "asya.sh/asya": name, "asya.sh/workload": "statefulset"});
        let loose: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "serviceName": "another",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}},
            },
        }))?;
        let sets = scenario.api::<StatefulSet>();
        let made = sets.create(&PostParams::default(), &loose).await?;
        let mut actor = minimal_actor(&name);
        actor["spec"]["adoptionPolicy"] = json!("IfUnowned");
        actor["spec"]["workload"]["kind"] = json!("StatefulSet");
        scenario.apply(&actor).await?;
        let condition = condition_with_reason(scenario, &name, "WorkloadReady", "ReconcileError").await?;
        let message = condition["message"].as_str().unwrap_or_default();
        for wanted in ["spec.serviceName", "spec.podManagementPolicy", "asya.sh/allow-recreate"] {
            assert!(message.contains(wanted), "{message}");
        }
        assert!(!message.contains("spec.selector"), "{message}");

        let invalid = json!({"spec": {"workload": {"template": {"spec": {"dnsPolicy": "Nonsense"}}}}});
        let actors = scenario.actors();
        actors.patch(&name, &PatchParams::default(), &Patch::Merge(&invalid)).await?;
        let annotate = ["annotate", "asya", &name, "asya.sh/allow-recreate=true"];
        scenario.kubectl(&annotate).await?;
        eventually("it is kept, as a new one would be rejected", AFTER_START, async || {
            let conditions = actors.get(&name).await?.data["status"]["conditions"].to_string();
            check(conditions.contains("a new one would be rejected"), conditions)
        })
        .await?;
        assert_eq!(sets.get(&name).await?.uid(), made.uid());
        let valid = json!({"spec": {"workload": {"template": {"spec": {"dnsPolicy": null}}}}});
        actors.patch(&name, &PatchParams::default(), &Patch::Merge(&valid)).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        let found = sets.get(&name).await?;
        assert_ne!(found.uid(), made.uid());
        let service = found.spec.and_then(|spec| spec.service_name);
        assert_eq!(service, Some(name));
        Ok(())
    })
    .await;
}
