//! The lifecycle of an installation: what is created, what survives upgrades, and that an uninstall leaves nothing
//! behind.

use std::time::{Duration, Instant};

use asya_tests::argocd::ArgoCd;
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::helm::Helm;
use asya_tests::operator::{Instance, Operator, bin_folder, prepare};
use asya_tests::process::{Spec, output};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::admission::{gets_sidecar, pod_of};
use crate::binding::{bound_actor, model};
use crate::own_cluster;

const WAIT: Duration = Duration::from_secs(30);
/// AVL-5
const COLLECTED: Duration = Duration::from_secs(30);
/// Comparisons of all objects by Argo CD.
const ROUNDS: usize = 5;
const HOME: &str = "asya-system";
const INJECTOR: &str = "asya-operator-injector";
/// What is created for the webhook, except by Helm.
const MADE: [(&str, &str); 5] = [
    ("mutatingwebhookconfigurations", INJECTOR),
    ("validatingwebhookconfigurations", "asya-operator-validator"),
    ("secrets", "asya-operator-webhook-tls"),
    ("secrets", "asya-operator-webhook-tls-authority"),
    ("configmaps", "asya-operator-webhook-facts"),
];

/// An installation with a required binding that fails closed.
struct Installed {
    controller: Instance,
    webhook: Webhook,
}

impl Installed {
    /// Starts the programs that the chart has installed.
    async fn start(cluster: &Cluster, scenario: &Scenario) -> Result<Self> {
        let operator = Operator::installed(cluster).await?;
        let controller = operator.start("controller").await?;
        let webhook = Webhook::start(&operator).await?;
        let mut actor = bound_actor("needed", "model");
        actor["spec"]["binding"] = json!({"required": true});
        eventually("the CRD is served", WAIT, async || {
            scenario.apply(&actor).await.map_err(NotYet::new)
        })
        .await?;
        let target = model("model", 0)?;
        let deployments = scenario.api::<Deployment>();
        deployments.create(&PostParams::default(), &target).await?;
        gets_sidecar(scenario, &pod()?).await?;
        eventually("its entry fails closed", WAIT, async || {
            let policy = "--output=jsonpath={.webhooks[*].failurePolicy}";
            let get = ["get", MADE[0].0, INJECTOR, policy];
            let said = cluster.kubectl(&get).await.map_err(NotYet::new)?;
            check(said == "Fail", said)
        })
        .await?;
        Ok(Self {
            controller,
            webhook,
        })
    }

    /// Kills all processes.
    async fn dies(mut self) -> Result<()> {
        self.controller.kill().await;
        self.webhook.kill().await
    }
}

/// A pod of the required binding.
fn pod() -> Result<Pod> {
    let labels = json!({"app": "model", "pod-template-hash": "0"});
    pod_of("ReplicaSet", "model-0", &labels)
}

/// The uids of the objects in [`MADE`] that exist.
async fn made(cluster: &Cluster) -> Result<Vec<String>> {
    let mut uids = Vec::new();
    for (kind, name) in MADE {
        let uid = "--output=jsonpath={.metadata.uid}";
        let get = [
            "get",
            kind,
            name,
            "--namespace",
            HOME,
            "--ignore-not-found",
            uid,
        ];
        let uid = cluster.kubectl(&get).await?;
        uids.extend(Some(uid).filter(|uid| !uid.is_empty()));
    }
    Ok(uids)
}

/// Nothing remains that could fail a request, and pods of every kind can be created.
async fn nothing_is_left(cluster: &Cluster, scenario: &Scenario, after: &str) -> Result<()> {
    let since = Instant::now();
    let what = format!("nothing is left after {after}");
    eventually(what, COLLECTED, async || {
        let left = made(cluster).await.map_err(NotYet::new)?;
        check(left.is_empty(), format_args!("{} objects", left.len()))?;
        let role = [
            "get",
            "clusterrole",
            "asya-operator-webhook-anchor",
            "--ignore-not-found",
        ];
        let role = cluster.kubectl(&role).await.map_err(NotYet::new)?;
        check(role.is_empty(), role)
    })
    .await?;
    let took = since.elapsed();
    for namespace in [scenario.namespace(), "kube-system", "default"] {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
        pods.create(&PostParams::default(), &pod()?).await?;
    }
    eprintln!("after {after}: nothing left {took:?} later");
    Ok(())
}

/// A release's lifecycle with Helm: installed, upgraded twice, tested, and uninstalled while its processes still run.
async fn lives(helm: &Helm, cluster: &Cluster, scenario: &Scenario) -> Result<()> {
    prepare(cluster).await?;
    helm.with_chart(&["install"], json!({})).await?;
    let installed = Installed::start(cluster, scenario).await?;
    let before = made(cluster).await?;
    assert_eq!(before.len(), MADE.len());
    for level in ["info", "debug"] {
        helm.with_chart(&["upgrade"], json!({"logLevel": level}))
            .await?;
    }
    assert_eq!(
        made(cluster).await?,
        before,
        "no upgrade touches what the controller made"
    );
    gets_sidecar(scenario, &pod()?).await?;
    is_ready(helm, &installed).await?;

    may_not_go(cluster).await?;
    helm.run(&["uninstall", "asya-operator"]).await?;
    nothing_is_left(cluster, scenario, "helm uninstall").await?;
    installed.dies().await
}

/// While one actor is left, the check that `helm uninstall` first runs in a pod, run here, and the deletion of the CRD
/// are both refused.
async fn may_not_go(cluster: &Cluster) -> Result<()> {
    let look = Spec::new("uninstall check", bin_folder()?.join("asya-controller"))
        .arg("--check-uninstall")
        .env("KUBECONFIG", cluster.state().kubeconfig.display());
    let refused = output(look).await.expect_err("an actor is left");
    let text = refused.to_string();
    assert!(
        text.contains("1 AsyncActor is left, 1 of them with a queue"),
        "{text}"
    );
    let delete = ["delete", "crd", "asyncactors.asya.sh", "--dry-run=server"];
    let refused = cluster.kubectl(&delete).await;
    let text = refused.expect_err("it has a queue").to_string();
    assert!(text.contains("asya.sh/allow-deletion"), "{text}");
    Ok(())
}

/// Runs the check of `helm test` here rather than in a pod, with the addresses of our processes in place of the
/// Services.
async fn is_ready(helm: &Helm, installed: &Installed) -> Result<()> {
    let hooks = helm.run(&["get", "hooks", "asya-operator"]).await?;
    let line = hooks.lines().find(|line| line.contains("--check="));
    let line = line.ok_or_else(|| Error::Other(format!("no test: {hooks}")))?;
    let mut check = line.trim().trim_start_matches("- ").to_owned();
    let replica = &installed.webhook.replicas()[0];
    for (service, health) in [
        ("metrics", installed.controller.health()),
        ("webhook", replica.health()),
    ] {
        let url = format!("http://asya-operator-{service}.{HOME}.svc:8081");
        assert!(check.contains(&url), "{check}");
        check = check.replace(&url, health);
    }
    let said =
        output(Spec::new("helm test", bin_folder()?.join("asya-controller")).arg(&check)).await?;
    assert!(said.starts_with("ready: "), "{said}");
    Ok(())
}

async fn on_a_cluster<F>(name: &str, body: F)
where
    F: AsyncFnOnce(&Cluster, &Scenario) -> Result<()>,
{
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), name, async |scenario| {
        body(&cluster, scenario).await
    })
    .await;
}

/// CFG-11, AVL-5, CFG-1, QUE-49
#[tokio::test]
async fn helm_3_installs_upgrades_tests_and_removes_the_operator() {
    on_a_cluster("helm3", async |cluster, scenario| {
        lives(&Helm::three(cluster).await?, cluster, scenario).await
    })
    .await;
}

/// CFG-11, AVL-5, CFG-1, QUE-49
#[tokio::test]
async fn helm_4_installs_upgrades_tests_and_removes_the_operator() {
    on_a_cluster("helm4", async |cluster, scenario| {
        lives(&Helm::four(cluster), cluster, scenario).await
    })
    .await;
}

/// OPS-10: helm 4 uses server-side apply, so an upgrade removes only fields that the release owns.
#[tokio::test]
async fn upgrades_switch_leader_election_off_and_on() {
    on_a_cluster("elects", async |cluster, _| {
        prepare(cluster).await?;
        let helm = Helm::four(cluster);
        helm.with_chart(&["install"], json!({})).await?;
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), HOME);
        for (elects, strategy) in [
            (false, "Recreate"),
            (true, "RollingUpdate"),
            (false, "Recreate"),
        ] {
            let values = json!({"leaderElection": {"enabled": elects}});
            helm.with_chart(&["upgrade"], values).await?;
            let spec = deployments
                .get("asya-operator")
                .await?
                .spec
                .unwrap_or_default();
            let found = spec.strategy.unwrap_or_default();
            assert_eq!(found.type_.as_deref(), Some(strategy));
        }
        Ok(())
    })
    .await;
}

/// CFG-11, AVL-5
#[tokio::test]
async fn rendered_manifests_are_removed_without_a_trace() {
    on_a_cluster("rendered", async |cluster, scenario| {
        prepare(cluster).await?;
        let helm = Helm::four(cluster);
        let rendered = helm
            .with_chart(&["template", "--no-hooks"], json!({}))
            .await?;
        let file = cluster.folder().join("rendered.yaml");
        std::fs::write(&file, rendered).map_err(Error::other)?;
        let file = file.display().to_string();
        cluster.kubectl(&["apply", "--filename", &file]).await?;
        let installed = Installed::start(cluster, scenario).await?;
        let before = made(cluster).await?;
        cluster.kubectl(&["apply", "--filename", &file]).await?;
        assert_eq!(made(cluster).await?, before);
        installed.dies().await?;
        cluster.kubectl(&["delete", "--filename", &file]).await?;
        nothing_is_left(cluster, scenario, "kubectl delete").await
    })
    .await;
}

/// An application's lifecycle with Argo CD, with client-side or server-side apply: the operator changes nothing that is
/// declared, none of the operator's objects is pruned, and deleting the application removes them all.
async fn is_declared(name: &str, server_side: bool) {
    on_a_cluster(name, async |cluster, scenario| {
        prepare(cluster).await?;
        let helm = Helm::four(cluster);
        let rendered = async |level: &str| {
            let values = json!({"logLevel": level});
            helm.with_chart(&["template", "--skip-tests"], values).await
        };
        let argocd = ArgoCd::start(cluster, &rendered("info").await?, server_side).await?;
        argocd.stays_in_sync("what is declared", 1).await?;
        let installed = Installed::start(cluster, scenario).await?;
        argocd.stays_in_sync("what works", ROUNDS).await?;
        let before = made(cluster).await?;
        assert_eq!(before.len(), MADE.len());

        argocd.declares(&rendered("debug").await?)?;
        let rolled = [
            "get",
            "deployment",
            "asya-operator",
            "--namespace",
            HOME,
            "--output=jsonpath={.spec.template.spec.containers[0].args}",
        ];
        eventually("the next one is applied", WAIT, async || {
            let args = cluster.kubectl(&rolled).await.map_err(NotYet::new)?;
            check(args.contains("--log-level=debug"), args)
        })
        .await?;
        argocd.stays_in_sync("the next one", ROUNDS).await?;
        assert_eq!(made(cluster).await?, before, "nothing is pruned");
        gets_sidecar(scenario, &pod()?).await?;
        let failed: Vec<_> = argocd
            .rounds()?
            .into_iter()
            .flat_map(|it| it.failed)
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");

        installed.dies().await?;
        argocd.declares("")?;
        nothing_is_left(cluster, scenario, "the application's end").await
    })
    .await;
}

/// CFG-11, CFG-1, AVL-5
#[tokio::test]
async fn argo_cd_with_self_heal_finds_nothing_to_heal() {
    is_declared("argocd", false).await;
}

/// CFG-11, CFG-1, AVL-5
#[tokio::test]
async fn argo_cd_with_self_heal_by_server_side_apply_finds_nothing_to_heal() {
    is_declared("argocd-ssa", true).await;
}

/// AVL-5
#[tokio::test]
async fn configurations_are_collected_with_the_namespace_of_a_dead_controller() {
    on_a_cluster("namespace", async |cluster, scenario| {
        prepare(cluster).await?;
        Helm::four(cluster)
            .with_chart(&["install"], json!({}))
            .await?;
        let installed = Installed::start(cluster, scenario).await?;
        installed.dies().await?;
        let refused = scenario
            .api::<Pod>()
            .create(&PostParams::default(), &pod()?)
            .await;
        assert!(refused.is_err(), "it fails closed");
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        namespaces.delete(HOME, &DeleteParams::default()).await?;
        nothing_is_left(cluster, scenario, "the namespace's end").await
    })
    .await;
}
