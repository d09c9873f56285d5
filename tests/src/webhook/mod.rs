//! Replicas of the admission webhook on loopback ports, which the API server calls by URL.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, write_kubeconfig};
use crate::error::{Error, Result, Trying};
use crate::eventually::{NotYet, eventually};
use crate::operator;
use crate::pki::{Authority, Use};
use crate::ports;
use crate::process::{Process, Spec};

/// Its account, and the role with its rights (CFG-10).
const NAME: &str = "asya-webhook";
const NAMESPACE: &str = "asya-system";
/// Longer than any run.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// A running replica; killed when dropped.
#[derive(Debug)]
pub struct Webhook {
    process: Process,
    authority: Authority,
    reviews: String,
    probes: String,
}

impl Webhook {
    /// Starts a replica with the cluster's transports and waits until it is ready. `args` come after those that it needs.
    ///
    /// # Errors
    /// When its binary is missing, or it ends or does not become ready.
    pub async fn start(cluster: &Cluster, name: &str, args: &[&str]) -> Result<Self> {
        let folder = cluster.folder().join(format!("webhook-{name}"));
        std::fs::create_dir_all(&folder).trying(format_args!("make {}", folder.display()))?;
        let authority = Authority::new("asya-webhook-ca")?;
        authority.issue(&folder, "tls", NAME, &["127.0.0.1"], Use::Server)?;
        let kubeconfig = account(cluster, &folder).await?;
        let secret = store(cluster, name, &folder, &authority).await?;
        let transports = &operator::default_values(cluster)["transports"];
        let (reviews, probes) = (ports::free()?, ports::free()?);
        let spec = Spec::new(
            format!("webhook {name}"),
            operator::bin_folder()?.join("asya-webhook"),
        )
        .arg(format_args!("--webhook-bind-address=127.0.0.1:{reviews}"))
        .arg(format_args!(
            "--health-probe-bind-address=127.0.0.1:{probes}"
        ))
        .arg(format_args!("--tls-secret={secret}"))
        .arg("--tls-names=127.0.0.1")
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("ASYA_TRANSPORT_CONFIG", json!({"transports": transports}))
        .env("RUST_BACKTRACE", "1")
        .log(folder.join("log"));
        let webhook = Self {
            process: Process::start(spec).await?,
            authority,
            reviews: format!("https://127.0.0.1:{reviews}"),
            probes: format!("http://127.0.0.1:{probes}"),
        };
        webhook.wait_ready().await?;
        Ok(webhook)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where the API server finds a path of it, as `clientConfig` says it.
    #[must_use]
    pub fn client_config(&self, path: &str) -> Value {
        let bundle = ByteString(self.authority.pem().as_bytes().to_vec());
        json!({"url": format!("{}{path}", self.reviews), "caBundle": bundle})
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// When it ends, or is not ready after a minute.
    pub async fn wait_ready(&self) -> Result<()> {
        let what = format!("{} is ready", self.process.name());
        let ready = eventually(what, Duration::from_mins(1), async || {
            match self.probe("/readyz").await? {
                (200, _) => Ok(()),
                (status, body) => Err(NotYet::new(format!("{status} {body}"))),
            }
        });
        self.process.alive_while(ready).await
    }

    /// Status and text of a path of its plain port.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn probe(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("{}{path}", self.probes);
        let answer = crate::http_client()?.get(url).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The sum of those samples of a metric whose labels contain each of `labels`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let (_, text) = self.probe("/metrics").await?;
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        Ok(samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// Stops it (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// When it has not ended after 30 seconds.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.process.stop(Duration::from_secs(30)).await
    }
}

/// Puts a replica's certificate into a Secret of its own, and answers its name.
async fn store(
    cluster: &Cluster,
    name: &str,
    folder: &Path,
    authority: &Authority,
) -> Result<String> {
    let read = |file: &str| {
        let path = folder.join(file);
        std::fs::read_to_string(&path).trying(format_args!("read {}", path.display()))
    };
    let secret = format!("webhook-{name}-tls");
    let data = json!({
        "tls.crt": read("tls.crt")?, "tls.key": read("tls.key")?, "ca.crt": authority.pem(),
    });
    let object: Secret = serde_json::from_value(json!({
        "metadata": {"name": secret}, "type": "kubernetes.io/tls", "stringData": data,
    }))?;
    Api::<Secret>::namespaced(cluster.client(), NAMESPACE)
        .create(&PostParams::default(), &object)
        .await?;
    Ok(secret)
}

/// Writes a kubeconfig of an account with the webhook's rights, and answers its path.
async fn account(cluster: &Cluster, folder: &Path) -> Result<String> {
    let client = cluster.client();
    operator::create_namespace(&client, NAMESPACE).await?;
    let rules = json!([
        {"apiGroups": ["asya.sh"], "resources": ["asyncactors"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]},
    ]);
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    // Scenarios share them: all apply the same.
    let params = PatchParams::apply("asya-tests").force();
    accounts
        .patch(NAME, &params, &Patch::Apply(account))
        .await?;
    Api::<ClusterRole>::all(client.clone())
        .patch(NAME, &params, &Patch::Apply(role))
        .await?;
    Api::<ClusterRoleBinding>::all(client)
        .patch(NAME, &params, &Patch::Apply(binding))
        .await?;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(NAME, &PostParams::default(), &request)
        .await?;
    let token = answer.status.map(|status| status.token);
    let token = token.ok_or_else(|| Error::other("the API server gave no token"))?;
    let kubeconfig = folder.join("kubeconfig");
    let authority = cluster.folder().join("ca.crt");
    write_kubeconfig(&kubeconfig, &cluster.state().api_server, &authority, &token)?;
    Ok(kubeconfig.display().to_string())
}
