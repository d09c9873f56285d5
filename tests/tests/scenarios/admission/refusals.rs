//! Actors that violate validation rules.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{REVIEWS, WAIT};
use crate::{minimal_actor, own_cluster};

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// The API server's response to a write that it rejects.
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

/// VAC-1, VAC-3, VAC-4, VAC-8, ADM-1, ADM-5, ADM-6, AVL-4, FW-21
#[tokio::test]
async fn invalid_actor_is_refused_with_all_errors_and_stays_deletable() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "admission", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let _controller = operator.start("controller").await?;
        let actors = scenario.actors();
        let name = scenario.name("bad");
        // No replica is running yet, so the write must succeed.
        let mut stored = bad_actor(&name);
        stored["metadata"]["finalizers"] = json!(["example.com/held"]);
        actors
            .create(&PostParams::default(), &object(stored))
            .await?;

        let mut webhook = Webhook::start(&operator).await?;
        refuses(scenario, &webhook, &name).await?;
        webhook.kill().await?;
        let values = json!({"webhook": {"validation": {"mode": "Warn"}}});
        let operator = Operator::install(&cluster, values).await?;
        let _webhook = Webhook::start(&operator).await?;
        warns(scenario).await
    })
    .await;
}

/// `stored` names an invalid actor that predates the webhook.
async fn refuses(scenario: &Scenario, webhook: &Webhook, stored: &str) -> Result<()> {
    let actors = scenario.actors();
    let other = scenario.name("other");
    let status = eventually("a bad actor is refused", WAIT, async || {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let answer = actors.create(&dry_run, &object(bad_actor(&other))).await;
        match answer {
            Err(kube::Error::Api(status)) => Ok(*status),
            _ => Err(NotYet::new("it is not")),
        }
    })
    .await?;
    let path = "spec.workload.template.spec.containers[0]";
    let text = format!(
        "admission webhook \"validate.asyncactors.asya.sh\" denied the request: AsyncActor {}/{other} has 2 errors:\n  \
         {path}.command: command is set by the operator; use args or ASYA_HANDLER\n  \
         {path}.volumeMounts[0].mountPath: path /var/run/asya/x is managed by the operator; mount elsewhere",
        scenario.namespace(),
    );
    assert_eq!((status.message, status.code), (text, 422));
    let good = object(minimal_actor(&other));
    actors.create(&PostParams::default(), &good).await?;

    // An update that changes only an annotation is validated, too.
    for annotation in ["asya.sh/reconcile", "asya.sh/paused"] {
        let misspelt = json!({"metadata": {"annotations": {annotation: "Nonsense"}}});
        let change = Patch::Merge(misspelt);
        let answer = actors.patch(&other, &PatchParams::default(), &change).await;
        let text = refusal(answer).message;
        assert!(text.contains("unknown value"), "{text}");
    }

    // A stored actor can be labelled, paused and deleted, however invalid its spec is.
    let merge = async |changes: Value| {
        let changes = Patch::Merge(changes);
        actors
            .patch(stored, &PatchParams::default(), &changes)
            .await
    };
    let annotations = json!({"asya.sh/paused": "false"});
    merge(json!({"metadata": {"labels": {"team": "a"}, "annotations": annotations}})).await?;
    let worse = merge(json!({"spec": {"timeout": {"processing": 5}}})).await;
    assert!(refusal(worse).message.contains("2 errors"));
    actors.delete(stored, &DeleteParams::default()).await?;
    merge(json!({"metadata": {"finalizers": null}})).await?;
    scenario.actor_gone(stored, WAIT).await?;

    for labels in [
        [("reason", "Valid"), ("dry_run", "false")],
        [("reason", "Invalid"), ("dry_run", "true")],
        [("reason", "Invalid"), ("operation", "UPDATE")],
    ] {
        let counted = webhook.metric(REVIEWS, &labels).await?;
        assert!(counted >= 1.0, "{labels:?}: {counted}");
    }
    Ok(())
}

async fn warns(scenario: &Scenario) -> Result<()> {
    let name = scenario.name("bad");
    let file = scenario.cluster().folder().join(format!("{name}.json"));
    std::fs::write(&file, bad_actor(&name).to_string()).unwrap();
    let file = file.display().to_string();
    let said = eventually("kubectl shows warnings", WAIT, async || {
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
    })
    .await?;
    for problem in [
        "containers[0].command: command is set",
        "volumeMounts[0].mountPath: path",
    ] {
        assert!(said.contains(problem), "{said}");
    }
    scenario.kubectl(&["apply", "-f", &file]).await.map(drop)
}
