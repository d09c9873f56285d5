//! Several operators in one cluster.

use asya_tests::Result;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use super::{is_found, only};
use crate::cli::asya;

/// A Deployment like the controller's in another namespace is found; no process of the harness stands in for its pods.
pub async fn second_operator_is_found(scenario: &Scenario) -> Result<()> {
    let of = |namespace| Api::<Deployment>::namespaced(scenario.client(), namespace);
    let mut second = of("asya-system").get("asya-operator").await?;
    second.status = None;
    second.metadata = ObjectMeta {
        name: Some("asya-next".to_owned()),
        labels: second.metadata.labels,
        ..ObjectMeta::default()
    };
    let others = of("default");
    others.create(&PostParams::default(), &second).await?;

    let checks = only(
        scenario,
        "a second operator is found",
        &["SeveralOperators"],
    )
    .await?;
    let finding = ("operators", "SeveralOperators", "Keep one release");
    assert!(is_found(&checks, finding), "{checks:#}");
    let namespaces = ["check", "--pre", "--operator-namespace", "asya-third"];
    let before = asya(scenario, &namespaces).await?;
    assert_eq!(before.code, Some(1), "{}{}", before.out, before.err);
    for found in [
        "deployment/asya-next in namespace default",
        "deployment/asya-operator in namespace asya-system",
    ] {
        assert!(before.out.contains(found), "{}", before.out);
    }

    others.delete("asya-next", &DeleteParams::default()).await?;
    only(scenario, "one operator is left", &[]).await.map(drop)
}
