//! The admission webhook, called by a real API server.

mod pods;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::minimal_actor;

/// Makes the API server ask a webhook about the actors of the scenario's namespace; until it is dropped.
struct Validated<'a> {
    scenario: &'a Scenario,
    name: String,
}

impl<'a> Validated<'a> {
    async fn by(scenario: &'a Scenario, webhook: &Webhook) -> Result<Self> {
        let name = scenario.name("validator");
        let namespace = json!({"kubernetes.io/metadata.name": scenario.namespace()});
        let rule = json!({
            "apiGroups": ["asya.sh"], "apiVersions": ["v1alpha1"], "resources": ["asyncactors"],
            "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
        });
        let configuration = json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "asyncactors.asya.sh",
                "clientConfig": webhook.client_config("/validate/asyncactors"),
                "rules": [rule],
                "namespaceSelector": {"matchLabels": namespace},
                // The scenario must not pass because nobody was asked.
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 5,
            }],
        });
        let api = Api::<ValidatingWebhookConfiguration>::all(scenario.client());
        let configuration = serde_json::from_value(configuration)?;
        api.create(&PostParams::default(), &configuration).await?;
        Ok(Self { scenario, name })
    }

    async fn remove(self) -> Result<()> {
        Api::<ValidatingWebhookConfiguration>::all(self.scenario.client())
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// What the API server says to a write that it refuses.
fn refusal<T>(answer: kube::Result<T>) -> kube::core::Status {
    match answer {
        Err(kube::Error::Api(status)) => *status,
        Err(error) => panic!("not refused, but: {error}"),
        Ok(_) => panic!("not refused"),
    }
}

fn bad_actor(name: &str) -> Value {
    let mut actor = minimal_actor(name);
    let container = &mut actor["spec"]["workload"]["template"]["spec"]["containers"][0];
    container["command"] = json!(["sh"]);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/var/run/asya/x"}]);
    actor["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
    actor
}

/// VAC-1, ADM-5, ADM-6, ADM-1
#[tokio::test]
async fn webhook_refuses_a_bad_actor_with_all_errors_and_never_holds_up_its_end() {
    Scenario::run("admission", async |scenario| {
        let actors = scenario.actors();
        let name = scenario.name("bad");
        // Older than the webhook.
        let mut stored = bad_actor(&name);
        stored["metadata"]["finalizers"] = json!(["example.com/held"]);
        let stored = object(stored);
        actors.create(&PostParams::default(), &stored).await?;

        let webhook = Webhook::start(scenario.cluster(), scenario.namespace(), &[]).await?;
        let validated = Validated::by(scenario, &webhook).await?;
        let other = scenario.name("other");
        let create = async |actor: Value| {
            let actor = object(actor);
            actors.create(&PostParams::default(), &actor).await
        };
        // A configuration takes a moment to be in force.
        let status = eventually(
            "a bad actor is refused",
            Duration::from_secs(30),
            async || {
                let dry_run = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                let answer = actors.create(&dry_run, &object(bad_actor(&other))).await;
                match answer {
                    Err(kube::Error::Api(status)) => Ok(*status),
                    _ => Err(NotYet::new("it is not")),
                }
            },
        )
        .await?;
        let path = "spec.workload.template.spec.containers[0]";
        let text = format!(
            "admission webhook \"asyncactors.asya.sh\" denied the request: AsyncActor {}/{other} has 2 errors:\n  \
             {path}.command: command is set by the operator; use args or ASYA_HANDLER\n  \
             {path}.volumeMounts[0].mountPath: path /var/run/asya/x is managed by the operator; mount elsewhere",
            scenario.namespace(),
        );
        assert_eq!((status.message, status.code), (text, 422));
        create(minimal_actor(&other)).await?;

        // What is stored can be labelled, paused and deleted, whatever its spec.
        let label = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"asya.sh/paused": "false"}}});
        actors.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await?;
        let worse = json!({"spec": {"timeout": {"processing": 5}}});
        let answer = actors.patch(&name, &PatchParams::default(), &Patch::Merge(worse)).await;
        assert!(refusal(answer).message.contains("2 errors"));
        actors.delete(&name, &DeleteParams::default()).await?;
        let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        actors.patch(&name, &PatchParams::default(), &released).await?;
        scenario.actor_gone(&name, Duration::from_mins(1)).await?;

        let reviews = "asya_webhook_reviews_total";
        for (labels, least) in [
            (["reason=\"Unchanged\"", "operation=\"UPDATE\""], 1.0),
            (["reason=\"Valid\"", "dry_run=\"false\""], 1.0),
            (["reason=\"Invalid\"", "dry_run=\"true\""], 1.0),
            (["reason=\"Deleting\"", "result=\"allowed\""], 1.0),
        ] {
            let counted = webhook.metric(reviews, &labels).await?;
            assert!(counted >= least, "{labels:?}: {counted}");
        }
        validated.remove().await
    })
    .await;
}

/// VAC-3, VAC-4
#[tokio::test]
async fn webhook_in_mode_warn_lets_everything_pass_and_says_what_is_wrong() {
    Scenario::run("admission-warn", async |scenario| {
        let webhook = Webhook::start(
            scenario.cluster(),
            scenario.namespace(),
            &["--validation=Warn"],
        )
        .await?;
        let validated = Validated::by(scenario, &webhook).await?;
        let name = scenario.name("bad");
        let file = scenario.cluster().folder().join(format!("{name}.json"));
        std::fs::write(&file, bad_actor(&name).to_string()).unwrap();
        let file = file.display().to_string();
        let said = eventually(
            "kubectl shows warnings",
            Duration::from_secs(30),
            async || {
                let args = [
                    "apply",
                    "--dry-run=server",
                    "--warnings-as-errors",
                    "-f",
                    &file,
                ];
                match scenario.kubectl(&args).await {
                    Err(error) => Ok(error.to_string()),
                    Ok(said) => Err(NotYet::new(said)),
                }
            },
        )
        .await?;
        assert!(
            said.contains("containers[0].command: command is set"),
            "{said}"
        );
        assert!(said.contains("volumeMounts[0].mountPath: path"), "{said}");
        scenario.kubectl(&["apply", "-f", &file]).await?;
        validated.remove().await
    })
    .await;
}
