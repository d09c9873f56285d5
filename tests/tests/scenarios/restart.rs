//! A restart with another runtime script, and with missing permissions.

use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::scaling::condition;
use crate::steady::RECONCILES;
use crate::{all_running, minimal_actor, own_cluster};

const SCRIPT: &str = "print('another script')\n";
/// The namespace that holds the script; it does not exist at first.
const HOME: &str = "scripts";
const HASH: &str = "asya.sh/runtime-hash";

fn annotated(name: &str, annotations: Value) -> Value {
    let mut actor = minimal_actor(name);
    actor["metadata"]["annotations"] = annotations;
    actor
}

fn log_of(cluster: &Cluster, instance: &Instance) -> String {
    let log = cluster
        .folder()
        .join(format!("operator-{}", instance.name()))
        .join("log");
    std::fs::read_to_string(log).unwrap_or_default()
}

/// The script's hash in a Deployment's template, and the Deployment's generation.
async fn script_of(scenario: &Scenario, name: &str) -> Result<(String, i64), NotYet> {
    let found = scenario.api::<Deployment>().get(name).await?;
    let template = found.spec.and_then(|spec| spec.template.metadata);
    let annotations = template.and_then(|template| template.annotations);
    let hash = annotations.and_then(|mut annotations| annotations.remove(HASH));
    let generation = found.metadata.generation;
    Ok((hash.unwrap_or_default(), generation.unwrap_or_default()))
}

async fn script_at_home(cluster: &Cluster) -> Result<Option<ConfigMap>> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), HOME);
    Ok(api.get_opt("asya-runtime").await?)
}

/// RUN-3, RUN-4, FW-21, API-3
#[tokio::test]
async fn new_script_rolls_pods_unless_paused_or_reconciled_once() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "script", async |scenario| {
        let values = json!({"leaderElection": {"enabled": false}});
        let operator = Operator::install(&cluster, values).await?;
        let first = operator.start("first").await?;
        let [always, once, paused] = ["always", "once", "paused"].map(|name| scenario.name(name));
        let mut actors = [
            minimal_actor(&always),
            annotated(&once, json!({"asya.sh/reconcile": "Once"})),
            minimal_actor(&paused),
        ];
        let names = [always.clone(), once.clone(), paused.clone()];
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        actors[2] = annotated(&paused, json!({"asya.sh/paused": "true"}));
        scenario.apply_all(&actors).await?;
        eventually("one is paused and one is done", AFTER_START, async || {
            let done = scenario.actors().get(&once).await?;
            let halted = scenario.actors().get(&paused).await?;
            check(
                done.data["status"]["readyGeneration"] == 1
                    && condition(&halted, "Ready").1 == "Paused",
                format_args!("{} {}", done.data["status"], halted.data["status"]),
            )
        })
        .await?;
        first.stop().await?;
        let told = |error: NotYet| Error::other(format!("{error:?}"));
        let before = script_of(scenario, &always).await.map_err(told)?;

        let script = cluster.folder().join("another.py");
        std::fs::write(&script, SCRIPT).map_err(Error::other)?;
        let env = [
            ("ASYA_RUNTIME_SCRIPT_PATH", script.display().to_string()),
            ("ASYA_RUNTIME_NAMESPACE", HOME.to_owned()),
        ];
        let launch = Launch {
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Launch::default()
        };
        let audit = cluster.audit();
        let mark = audit.mark().await?;
        let second = operator.launch("second", launch).await?;
        second.wait_ready().await?;
        eventually("the pods have the new script", AFTER_START, async || {
            let (hash, generation) = script_of(scenario, &always).await?;
            check(
                hash != before.0 && generation > before.1,
                format_args!("{hash} {generation}"),
            )?;
            let reconciles = second.metric(RECONCILES, &[]).await.map_err(NotYet::new)?;
            check(reconciles >= 3.0, format_args!("{reconciles} reconciles"))
        })
        .await?;
        all_running(scenario, std::slice::from_ref(&always)).await?;
        for left_alone in [&once, &paused] {
            let now = script_of(scenario, left_alone).await.map_err(told)?;
            assert_eq!(now, (before.0.clone(), 1), "{left_alone} was rolled");
            let status = &scenario.actors().get(left_alone).await?.data["status"];
            assert_eq!(status["status"], "Running", "{status}");
        }
        let writes = audit.writes_since(mark, &operator.user()).await?;
        let of = |resource: &str| {
            let mut writes = writes.iter();
            let found = writes.find(|it| it.resource == resource && it.code < 300);
            found.map(|write| write.time)
        };
        assert!(of("configmaps") < of("deployments"), "{writes:#?}");

        // A missing namespace causes only a warning.
        let log = log_of(&cluster, &second);
        let warned = log.lines().any(|line| {
            line.contains("WARN")
                && line.contains(
                    "cannot write the runtime script's ConfigMap in the runtime namespace",
                )
                && line.contains(HOME)
        });
        assert!(warned, "{log}");
        let home: Namespace = serde_json::from_value(json!({"metadata": {"name": HOME}}))?;
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        namespaces.create(&PostParams::default(), &home).await?;
        eventually("the script is at home", AFTER_START, async || {
            let found = script_at_home(&cluster).await.map_err(NotYet::new)?;
            let text = found.and_then(|found| found.data?.remove("asya_runtime.py"));
            check(text.as_deref() == Some(SCRIPT), format_args!("{text:?}"))
        })
        .await?;
        second.stop().await?;
        lacks_a_right(scenario, &cluster, &operator).await
    })
    .await;
}

/// FW-12: the missing rule is named, and the operator keeps running.
async fn lacks_a_right(scenario: &Scenario, cluster: &Cluster, operator: &Operator) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let whole = roles.get("asya-operator").await?;
    let mut less = whole.clone();
    for rule in less.rules.iter_mut().flatten() {
        let resources = rule.resources.iter_mut().flatten();
        for resource in resources.filter(|it| *it == "horizontalpodautoscalers") {
            "nothing".clone_into(resource);
        }
    }
    let params = PostParams::default();
    let less = roles.replace("asya-operator", &params, &less).await?;
    let user = operator.user();
    let asked = ["auth", "can-i", "list", "hpa", "--as", &user];
    eventually("the right is gone", AFTER_START, async || {
        let answer = scenario.kubectl(&asked).await;
        check(answer.is_err(), format_args!("{answer:?}"))
    })
    .await?;

    let third = operator.launch("third", Launch::default()).await?;
    asya_tests::install_crypto_provider();
    let url = format!("{}/readyz", third.health());
    eventually(
        "it says what keeps it from being ready",
        AFTER_START,
        async || {
            let answer = reqwest::get(&url).await.map_err(NotYet::new)?;
            let (code, text) = (
                answer.status().as_u16(),
                answer.text().await.map_err(NotYet::new)?,
            );
            let lines: Vec<&str> = text.lines().collect();
            let only = lines.len() == 1 && text.contains("watch HorizontalPodAutoscaler");
            check(code >= 500 && only, format_args!("{code}: {text}"))
        },
    )
    .await?;
    let log = log_of(cluster, &third);
    let rule = r#"{apiGroups: [\"autoscaling\"], resources: [\"horizontalpodautoscalers\"], verbs: [get, list, watch]}"#;
    assert!(log.contains(rule), "{log}");
    let healthy = async |kind: &str| {
        third
            .metric("asya_operator_watch_healthy", &[("kind", kind)])
            .await
    };
    assert!(healthy("HorizontalPodAutoscaler").await? < 1.0);
    assert!(healthy("AsyncActor").await? > 0.0, "the others go on");
    assert_eq!(third.process().exited(), None);

    let mut again = whole;
    again.metadata.resource_version = less.metadata.resource_version;
    roles.replace("asya-operator", &params, &again).await?;
    third.wait_ready().await
}
