//! The simulators of KubeRay (SIM-6).

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::owners::ray::{
    RAY_CLUSTER, RAY_SERVICE, RayClusters, RayServices, cluster_spec, ray_cluster, ray_service,
};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::{edit, owner_of, somebody};

/// The garbage collector discovers new kinds every 30 s, and that of the clusters may just have been installed.
const COLLECTED: Duration = Duration::from_secs(90);

/// Names of the workers that are not being deleted.
async fn workers(client: &RecordingClient) -> Result<Vec<String>> {
    let pods = client.list(Kind::POD).await?;
    let workers = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["ray.io/node-type"] == "worker");
    let names = workers.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()));
    Ok(names.collect())
}

/// SIM-6
#[tokio::test]
async fn kuberay_counts_pods_without_comparing_them() {
    Scenario::run("sim-ray", async |scenario| {
        let target = ray_cluster("batch", 3);
        let owner = owner_of(scenario, RayClusters, (RAY_CLUSTER, &target)).await?;
        let client = somebody(scenario);
        let first = workers(&client).await?;
        assert_eq!(first.len(), 3);
        assert_eq!(client.list(Kind::POD).await?.len(), 4, "and a head");

        for pod in client.list(Kind::POD).await? {
            let patch = json!({
                "metadata": {"labels": {"theirs": "1"}},
                "spec": {"containers": [{"name": pod["spec"]["containers"][0]["name"], "image": "other:1"}]},
            });
            client.strategic(Kind::POD, &pod, &patch).await?;
        }
        let before = owner.changes(Kind::POD);
        owner.rounds(3).await?;
        assert_eq!(owner.changes(Kind::POD), before);
        assert_eq!(workers(&client).await?, first);

        let fail = json!({"status": {"phase": "Failed"}});
        let failed = kube::api::Patch::Merge(&fail);
        let api = client.api(Kind::POD);
        api.patch_status(&first[0], &kube::api::PatchParams::default(), &failed).await?;
        owner.rounds(2).await?;
        let second = workers(&client).await?;
        assert_eq!((second.len(), second.contains(&first[0])), (3, false));

        let fewer = json!({"spec": cluster_spec("ray:1", 2)});
        edit(scenario, RAY_CLUSTER, "batch", &fewer).await?;
        owner.rounds(2).await?;
        let third = workers(&client).await?;
        assert_eq!(third, second[1..]);
        Ok(())
    })
    .await;
}

/// SIM-6
#[tokio::test]
async fn kuberay_makes_a_new_cluster_for_a_new_template_and_switches_when_it_is_ready() {
    Scenario::run("sim-rayservice", async |scenario| {
        crds::install(scenario.cluster(), &[RAY_CLUSTER]).await?;
        let _clusters = Owner::start(scenario, RayClusters);
        let target = ray_service("summarizer", "ray:1", 2);
        let _services = owner_of(scenario, RayServices, (RAY_SERVICE, &target)).await?;
        let client = somebody(scenario);
        let active = async |other_than: &Value| {
            eventually(
                "a cluster is active, and the only one",
                COLLECTED,
                async || {
                    let service = client
                        .get(RAY_SERVICE, "summarizer")
                        .await?
                        .unwrap_or_default();
                    let active = service["status"]["activeServiceStatus"]["rayClusterName"].clone();
                    check(
                        active.is_string() && active != *other_than,
                        &service["status"],
                    )?;
                    let clusters = client.list(RAY_CLUSTER).await?;
                    let names: Vec<_> = clusters.iter().map(|it| &it["metadata"]["name"]).collect();
                    check(names == [&active], format_args!("{names:?}"))?;
                    let workers = workers(&client).await?;
                    check(workers.len() == 2, format_args!("{workers:?}"))?;
                    Ok(active)
                },
            )
            .await
        };
        let first = active(&Value::Null).await?;
        let template = json!({"spec": {"rayClusterConfig": cluster_spec("ray:2", 2)}});
        edit(scenario, RAY_SERVICE, "summarizer", &template).await?;
        let second = active(&first).await?;
        assert_eq!(second.as_str().map(str::len), Some("summarizer-".len() + 5));
        Ok(())
    })
    .await;
}
