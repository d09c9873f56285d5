//! Reviews succeed throughout changes of certificates, replicas, the controller and the webhook configurations.

use std::time::{Duration, Instant};

use asya_tests::audit::Write;
use asya_tests::eventually::{check, eventually};
use asya_tests::metrics::Metrics;
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::own_cluster_to_measure;
use asya_tests::{Error, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::stream::{Stream, all_injected};
use super::{REVIEWS, Stage, WAIT, control, gets_sidecar, pod_of, rotation};
use crate::binding::{bound_actor, status_is};

/// A single API server picks up a CA bundle at once.
const FLAGS: [&str; 1] = ["--webhook-ca-spread=2s"];
const INJECTOR: &str = "asya-operator-injector";
/// The operator's namespace.
const HOME: &str = "asya-system";
/// CFG-9
const HEALED: Duration = Duration::from_secs(5);
/// Time limit for status updates (BIND-7).
const TOLD: Duration = Duration::from_secs(2);

/// AVL-3, AVL-6, CERT-2, CERT-3, CERT-4, CFG-9, BIND-7; architecture, section 8
#[tokio::test]
async fn rotation_restart_and_leader_loss_fail_no_review() {
    let _turn = own_cluster_to_measure().await;
    let mut stage = Stage::set(&FLAGS).await.unwrap();
    Scenario::run_on(Ok(stage.cluster.clone()), "load", async |scenario| {
        let _follower = control(&stage.operator, "follower", &FLAGS).await?;
        let actor = bind(scenario, "model").await?;

        let started = Instant::now();
        let stream = Stream::start(scenario, "model").await?;
        stream.continues(100).await?;
        let say = |what: &str| {
            let (pods, since) = (stream.made().len(), started.elapsed());
            eprintln!("{since:5.1?}: {what}, {pods} pods");
        };
        rotation::of(&stage.operator).await?;
        say("first rotation done");
        let (rolled, rotated) = tokio::join!(stage.webhook.roll(), rotation::of(&stage.operator));
        rolled?;
        rotated?;
        say("second rotation and rolling restart done");
        stage.controller.kill().await;
        rotation::of(&stage.operator).await?;
        say("leader killed, third rotation done by the next one");
        let audit = scenario.cluster().audit();
        let written = audit.requests_in(audit.beginning(), HOME).await?;
        let tries = |it: &&Write| (&*it.resource, &*it.verb) == ("asyncactors", "create");
        let tries: Vec<i32> = written.iter().filter(tries).map(|it| it.code).collect();
        assert!(
            tries.len() >= 3 && tries.iter().all(|code| *code == 422),
            "each CA signs after a dry run: {tries:?}"
        );
        stream.continues(100).await?;
        let made = stream.made();
        all_injected(&made)?;
        let given_up = failed_open(scenario).await?;
        let reviews = stage.webhook.read_metrics().await?;
        reviews.get(REVIEWS, &[("reason", "Injected")])?;
        let failed = reviews.sum(REVIEWS, &[("result", "error")]);
        assert_eq!((given_up, failed), (None, None), "given up, failed");
        let wanted = started.elapsed().as_millis() / 20;
        assert!(
            made.len() as u128 * 10 > wanted * 9,
            "{} of {wanted} pods",
            made.len()
        );

        let gap = without_configuration(&stage, stream).await?;
        let counts = json!({"reason": "WebhookUnavailable", "count": gap});
        let status = status_is(
            scenario,
            &actor,
            "pods of the gap are counted",
            TOLD,
            |status| {
                let reasons = &status["pods"]["reasons"];
                reasons[0]["count"] == counts["count"] && reasons[0]["reason"] == counts["reason"]
            },
        )
        .await?;
        assert_eq!(status["pods"]["notInjected"], gap);
        Ok(())
    })
    .await;
}

/// An actor that binds a new `StatefulSet` and injects its pods.
pub(super) async fn bind(scenario: &Scenario, target: &str) -> Result<String> {
    let name = scenario.name("embed");
    let mut actor = bound_actor(&name, target);
    actor["spec"]["workloadRef"]["kind"] = json!("StatefulSet");
    actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
    actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
    scenario.apply(&actor).await?;
    let labels = json!({"app": target});
    gets_sidecar(scenario, &pod_of("StatefulSet", target, &labels)?).await?;
    let container = json!({"name": "model", "image": "model:1"});
    let set = json!({
        "metadata": {"name": target},
        "spec": {
            "replicas": 1, "serviceName": target,
            "selector": {"matchLabels": labels},
            // Unschedulable by design, so that the first pod never runs.
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": "nobody", "containers": [container]},
            },
        },
    });
    let set: StatefulSet = serde_json::from_value(set)?;
    scenario.api().create(&PostParams::default(), &set).await?;
    status_is(
        scenario,
        &name,
        "its first pod is reported",
        WAIT,
        |status| {
            status["pods"] == json!({"matched": 1, "injected": 1, "notInjected": 0, "outdated": 0})
        },
    )
    .await?;
    Ok(name)
}

/// How many reviews failed open, according to the API server; `None` if none did.
pub(super) async fn failed_open(scenario: &Scenario) -> Result<Option<f64>> {
    let page = scenario.kubectl(&["get", "--raw", "/metrics"]).await?;
    let page = Metrics::parse(&page)?;
    let all = page.samples("apiserver_admission_webhook_fail_open_count", &[]);
    let ours = all.filter(|it| it.label("name").is_some_and(|it| it.ends_with(".asya.sh")));
    Ok(ours.map(|it| it.value).reduce(|sum, value| sum + value))
}

/// Deletes the configuration, waits until pods are injected again, and returns how many were created without the
/// sidecar.
async fn without_configuration(stage: &Stage, stream: Stream) -> Result<usize> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(stage.cluster.client());
    let deleted = Instant::now();
    injectors.delete(INJECTOR, &DeleteParams::default()).await?;
    eventually("pods are injected again", HEALED, async || {
        let made = stream.made();
        let bare = made.iter().rposition(|it| it.injected != Ok(true));
        let after = bare.map(|last| made.len() - last);
        check(
            after.is_some_and(|after| after > 25),
            format_args!("{after:?}"),
        )
    })
    .await?;
    let made = stream.end().await?;
    let bare: Vec<_> = made.iter().filter(|it| it.injected == Ok(false)).collect();
    let back = bare
        .iter()
        .map(|it| it.answered.duration_since(deleted))
        .max();
    let back = back.unwrap_or_default();
    let mut took: Vec<_> = made.iter().map(|it| it.answered - it.sent).collect();
    took.sort();
    let (gap, p50, p99) = (
        bare.len(),
        took[took.len() / 2],
        took[took.len() * 99 / 100],
    );
    eprintln!("{} pods created, p50 {p50:.1?}, p99 {p99:.1?}", made.len());
    eprintln!("configuration deleted: {gap} pods without the sidecar, the last {back:.1?} later");
    let refused = made.iter().find_map(|it| it.injected.as_ref().err());
    if let Some(refused) = refused {
        return Err(Error::Other(refused.clone()));
    }
    assert!(gap > 0 && back <= HEALED, "{gap} {back:?}");
    Ok(gap)
}
