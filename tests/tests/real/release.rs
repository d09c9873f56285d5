//! Installs the files of `make release` from a registry, as docs/releasing.md describes (`make test-release`).

use std::path::PathBuf;

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::helm::Helm;
use asya_tests::operator::{self, Operator};
use asya_tests::ports;
use asya_tests::process::{self, Process, Spec};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::pages::kind_is_there;
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// Names the folder with the release.
const VARIABLE: &str = "ASYA_RELEASE";
const RELEASE: &str = "asya-operator";
const NAMESPACE: &str = "asya-system";
const TITLES: [&str; 2] = ["asya-operator", "asya-sidecar"];

/// An image as listed in images.txt: `NAME:VERSION@DIGEST`.
#[derive(Clone)]
struct Image {
    name: String,
    digest: String,
}

/// The files of a release.
struct Files {
    folder: PathBuf,
    version: String,
    images: [Image; 2],
}

impl Files {
    fn read() -> Result<Self> {
        let folder = std::env::var_os(VARIABLE).map(PathBuf::from);
        let missing = || Error::Missing(format!("{VARIABLE} is not set: run make test-release"));
        let folder = folder.ok_or_else(missing)?;
        let list = std::fs::read_to_string(folder.join("images.txt")).map_err(Error::other)?;
        let image = |title: &str| {
            let mut lines = list.lines().filter_map(|line| line.split_once('@'));
            let found = lines.find(|(name, _)| name.contains(&format!("{title}:")));
            let (name, digest) =
                found.ok_or_else(|| Error::other(format!("no {title} in {list}")))?;
            Ok::<_, Error>(Image {
                name: name.to_owned(),
                digest: digest.to_owned(),
            })
        };
        let images = [image(TITLES[0])?, image(TITLES[1])?];
        let (_, version) = images[0].name.rsplit_once(':').unwrap_or_default();
        Ok(Self {
            version: version.to_owned(),
            folder,
            images,
        })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    async fn check_sums(&self) -> Result<()> {
        let folder = self.folder.display();
        let check = format!("cd '{folder}' && sha256sum --check --strict --quiet SHA256SUMS");
        let shell = Spec::new("sha256sum", "sh").inherit_env();
        process::output(shell.args(["-e", "-c", &check]))
            .await
            .map(drop)
    }
}

/// A registry on a loopback port, from which containerd pulls without TLS.
struct Registry {
    address: String,
    _process: Process,
}

impl Registry {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let folder = cluster.folder().join("registry");
        std::fs::create_dir_all(&folder).map_err(Error::other)?;
        let address = format!("127.0.0.1:{}", ports::free()?);
        let configuration = json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": folder}},
            "http": {"addr": address},
        });
        let file = folder.join("config.yml");
        std::fs::write(&file, configuration.to_string()).map_err(Error::other)?;
        let registry = Spec::new("docker-registry", "docker-registry").inherit_env();
        let registry = registry
            .log(folder.join("log"))
            .arg("serve")
            .arg(file.display());
        let process = Process::start(registry).await?;
        let url = format!("http://{address}/v2/");
        let answers = eventually("the registry answers", SOON, async || {
            let answer = reqwest::get(&url).await.map_err(NotYet::new)?;
            check(answer.status().is_success(), answer.status())
        });
        process.alive_while(answers).await?;
        Ok(Self {
            address,
            _process: process,
        })
    }

    /// Pushes the images of a release, each for all platforms.
    async fn push(&self, files: &Files) -> Result<()> {
        for title in TITLES {
            let version = &files.version;
            let layout = files.path(&format!("{title}-{version}.oci.tar"));
            let skopeo = Spec::new("skopeo", "skopeo").inherit_env();
            let copy = skopeo
                .args(["--insecure-policy", "copy", "--all", "--preserve-digests"])
                .arg("--dest-tls-verify=false")
                .arg(format!("oci-archive:{layout}"))
                .arg(format!("docker://{}/{title}:{version}", self.address));
            process::output(copy).await?;
        }
        Ok(())
    }
}

/// Waits until every container of this image in these pods runs the released digest, and at least one does.
async fn runs(pods: &Api<Pod>, labels: &str, image: &Image) -> Result<()> {
    let what = format!("{labels} runs {}", image.digest);
    eventually(what, SOON, async || {
        let (_, title) = image.name.rsplit_once('/').unwrap_or(("", &image.name));
        let list = pods.list(&ListParams::default().labels(labels)).await?;
        let states = list.items.into_iter().filter_map(|pod| pod.status);
        let containers = states
            .flat_map(|status| [status.container_statuses, status.init_container_statuses])
            .flatten()
            .flatten();
        let ids: Vec<_> = containers
            .filter(|it| it.image.ends_with(title))
            .map(|it| it.image_id)
            .collect();
        let released = |id: &String| id.ends_with(&image.digest);
        check(
            !ids.is_empty() && ids.iter().all(released),
            format_args!("{ids:?}"),
        )
    })
    .await
}

/// A message passes through an actor with the released sidecar.
async fn answers(scenario: &Scenario, files: &Files) -> Result<()> {
    let (name, next) = (scenario.name("released"), scenario.name("released-next"));
    let worker = actor(&name, Broker::RabbitMq, "handlers.shout");
    run(
        scenario,
        &[worker, actor_without_pods(&next, Broker::RabbitMq)],
    )
    .await?;
    let pods = scenario.api::<Pod>();
    runs(&pods, &format!("asya.sh/asya={name}"), &files.images[1]).await?;
    let cluster = scenario.cluster();
    let sent = message("1", &name, &next, &json!({"text": "hello"}));
    Broker::RabbitMq.send(cluster, &name, &[sent]).await?;
    let results = Broker::RabbitMq.take(cluster, &next, 1, SOON).await?;
    assert_eq!(results[0]["payload"]["text"], "HELLO", "{results:?}");
    let delete = ["delete", "asyncactors", "--all", "--timeout=90s"];
    scenario.kubectl(&delete).await.map(drop)
}

/// Installs the release's chart, with the released images.
async fn chart_works(scenario: &Scenario, files: &Files, registry: &Registry) -> Result<()> {
    let cluster = scenario.cluster();
    let chart = files
        .folder
        .join(format!("{RELEASE}-{}.tgz", files.version));
    // The tag is the chart's own version.
    let repository = format!("{}/{RELEASE}", registry.address);
    let values = json!({"image": {"repository": repository, "tag": ""}});
    operator::prepare(cluster).await?;
    let helm = Helm::four(cluster);
    helm.with_chart_at(&chart, &["install"], values).await?;
    Operator::installed(cluster).await?.rolled_out().await?;
    helm.run(&["test", RELEASE, "--timeout=90s"]).await?;
    let pods = Api::namespaced(scenario.client(), NAMESPACE);
    let labels = format!("app.kubernetes.io/instance={RELEASE}");
    runs(&pods, &labels, &files.images[0]).await?;
    kind_is_there(cluster).await?;
    answers(scenario, files).await?;
    helm.run(&["uninstall", RELEASE, "--wait", "--timeout=90s"])
        .await
        .map(drop)
}

/// Applies the release's manifests, with the registry's image names.
async fn manifests_work(scenario: &Scenario, files: &Files, registry: &Registry) -> Result<()> {
    let cluster = scenario.cluster();
    let crd = "customresourcedefinition/asyncactors.asya.sh";
    cluster.kubectl(&["delete", crd, "--timeout=90s"]).await?;
    let released = std::fs::read_to_string(files.path("install.yaml")).map_err(Error::other)?;
    let mut manifests = released;
    for (title, image) in TITLES.iter().zip(&files.images) {
        let pushed = format!("{}/{title}:{}", registry.address, files.version);
        assert!(
            manifests.contains(&image.name),
            "install.yaml names no {}",
            image.name
        );
        manifests = manifests.replace(&image.name, &pushed);
    }
    let file = cluster.folder().join("install.yaml").display().to_string();
    std::fs::write(&file, manifests).map_err(Error::other)?;
    cluster.kubectl(&["apply", "--filename", &file]).await?;
    Operator::installed(cluster).await?.rolled_out().await?;
    kind_is_there(cluster).await
}

/// SC-98, CFG-11
#[tokio::test]
#[ignore = "needs the files of a release: make test-release"]
async fn released_files_install_from_a_registry() {
    Scenario::run("release", async |scenario| {
        let files = Files::read()?;
        files.check_sums().await?;
        let registry = Registry::start(scenario.cluster()).await?;
        registry.push(&files).await?;
        chart_works(scenario, &files, &registry).await?;
        manifests_work(scenario, &files, &registry).await
    })
    .await;
}
