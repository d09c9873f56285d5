//! Other controllers that repeatedly write to the webhook configurations.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, always, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Stage, VALIDATOR};
use crate::own_cluster;
use crate::steady::Writes;

/// How long the contention lasts: long enough to distinguish one restoration per second from backoff.
const FIGHT: Duration = Duration::from_secs(45);

/// The first restoration follows within milliseconds of the edit.
const REVERTED: Duration = Duration::from_secs(3);

/// CFG-9, ADM-24
#[tokio::test]
async fn added_terms_are_kept_and_contention_backs_off() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "other-writers", async |_| {
        let stage = Stage::set(&cluster).await?;
        let validators: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
        eventually("the validator is there", SOON, async || {
            let found = validators.get_opt(VALIDATOR).await?;
            let labels = found.and_then(|it| it.metadata.labels).unwrap_or_default();
            let asked = labels.get("admissions.enforcer/disabled");
            check(
                asked.is_some_and(|it| it == "true"),
                format_args!("{labels:?}"),
            )
        })
        .await?;
        let user = stage.operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        let ours = async |mark| -> Result<usize> {
            let mut all = writes.since(mark).await?;
            all.retain(|write| write.resource == "validatingwebhookconfigurations");
            Ok(all.len())
        };

        // Like the AKS admissions enforcer.
        let mark = writes.audit.mark().await?;
        let terms = json!([
            {"key": "control-plane", "operator": "DoesNotExist"},
            {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
        ]);
        edit(
            &validators,
            "namespaceSelector",
            &json!({"matchExpressions": terms}),
        )
        .await?;
        always("the added terms stay", REVERTED, async || {
            let entry = entry(&validators).await?;
            check(
                entry["namespaceSelector"]["matchExpressions"] == terms,
                &entry,
            )
        })
        .await?;
        // Other edits are reverted immediately.
        edit(&validators, "timeoutSeconds", &json!(9)).await?;
        eventually("an edit is undone", SOON, async || {
            let entry = entry(&validators).await?;
            check(entry["timeoutSeconds"] == 5, &entry)
        })
        .await?;
        let written = eventually("the write is in the log", SOON, async || {
            let written = ours(mark).await.map_err(NotYet::new)?;
            check(written > 0, written)?;
            Ok(written)
        });
        assert_eq!(written.await?, 1, "the terms alone cost no write");
        edit(
            &validators,
            "namespaceSelector",
            &json!({"matchExpressions": terms}),
        )
        .await?;

        let mark = writes.audit.mark().await?;
        let (begun, mut taken) = (Instant::now(), 0);
        while begun.elapsed() < FIGHT {
            if entry(&validators).await?["timeoutSeconds"] == 5 {
                edit(&validators, "timeoutSeconds", &json!(9)).await?;
                taken += 1;
            }
            sleep(Duration::from_millis(100)).await;
        }
        let restored = ours(mark).await?;
        eprintln!("taken back {taken} times, restored {restored} times in {FIGHT:?}");
        assert!((3..=10).contains(&restored), "{restored} writes");
        Ok(())
    })
    .await;
}

async fn entry(validators: &Api<ValidatingWebhookConfiguration>) -> Result<Value, kube::Error> {
    let found = json!(validators.get(VALIDATOR).await?);
    Ok(found["webhooks"][0].clone())
}

/// Changes a field of the validator's entry as another field manager.
async fn edit(
    validators: &Api<ValidatingWebhookConfiguration>,
    field: &str,
    value: &Value,
) -> Result<()> {
    let params = PatchParams {
        field_manager: Some("admissionsenforcer".to_owned()),
        ..PatchParams::default()
    };
    let change = json!([{"op": "add", "path": format!("/webhooks/0/{field}"), "value": value}]);
    let change: Patch<()> = Patch::Json(serde_json::from_value(change)?);
    validators.patch(VALIDATOR, &params, &change).await?;
    Ok(())
}
