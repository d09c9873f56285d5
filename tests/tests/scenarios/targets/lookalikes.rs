//! Ray clusters that resemble those of a bound service, but are not.

use std::collections::BTreeSet;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::owners::ray::{
    RAY_CLUSTER, RAY_JOB, RAY_SERVICE, RayClusters, RayJobs, RayServices, cluster_spec,
    ray_cluster, ray_job, ray_service,
};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::replaced::{all_injected, with_sidecar, writes};
use super::systems::bind;
use crate::binding::status_is;

/// Pods are replaced one by one, each once the previous replacement is ready.
const REPLACED: Duration = Duration::from_mins(4);

/// Names of the workers in clusters that the service `llm` owns, or does not own.
async fn workers(client: &RecordingClient, of_service: bool) -> Result<BTreeSet<String>> {
    let clusters = client.list(RAY_CLUSTER).await?;
    let owned = |it: &&Value| it["metadata"]["ownerReferences"][0]["kind"] == "RayService";
    let owned: Vec<_> = clusters.iter().filter(owned).collect();
    let is_own = |pod: &Value| {
        let cluster = &pod["metadata"]["labels"]["ray.io/cluster"];
        owned.iter().any(|it| it["metadata"]["name"] == *cluster)
    };
    let mut pods = client.list(Kind::POD).await?;
    pods.retain(|pod| pod["metadata"]["labels"]["ray.io/node-type"] == "worker");
    pods.retain(|pod| is_own(pod) == of_service);
    Ok(pods
        .iter()
        .map(|pod| pod["metadata"]["name"].to_string())
        .collect())
}

async fn has_workers(
    client: &RecordingClient,
    of_service: bool,
    count: usize,
) -> Result<BTreeSet<String>> {
    eventually(format_args!("{count} workers"), AFTER_START, async || {
        let found = workers(client, of_service).await.map_err(NotYet::new)?;
        check(found.len() == count, format_args!("{found:?}"))?;
        Ok(found)
    })
    .await
}

/// A user's `RayCluster` with the service's prefix, one with a five-character suffix like KubeRay's, and a `RayJob`
/// with the service's name.
async fn create_lookalikes(client: &RecordingClient) -> Result<()> {
    for (kind, made) in [
        (RAY_CLUSTER, ray_cluster("llm-train", 3)),
        (RAY_CLUSTER, ray_cluster("llm-x7k2p", 1)),
        (RAY_JOB, ray_job("llm", 2)),
    ] {
        client.create(kind, &made).await?;
    }
    Ok(())
}

/// SAFE-30, SAFE-31, RES-5
#[tokio::test]
async fn clusters_that_only_look_like_a_ray_services_keep_their_pods_and_get_no_sidecar() {
    Scenario::run("ray-lookalikes", async |scenario| {
        crds::install(scenario.cluster(), &[RAY_CLUSTER, RAY_JOB]).await?;
        let _clusters = Owner::start(scenario, RayClusters);
        let _jobs = Owner::start(scenario, RayJobs);
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        create_lookalikes(&user).await?;
        let before = has_workers(&user, false, 6).await?;
        let mark = scenario.cluster().audit().mark().await?;

        let target = ray_service("llm", "ray:1", 2);
        let (owner, name) = bind(scenario, RayServices, (RAY_SERVICE, &target)).await?;
        let client = owner.client();
        let bound = |status: &Value| all_injected(status) && status["pods"]["injected"] == 2;
        status_is(scenario, &name, "its workers are replaced", REPLACED, bound).await?;
        let own = has_workers(client, true, 2).await?;
        assert_eq!(with_sidecar(client, true).await?.len(), 2);
        assert_eq!(workers(client, false).await?, before, "nobody was evicted");

        // Pods created while the service is bound: an additional worker, and additional clusters.
        let more = json!({"spec": cluster_spec("ray:1", 4)});
        crate::owners::edit(scenario, RAY_CLUSTER, "llm-train", &more).await?;
        user.create(RAY_CLUSTER, &ray_cluster("llm-00000", 1))
            .await?;
        let lookalikes = has_workers(client, false, 8).await?;
        let injected: BTreeSet<_> = with_sidecar(client, true).await?.into_iter().collect();
        assert_eq!(injected, own, "no other pod is injected");

        // A new cluster of the service: its workers are injected on creation, or replaced.
        let next = json!({"spec": ray_service("llm", "ray:2", 2)["spec"]});
        crate::owners::edit(scenario, RAY_SERVICE, "llm", &next).await?;
        eventually(
            "the new cluster's workers are injected",
            REPLACED,
            async || {
                let now = workers(client, true).await.map_err(NotYet::new)?;
                let injected = with_sidecar(client, true).await.map_err(NotYet::new)?;
                let injected: BTreeSet<_> = injected.into_iter().collect();
                check(
                    now.len() == 2 && now.is_disjoint(&own) && injected == now,
                    format_args!("{now:?}, {injected:?}"),
                )
            },
        )
        .await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        assert_eq!(with_sidecar(client, true).await?, [""; 0]);
        assert_eq!(
            workers(client, false).await?,
            lookalikes,
            "they are the same pods"
        );
        for (is_ours, write) in writes(scenario, mark).await? {
            let evicted = is_ours && write.subresource == "eviction";
            let quoted = format!("\"{}\"", write.name);
            assert!(!evicted || !lookalikes.contains(&quoted), "{write:?}");
        }
        Ok(())
    })
    .await;
}
