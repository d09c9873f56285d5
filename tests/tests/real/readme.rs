//! Runs the README's first five minutes exactly as written.

use std::path::{Path, PathBuf};

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::Operator;
use asya_tests::process::{self, Spec};
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::real::{ADDRESS, OPERATOR_IMAGE, Readme, SIDECAR_IMAGE};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use serde_json::{Value, json};

use crate::binding::model;
use crate::{Broker, SOON, message, run, shelf};

const NAMESPACE: &str = "demo";

/// A user in the project's folder, with helm and kubectl, who copies the README's commands.
struct User<'a> {
    cluster: &'a Cluster,
    readme: &'a Readme,
    folder: PathBuf,
}

impl<'a> User<'a> {
    fn new(cluster: &'a Cluster, readme: &'a Readme) -> Result<Self> {
        let folder = cluster.folder().join("user");
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::fs::create_dir_all(&folder).map_err(Error::other)?;
        let charts = folder.join("charts");
        if !charts.exists() {
            std::os::unix::fs::symlink(project.join("charts"), charts).map_err(Error::other)?;
        }
        Ok(Self {
            cluster,
            readme,
            folder,
        })
    }

    /// Replaces the README's placeholders with this user's values.
    fn own(text: &str) -> String {
        text.replace("SIDECAR-IMAGE", SIDECAR_IMAGE)
            .replace("REPOSITORY", OPERATOR_IMAGE.0)
            .replace("PASSWORD", OPERATOR_PASSWORD)
    }

    /// Writes a file that the README shows.
    fn write(&self, file: &str, section: &str) -> Result<()> {
        let text = Self::own(&self.readme.block(section, "yaml")?);
        std::fs::write(self.folder.join(file), text).map_err(Error::other)
    }

    /// Runs the commands of a section that change the cluster.
    async fn follow(&self, section: &str) -> Result<()> {
        let blocks = self.readme.blocks(section, "");
        let lines = blocks.iter().flat_map(|block| block.lines());
        let commands: Vec<_> = lines
            .filter(|line| line.starts_with("kubectl ") || line.starts_with("helm "))
            .filter(|line| !line.contains("--watch"))
            .collect();
        assert!(!commands.is_empty(), "README's `{section}` has no commands");
        self.run(&commands.join("\n")).await
    }

    async fn run(&self, commands: &str) -> Result<()> {
        let state = self.cluster.state();
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = [&state.tools, &state.control_plane].map(|it| it.display().to_string());
        let shell = Spec::new("sh", "sh").inherit_env();
        let shell = shell
            .env("PATH", format!("{}:{path}", programs.join(":")))
            .env("KUBECONFIG", state.kubeconfig.display())
            .env("HOME", self.folder.display())
            .args(["-e", "-c"])
            .arg(format!(
                "cd '{}'\n{}",
                self.folder.display(),
                Self::own(commands)
            ));
        process::output(shell).await.map(drop)
    }

    async fn is_running(&self, actor: &str) -> Result<()> {
        let running = "--for=jsonpath={.status.status}=Running";
        let wait =
            format!("kubectl wait asya/{actor} --namespace {NAMESPACE} {running} --timeout=120s");
        self.run(&wait).await
    }
}

/// A Service for the broker at the address in the README's values.
async fn broker_service(cluster: &Cluster) -> Result<()> {
    let rabbitmq = cluster.rabbitmq()?;
    let state = rabbitmq.state();
    let ports = [
        ("amqp", 5672, state.port),
        ("management", 15672, state.management_port),
    ];
    let service =
        ports.map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target}));
    let slice = ports.map(|(name, _, target)| json!({"name": name, "port": target}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "rabbitmq", "namespace": "default"},
            "spec": {"ports": service},
        },
        {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "rabbitmq", "namespace": "default", "labels": {"kubernetes.io/service-name": "rabbitmq"}},
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}],
            "ports": slice,
        },
    ]});
    let file = cluster.folder().join("broker.json");
    std::fs::write(&file, list.to_string()).map_err(Error::other)?;
    let file = file.display().to_string();
    cluster
        .kubectl(&["apply", "--filename", &file])
        .await
        .map(drop)
}

/// Waits until the leader has applied its `CustomResourceDefinition`.
async fn kind_is_there(cluster: &Cluster) -> Result<()> {
    eventually("the kind is there", SOON, async || {
        let crd = "customresourcedefinition/asyncactors.asya.sh";
        let wait = ["wait", crd, "--for=condition=Established", "--timeout=5s"];
        cluster.kubectl(&wait).await.map(drop).map_err(NotYet::new)
    })
    .await
}

/// Installs the operator, runs the first actor, binds a model and uninstalls everything.
async fn five_minutes(scenario: &Scenario, user: &User<'_>) -> Result<()> {
    let cluster = scenario.cluster();
    // First uninstall what earlier scenarios installed, also by the README's commands.
    user.follow("Uninstall").await?;
    user.run("kubectl delete namespace asya-system --timeout=90s")
        .await?;
    broker_service(cluster).await?;

    user.write("values.yaml", "Install")?;
    user.follow("Install").await?;
    Operator::installed(cluster).await?.rolled_out().await?;
    user.run(user.readme.quoted("Once it runs,")?).await?;

    user.write("hello.yaml", "")?;
    kind_is_there(cluster).await?;
    // Messages that complete their route end up in this queue.
    run(scenario, &[shelf("happy-end", Broker::RabbitMq)]).await?;
    user.follow("A first actor").await?;
    user.is_running("hello").await?;
    let first = user.readme.quoted("a message is")?.to_owned();
    let sent: Value = serde_json::from_str(&first)?;
    Broker::RabbitMq.send(cluster, "hello", &[first]).await?;
    let results = Broker::RabbitMq.take(cluster, "happy-end", 1, SOON).await?;
    assert_eq!(
        results[0]["payload"],
        json!({"hello": sent["payload"]["name"]})
    );

    let mut deployment = model("my-model", 8000);
    deployment["metadata"]["namespace"] = json!(NAMESPACE);
    std::fs::write(user.folder.join("model.json"), deployment.to_string()).map_err(Error::other)?;
    user.write("chat.yaml", "Bind to a model")?;
    user.run("kubectl apply --filename model.json --filename chat.yaml")
        .await?;
    user.is_running("chat").await?;
    let payload: Value = serde_json::from_str(user.readme.quoted("the payload")?)?;
    let asked = message("2", "chat", "happy-end", &payload);
    Broker::RabbitMq.send(cluster, "chat", &[asked]).await?;
    let results = Broker::RabbitMq.take(cluster, "happy-end", 1, SOON).await?;
    let said = &results[0]["payload"]["choices"][0]["message"]["content"];
    assert_eq!(said, "you said hello", "{results:?}");

    user.follow("Uninstall").await?;
    user.run(&format!(
        "kubectl delete namespace {NAMESPACE} --wait=false"
    ))
    .await
}

/// RUN-16, BIND-30, CFG-1
#[tokio::test]
async fn readme_commands_install_run_bind_and_uninstall() {
    Scenario::run_alone("readme", async |scenario| {
        let readme = Readme::read()?;
        let user = User::new(scenario.cluster(), &readme)?;
        let outcome = five_minutes(scenario, &user).await;
        // Reinstall the operator for the scenarios that run later.
        let again = Operator::install(scenario.cluster(), json!({})).await;
        outcome?;
        again?.rolled_out().await?;
        kind_is_there(scenario.cluster()).await
    })
    .await;
}
