//! `kubectl asya bundle` on a real cluster: what it must and must not contain.

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::SOON;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::asya;
use crate::minimal_actor;

const MARKER: &str = "hunter2-of-the-bundle";

/// The texts and names of the files in the archive.
async fn unpacked(archive: &str, flag: &str) -> Result<String> {
    let output = tokio::process::Command::new("tar")
        .args([flag, archive])
        .output();
    let output = output.await.map_err(Error::other)?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Values of the operator's Secrets and of the user's.
async fn secret_values(scenario: &Scenario) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for namespace in ["asya-system", scenario.namespace()] {
        let api: Api<Secret> = Api::namespaced(scenario.client(), namespace);
        for secret in api.list(&ListParams::default()).await? {
            let data = secret.data.unwrap_or_default().into_values();
            values.extend(data.map(|it| String::from_utf8_lossy(&it.0).into_owned()));
        }
    }
    // A certificate is public; it is also in the webhook's configuration.
    values.retain(|it| it.len() > 5 && !it.contains("BEGIN CERTIFICATE"));
    Ok(values)
}

#[tokio::test]
async fn bundle_has_what_support_needs_and_no_secret() {
    Scenario::run("cli-bundle", async |scenario| {
        let secret = serde_json::from_value(json!({
            "metadata": {"name": "database"}, "stringData": {"password": MARKER},
        }))?;
        scenario
            .api::<Secret>()
            .create(&PostParams::default(), &secret)
            .await?;
        let name = scenario.name("actor");
        let mut actor = minimal_actor(&name);
        let container = &mut actor["spec"]["workload"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{"name": "DB", "value": MARKER}]);
        container["args"] = json!(["--password", MARKER]);
        // The whole object is also in an annotation.
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;

        let file = scenario
            .folder()?
            .join("bundle.tar.gz")
            .display()
            .to_string();
        let written = asya(scenario, &["bundle", "--output", &file]).await?;
        assert_eq!(written.code, Some(0), "{}", written.err);
        let names = unpacked(&file, "-tzf").await?;
        for part in [
            "versions",
            "crd",
            "actors",
            "events",
            "scaledobjects",
            "operator/deployments",
            "webhooks/",
        ] {
            let path = format!("asya-bundle/{part}");
            assert!(names.contains(&path), "{path}: {names}");
        }
        let texts = unpacked(&file, "-xzOf").await?;
        assert!(texts.contains(&name), "the actor is in it");
        let values = secret_values(scenario).await?;
        assert!(values.iter().any(|it| it == MARKER));
        for value in values {
            assert!(
                !texts.contains(&value),
                "a value of a Secret is in the archive"
            );
        }
        let refused = asya(scenario, &["bundle", "--output", "/nonexistent/b.tar.gz"]).await?;
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        Ok(())
    })
    .await;
}
