//! Upgrades from another commit of this project and back, with running actors and bindings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asya_shared::names::{RUNTIME_CONFIG_MAP, label};
use asya_tests::audit::Write;
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::helm::Helm;
use asya_tests::operator::{Instance, OPERATOR_AGENT, Operator, bin_folder, prepare};
use asya_tests::owners::{Kind, RecordingClient};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, model};
use crate::scaled_targets::all_kinds::{all, served};
use crate::steady::{RECONCILES, Writes, besides_lists};
use crate::{all_running, minimal_actor, own_cluster};

/// Names a folder that contains the other commit's programs in `bin` and its chart in `chart`.
const FROM_VARIABLE: &str = "ASYA_UPGRADE_FROM";
const ACTORS: usize = 50;
/// A target with the sidecar in its pod template.
const TEMPLATED: &str = "templated";
const ROLLED: Duration = Duration::from_mins(5);
const SEEN: Duration = Duration::from_mins(1);

/// Programs and chart of a commit.
struct Release {
    bin: PathBuf,
    chart: PathBuf,
}

/// The running programs of a release.
struct Running {
    operator: Operator,
    controller: Instance,
    webhook: Webhook,
}

impl Release {
    fn former() -> Result<Self> {
        let folder = std::env::var_os(FROM_VARIABLE).map(PathBuf::from);
        let folder = folder
            .ok_or_else(|| Error::Missing(format!("{FROM_VARIABLE}: run make test-upgrade")))?;
        Ok(Self {
            bin: folder.join("bin"),
            chart: folder.join("chart"),
        })
    }

    fn today() -> Result<Self> {
        Ok(Self {
            bin: bin_folder()?,
            chart: Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator"),
        })
    }

    async fn start(&self, cluster: &Cluster) -> Result<Running> {
        prepare(cluster).await?;
        let helm = Helm::four(cluster);
        // Pinned, because a different default image would roll standalone pods, as it should.
        let values = json!({"sidecar": {"image": "asya-sidecar:latest"}});
        helm.with_chart_at(&self.chart, &["upgrade", "--install"], values)
            .await?;
        let operator = Operator::installed(cluster).await?;
        let operator = operator.with_programs(&self.bin);
        Ok(Running {
            controller: operator.start("controller").await?,
            webhook: Webhook::start(&operator).await?,
            operator,
        })
    }
}

impl Running {
    async fn stop(mut self) -> Result<()> {
        self.controller.stop().await?;
        self.webhook.kill().await
    }
}

/// Creates standalone actors, and a binding of each kind and strategy, and waits until all are served.
async fn populate(scenario: &Scenario) -> Result<usize> {
    let names: Vec<_> = (0..ACTORS)
        .map(|n| scenario.name(&format!("own-{n}")))
        .collect();
    let mut actors: Vec<_> = names.iter().map(|name| minimal_actor(name)).collect();
    for actor in actors.iter_mut().step_by(2) {
        actor["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
    }
    scenario.apply_all(&actors).await?;
    let mut bindings = Vec::new();
    for case in all()? {
        let scaling = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
        bindings.push(case.actor(scenario, &scaling));
    }
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model(TEMPLATED, 2)?)
        .await?;
    let name = scenario.name(TEMPLATED);
    let mut actor = bound_actor(&name, TEMPLATED);
    actor["spec"]["binding"] = json!({"strategy": "Template"});
    bindings.push((name, actor));
    let (bound, actors): (Vec<_>, Vec<_>) = bindings.into_iter().unzip();
    scenario.apply_all(&actors).await?;
    all_running(scenario, &names).await?;
    eventually("all bindings have the sidecar", ROLLED, async || {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let ready = |status: &Value| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let injected = conditions
                .clone()
                .any(|it| it["type"] == "Injected" && it["status"] == "True");
            injected && status["status"] == "Running" && status["rollout"].is_null()
        };
        let waiting: Vec<_> = actors
            .iter()
            .filter(|it| bound.contains(it.metadata.name.as_ref().unwrap_or(&String::new())))
            .filter(|it| !ready(&it.data["status"]))
            .map(|it| {
                (
                    it.metadata.name.clone(),
                    it.data["status"]["status"].clone(),
                )
            })
            .collect();
        check(waiting.is_empty(), format_args!("{waiting:?}"))
    })
    .await?;
    Ok(names.len() + bound.len())
}

/// UIDs of pods: all, or only those that belong to other controllers.
async fn pods(scenario: &Scenario, bound_only: bool) -> Result<BTreeSet<String>> {
    let foreign = format!("!{}", label::WORKLOAD);
    let selector = if bound_only { &*foreign } else { "" };
    let pods = ListParams::default().labels(selector);
    let pods = scenario.api::<Pod>().list(&pods).await?;
    Ok(pods.into_iter().filter_map(|it| it.metadata.uid).collect())
}

/// The runtime script that pods mount.
async fn script(scenario: &Scenario) -> Result<Option<BTreeMap<String, String>>> {
    let script = scenario.api::<ConfigMap>().get(RUNTIME_CONFIG_MAP).await?;
    Ok(script.data)
}

/// Whether an upgrade of a release may write this: status, Events and the CRD; with a new runtime script also the
/// ConfigMap and the workloads of standalone actors.
fn is_expected(write: &Write, new_script: bool) -> bool {
    let status = (&*write.resource, &*write.subresource) == ("asyncactors", "status");
    let of_script = matches!(&*write.resource, "configmaps" | "deployments");
    status
        || matches!(&*write.resource, "events" | "customresourcedefinitions")
        || (new_script && of_script)
}

/// ROLL-8, OPS-8, WRK-5, QUE-8
#[tokio::test]
#[ignore = "needs another commit's programs: make test-upgrade FROM=COMMIT"]
async fn upgrade_and_downgrade_write_nothing_but_status_and_restart_no_pod() {
    let _turn = own_cluster().await;
    let options = Options {
        keda: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "upgrade", async |scenario| {
        let (former, today) = (Release::former()?, Release::today()?);
        let mut running = former.start(&cluster).await?;
        let _owners = served(scenario, &all()?).await?;
        let count = populate(scenario).await?;
        let user = running.operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        writes.end().await?;
        let rabbitmq = cluster.rabbitmq()?;
        let broker = rabbitmq.access_log();
        let (before, foreign) = (pods(scenario, false).await?, pods(scenario, true).await?);
        let mut rolled = false;
        let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        let template = async || -> Result<Value> {
            let live = client.get(Kind::DEPLOYMENT, TEMPLATED).await?;
            Ok(live.unwrap_or_default()["spec"]["template"].clone())
        };
        let templated = template().await?;
        for (what, release) in [("upgrade", &today), ("downgrade", &former)] {
            let (mark, calls) = (writes.audit.mark().await?, broker.mark()?);
            let previous_script = script(scenario).await?;
            running.stop().await?;
            running = release.start(&cluster).await?;
            let all = f64::from(u32::try_from(count).map_err(Error::other)?);
            eventually("every actor is reconciled", SEEN, async || {
                let reconciles = running.controller.metric(RECONCILES, &[]).await;
                let reconciles = reconciles.map_err(NotYet::new)?;
                check(reconciles >= all, format_args!("{reconciles} of {all}"))
            })
            .await?;
            writes.end().await?;
            let written = writes.since(mark).await?;
            let new_script = script(scenario).await? != previous_script;
            rolled |= new_script;
            let (expected, others): (Vec<_>, Vec<_>) = written
                .into_iter()
                .partition(|it| is_expected(it, new_script));
            eprintln!(
                "{what} of {count} actors: {} expected writes, new script: {new_script}",
                expected.len()
            );
            assert!(others.is_empty(), "{what}: {others:#?}");
            let mut calls = broker.calls_since(calls, rabbitmq.user())?;
            // KEDA counts messages as the same user.
            calls.retain(|call| call.agent.starts_with(OPERATOR_AGENT));
            assert_eq!(besides_lists(&rabbitmq, calls), [], "{what}");
            let kept = if rolled { &foreign } else { &before };
            let now = pods(scenario, rolled).await?;
            assert_eq!(&now, kept, "{what}: pods were replaced");
            assert_eq!(template().await?, templated, "{what}");
        }
        running.stop().await
    })
    .await;
}
