//! The simulator of KServe (SIM-1).

use asya_tests::owners::Kind;
use asya_tests::owners::Verb;
use asya_tests::owners::kserve::{
    AUTOSCALER_CLASS, INFERENCE_SERVICE, Kserve, deployment_of, inference_service,
};
use asya_tests::scenario::Scenario;
use serde_json::json;

use super::{add_foreign_entries, all_but, edit, left, owner_of, somebody};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;

/// SIM-1
#[tokio::test]
async fn kserve_reverts_templates_and_without_an_autoscaler_replicas() {
    Scenario::run("sim-kserve", async |scenario| {
        let class = json!({AUTOSCALER_CLASS: "none"});
        let target = inference_service("iris", &class);
        let owner = owner_of(scenario, Kserve, (INFERENCE_SERVICE, &target)).await?;
        let name = deployment_of("iris");
        let hpa = somebody(scenario).get(Kind::HPA, &name).await?;
        assert_eq!(hpa, None, "nobody scales");
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, [].into());
        let patches = owner.writes();
        let patches: Vec<_> = patches.iter().filter(|it| it.verb == Verb::Strategic).collect();
        let [patch] = &patches[..] else {
            panic!("one loss is one patch: {patches:?}")
        };
        let deleted = json!([{"$patch": "delete", "name": "foreign"}]);
        let pod = &patch.body["spec"]["template"]["spec"];
        assert_eq!((&pod["containers"], &pod["volumes"]), (&deleted, &deleted));

        let external = json!({"metadata": {"annotations": {AUTOSCALER_CLASS: "external"}}});
        edit(scenario, INFERENCE_SERVICE, "iris", &external).await?;
        owner.rounds(1).await?;
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ["replicas"].into());

        // The owner does not compare metadata; it reverts it only when it writes for another reason.
        let foreign = json!({"metadata": {"annotations": {"foreign.example.com/x": "yes"}}});
        edit(scenario, DEPLOYMENT, &name, &foreign).await?;
        let before = owner.changes(DEPLOYMENT);
        owner.rounds(3).await?;
        assert_eq!(owner.changes(DEPLOYMENT), before);
        let seen = left(scenario, DEPLOYMENT, &name).await?;
        assert_eq!(seen, all_but(&["annotation", "label", "container", "volume"]));
        let restart = json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
        edit(scenario, DEPLOYMENT, &name, &restart).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ["replicas"].into());
        let live = somebody(scenario).get(DEPLOYMENT, &name).await?.unwrap();
        let annotations = &live["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations, &json!({AUTOSCALER_CLASS: "external"}));
        Ok(())
    })
    .await;
}

/// SIM-1
#[tokio::test]
async fn kserve_creates_an_hpa_unless_scaled_externally() {
    Scenario::run("sim-kserve-hpa", async |scenario| {
        let annotations = json!({"team": "a", "autoscaling.knative.dev/min-scale": "1"});
        let target = inference_service("iris", &annotations);
        let owner = owner_of(scenario, Kserve, (INFERENCE_SERVICE, &target)).await?;
        let (name, somebody) = (deployment_of("iris"), somebody(scenario));
        assert!(somebody.get(Kind::HPA, &name).await?.is_some());
        let live = somebody.get(DEPLOYMENT, &name).await?.unwrap();
        let template = &live["spec"]["template"]["metadata"];
        assert_eq!(template["annotations"], json!({"team": "a"}));
        assert_eq!(
            template["labels"]["serving.kserve.io/inferenceservice"],
            "iris"
        );
        let service = somebody.get(INFERENCE_SERVICE, "iris").await?.unwrap();
        assert_eq!(service["status"]["deploymentMode"], "Standard");

        let external = json!({"metadata": {"annotations": {AUTOSCALER_CLASS: "external"}}});
        edit(scenario, INFERENCE_SERVICE, "iris", &external).await?;
        owner.rounds(1).await?;
        assert_eq!(somebody.get(Kind::HPA, &name).await?, None);
        let none = json!({"metadata": {"annotations": {AUTOSCALER_CLASS: null}}});
        edit(scenario, INFERENCE_SERVICE, "iris", &none).await?;
        owner.rounds(1).await?;
        assert!(somebody.get(Kind::HPA, &name).await?.is_some());
        let limits = json!({"spec": {"predictor": {"minReplicas": 1, "maxReplicas": 3}}});
        edit(scenario, INFERENCE_SERVICE, "iris", &limits).await?;
        owner.rounds(1).await?;
        let hpa = somebody.get(Kind::HPA, &name).await?.unwrap();
        let limits = (&hpa["spec"]["minReplicas"], &hpa["spec"]["maxReplicas"]);
        assert_eq!(limits, (&json!(1), &json!(3)));
        let fixed = json!({"metadata": {"annotations": {AUTOSCALER_CLASS: "none"}}});
        edit(scenario, INFERENCE_SERVICE, "iris", &fixed).await?;
        owner.rounds(1).await?;
        assert_eq!(somebody.get(Kind::HPA, &name).await?, None);
        Ok(())
    })
    .await;
}
