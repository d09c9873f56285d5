//! The simulator of the `LLMInferenceService` controller (SIM-2).

use asya_tests::Result;
use asya_tests::owners::Kind;
use asya_tests::owners::llmisvc::{
    LLM_INFERENCE_SERVICE, LlmIsvc, deployment_of, llm_inference_service,
};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::{add_foreign_entries, edit, left, owner_of, somebody};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;

/// SIM-2
#[tokio::test]
async fn llmisvc_tolerates_additions_only_outside_the_pod_spec() {
    Scenario::run("sim-llmisvc", async |scenario| {
        let target = llm_inference_service("qwen");
        let owner = owner_of(scenario, LlmIsvc, (LLM_INFERENCE_SERVICE, &target)).await?;
        let (name, somebody) = (deployment_of("qwen"), somebody(scenario));
        let foreign = json!({"foreign.example.com/x": "yes"});
        let borne = json!({
            "metadata": {"annotations": foreign},
            "spec": {"replicas": 3, "template": {"metadata": {"labels": foreign, "annotations": foreign}}},
        });
        edit(scenario, DEPLOYMENT, &name, &borne).await?;
        owner.rounds(3).await?;
        let all = ["metadata", "replicas", "annotation", "label"];
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, all.into());
        assert_eq!(owner.changes(DEPLOYMENT), 1, "it made it");

        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ["replicas"].into());
        assert_eq!(owner.changes(DEPLOYMENT), 2);

        // In the pod spec, not even an additional map entry is tolerated.
        let more = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}});
        edit(scenario, DEPLOYMENT, &name, &more).await?;
        owner.rounds(1).await?;
        let live = somebody.get(DEPLOYMENT, &name).await?.unwrap();
        assert_eq!(live["spec"]["template"]["spec"].get("nodeSelector"), None);
        assert_eq!(owner.changes(DEPLOYMENT), 3);

        // An added key rolls the pods, a removed key does not.
        let with = |value: &Value| json!({"spec": {"annotations": {"roll": value}}});
        let annotations = async || -> Result<Value> {
            let live = somebody.get(DEPLOYMENT, &name).await?.unwrap();
            Ok(live["spec"]["template"]["metadata"]["annotations"].clone())
        };
        for value in [json!("1"), json!(null)] {
            edit(scenario, LLM_INFERENCE_SERVICE, "qwen", &with(&value)).await?;
            owner.rounds(2).await?;
            assert_eq!(annotations().await?, json!({"roll": "1"}));
        }
        assert_eq!(owner.changes(DEPLOYMENT), 4);

        let replicas = json!({"spec": {"replicas": 1}});
        edit(scenario, LLM_INFERENCE_SERVICE, "qwen", &replicas).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, [].into());
        let service = somebody.get(LLM_INFERENCE_SERVICE, "qwen").await?.unwrap();
        assert_eq!(service["status"]["workloads"]["primary"]["name"], json!(name));
        Ok(())
    })
    .await;
}
