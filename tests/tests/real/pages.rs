//! Runs the commands of docs/quickstart.md and docs/install.md exactly as written.

use std::path::{Path, PathBuf};

use asya_tests::cluster::Cluster;
use asya_tests::crds;
use asya_tests::operator::Operator;
use asya_tests::process::{self, Spec};
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::real::{ADDRESS, Page, REGISTRY};
use asya_tests::scenario::{Scenario, documents};
use asya_tests::{Error, Result};
use serde_json::{Value, json};

use crate::{Broker, SOON, actor_without_pods, run};

/// Beginnings of commands that are not run, only checked for syntax.
const NOT_RUN: [&str; 8] = [
    "make image",
    "docker ",
    "kind ",
    // Its image is not available here; `broker_service` points to another RabbitMQ.
    "kubectl apply --filename examples/quickstart/rabbitmq.yaml",
    "kubectl rollout status deployment/rabbitmq ",
    // The tests have their own KEDA.
    "helm repo add kedacore ",
    "helm install keda ",
    // Runs until interrupted.
    "kubectl get asya --namespace demo --watch",
];

/// A user in the project folder, with helm and kubectl, who copies a page's commands.
struct User<'a> {
    cluster: &'a Cluster,
    page: Page,
    folder: PathBuf,
}

impl<'a> User<'a> {
    async fn new(cluster: &'a Cluster, page: &'static str) -> Result<Self> {
        let folder = cluster.folder().join("user");
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::fs::create_dir_all(&folder).map_err(Error::other)?;
        for name in ["charts", "examples"] {
            let link = folder.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(project.join(name), link).map_err(Error::other)?;
            }
        }
        let page = Page::read(page)?;
        let all = page.commands("").join("\n");
        process::output(Spec::new("sh", "sh").args(["-n", "-c"]).arg(all)).await?;
        Ok(Self {
            cluster,
            page,
            folder,
        })
    }

    /// Replaces the page's placeholders with this user's values.
    fn own(text: &str) -> String {
        text.replace("REGISTRY", REGISTRY)
            .replace("PASSWORD", OPERATOR_PASSWORD)
    }

    /// Writes a file that the page shows.
    fn write(&self, file: &str, section: &str) -> Result<()> {
        let text = Self::own(&self.page.block(section, "yaml")?);
        std::fs::write(self.folder.join(file), text).map_err(Error::other)
    }

    /// Runs the commands of a section, and compares the output of the last one with what the page says.
    async fn follow(&self, section: &str) -> Result<()> {
        let mut printed = String::new();
        for command in self.page.commands(section) {
            if !NOT_RUN.iter().any(|it| command.starts_with(it)) {
                printed = self.run(&command).await?;
            }
        }
        if let Some(promised) = self.page.quoted(section, "prints") {
            assert_eq!(printed.trim(), promised, "{section}");
        }
        Ok(())
    }

    async fn run(&self, commands: &str) -> Result<String> {
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
        process::output(shell).await
    }

    /// Uninstalls what earlier scenarios installed, with all of their queues.
    async fn uninstall_all(&self) -> Result<()> {
        for command in [
            "kubectl delete asyncactors --all --all-namespaces",
            "helm uninstall asya-operator --namespace asya-system",
            "kubectl delete customresourcedefinition asyncactors.asya.sh",
            "kubectl delete namespace asya-system --timeout=90s",
        ] {
            self.run(command).await?;
        }
        Ok(())
    }
}

/// A Service `rabbitmq` in this namespace, for the broker at the address in the page's values.
async fn broker_service(cluster: &Cluster, namespace: &str) -> Result<()> {
    let rabbitmq = cluster.rabbitmq()?;
    let state = rabbitmq.state();
    let ports = [
        ("amqp", 5672, state.port),
        ("management", 15672, state.management_port),
    ];
    let service =
        ports.map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target}));
    let slice = ports.map(|(name, _, target)| json!({"name": name, "port": target}));
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "rabbitmq", "namespace": namespace},
            "spec": {"ports": service},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": "rabbitmq", "namespace": namespace, "labels": {"kubernetes.io/service-name": "rabbitmq"},
            },
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}],
            "ports": slice,
        }),
    ];
    let file = cluster.folder().join("broker.json");
    std::fs::write(&file, documents(&objects)).map_err(Error::other)?;
    let file = file.display().to_string();
    cluster
        .kubectl(&["apply", "--filename", &file])
        .await
        .map(drop)
}

/// Waits until the leader has applied its `CustomResourceDefinition`.
pub(crate) async fn kind_is_there(cluster: &Cluster) -> Result<()> {
    crds::established(&cluster.client(), crds::ACTORS, SOON).await
}

/// Installs the operator, runs the first actor and uninstalls everything.
async fn install(scenario: &Scenario, user: &User<'_>) -> Result<()> {
    let cluster = scenario.cluster();
    user.uninstall_all().await?;
    broker_service(cluster, "default").await?;
    user.write("values.yaml", "Install")?;
    user.follow("Install").await?;
    let helm_test = user.page.quoted("Install", "Then").unwrap();
    user.run(helm_test).await?;

    user.write("hello.yaml", "A first actor")?;
    // Messages that complete their route end up in this queue.
    run(
        scenario,
        &[actor_without_pods("happy-end", Broker::RabbitMq)],
    )
    .await?;
    user.follow("A first actor").await?;
    let running = "--for=jsonpath={.status.status}=Running";
    let wait = format!("kubectl wait asya/hello --namespace demo {running} --timeout=120s");
    user.run(&wait).await?;
    let first = user.page.quoted("A first actor", "a message is").unwrap();
    let sent: Value = serde_json::from_str(first)?;
    let first = [first.to_owned()];
    Broker::RabbitMq.send(cluster, "hello", &first).await?;
    let results = Broker::RabbitMq.take(cluster, "happy-end", 1, SOON).await?;
    assert_eq!(
        results[0]["payload"],
        json!({"hello": sent["payload"]["name"]})
    );
    let kept = "asya-happy-end";
    cluster.rabbitmq()?.publish("", kept, "{}").await?;
    user.follow("Uninstall").await?;
    // The queue that the page keeps, and the one that its actor has drained.
    assert_eq!(cluster.rabbitmq()?.messages(kept, 9, false).await?, ["{}"]);
    assert!(cluster.rabbitmq()?.queue("asya-hello").await?.is_none());
    cluster.rabbitmq()?.delete_queue(kept).await?;
    user.run("kubectl delete namespace demo --wait=false")
        .await
        .map(drop)
}

/// Follows the whole page.
async fn quickstart(scenario: &Scenario, user: &User<'_>) -> Result<()> {
    user.uninstall_all().await?;
    for section in user.page.sections() {
        user.follow(section).await?;
        if section == "Install RabbitMQ and the operator" {
            user.run("kubectl apply --dry-run=server --filename examples/quickstart/rabbitmq.yaml")
                .await?;
            broker_service(scenario.cluster(), "quickstart").await?;
        }
    }
    Ok(())
}

/// Runs a scenario that uninstalls the operator, without others beside it, and reinstalls the operator afterwards.
async fn without_operator(
    name: &str,
    page: &'static str,
    body: impl AsyncFnOnce(&Scenario, &User<'_>) -> Result<()>,
) {
    Scenario::run_alone(name, async |scenario| {
        let user = User::new(scenario.cluster(), page).await?;
        let outcome = body(scenario, &user).await;
        let again = Operator::install(scenario.cluster(), json!({})).await;
        outcome?;
        again?.rolled_out().await?;
        kind_is_there(scenario.cluster()).await
    })
    .await;
}

/// RUN-16, CFG-1
#[tokio::test]
async fn install_page_installs_runs_an_actor_and_uninstalls() {
    without_operator("install", "docs/install.md", install).await;
}

/// RUN-16, BIND-30, KEDA-6, SEC-1
#[tokio::test]
async fn quickstart_page_answers_messages_by_a_handler_and_by_a_model_and_scales_to_zero() {
    without_operator("quickstart", "docs/quickstart.md", quickstart).await;
}
