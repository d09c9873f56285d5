//! Objects of ours that pods still mount after their actor is deleted.

use std::time::Duration;

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::owners::{Kind, RecordingClient};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use serde_json::json;

use super::replaced::{all_injected, with_sidecar};
use crate::binding::{bound_actor, model, status_is};

const REPLACED: Duration = Duration::from_mins(3);
/// The controller sweeps every two minutes.
const SWEPT: Duration = Duration::from_mins(5);

/// SAFE-33, RUN-2
#[tokio::test]
async fn script_stays_as_long_as_pods_that_kept_the_sidecar_mount_it() {
    Scenario::run("mounted", async |scenario| {
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        let target = serde_json::to_value(model("web", 2)?)?;
        user.create(Kind::DEPLOYMENT, &target).await?;
        let name = scenario.name("web");
        let mut actor = bound_actor(&name, "web");
        actor["metadata"]["annotations"] = json!({"asya.sh/skip-unbind": "true"});
        scenario.apply(&actor).await?;
        let bound = |status: &_| all_injected(status) && status["pods"]["injected"] == 2;
        status_is(scenario, &name, "its pods are replaced", REPLACED, bound).await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        assert_eq!(with_sidecar(&user, true).await?.len(), 2, "they are kept");
        let scripts = scenario.api::<ConfigMap>();
        let kept = scripts.get("asya-runtime").await?;
        assert!(kept.metadata.deletion_timestamp.is_none());

        let deployments = user.api(Kind::DEPLOYMENT);
        deployments.delete("web", &DeleteParams::default()).await?;
        eventually("nobody mounts the script", SWEPT, async || {
            let left = scripts.get_opt("asya-runtime").await.map_err(NotYet::new)?;
            check(left.is_none(), "it is still there")
        })
        .await
    })
    .await;
}
