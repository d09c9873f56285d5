//! The operator as a user installs it: the chart by helm, and for the pods of
//! its Deployment our own processes, run exactly as the Deployment says.

mod command;
mod instance;

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, PodSpec, Secret, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

pub use self::instance::{Instance, Launch};
use crate::cluster::{Cluster, OperatorState};
use crate::error::{Error, Result, Trying};
use crate::process::{self, Spec};
use crate::rabbitmq::OPERATOR_PASSWORD;

/// What the operator's calls of RabbitMQ say that they come from, less its version.
pub const OPERATOR_AGENT: &str = "asya-operator/";

/// The variable that names the folder of our binaries.
pub const BIN_VARIABLE: &str = "ASYA_BIN_DIR";

/// The Secret with RabbitMQ's password, in the operator's namespace, in
/// `default`, and in that of each scenario.
pub const RABBITMQ_SECRET: &str = "rabbitmq-secret";

/// The Secret with the keys for the SQS server, as `default_values` names it.
pub const SQS_SECRET: &str = "sqs-secret";

const RELEASE: &str = "asya-operator";
const NAMESPACE: &str = "asya-system";
/// Longer than any run.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// An installed operator; its instances are started one by one.
pub struct Operator {
    cluster: Cluster,
    service_account: String,
    pod: PodSpec,
    bin: PathBuf,
}

impl Operator {
    /// Installs the chart with these values on top of [`default_values`].
    ///
    /// # Errors
    /// When the binaries are not built, or helm refuses.
    pub async fn install(cluster: &Cluster, values: Value) -> Result<Self> {
        let client = cluster.client();
        create_namespace(&client, NAMESPACE).await?;
        // `default` is where people try things.
        for namespace in [NAMESPACE, "default"] {
            create_broker_secrets(&client, namespace).await?;
        }
        let mut merged = default_values(cluster);
        merge(&mut merged, values);
        let file = cluster.folder().join("values.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&merged)?)
            .trying(format_args!("write {}", file.display()))?;
        let helm = cluster.state().tools.join("helm");
        let helm = Spec::new("helm", helm)
            .args(["upgrade", "--install", RELEASE])
            .arg(chart().display())
            .args(["--namespace", NAMESPACE, "--values"])
            .arg(file.display())
            .env("KUBECONFIG", cluster.state().kubeconfig.display())
            .env("GOGC", "off")
            .env("HOME", cluster.folder().display());
        process::output(helm).await?;
        Self::installed(cluster).await
    }

    /// The operator that is installed on this cluster.
    ///
    /// # Errors
    /// When there is none, or the binaries are not built.
    pub async fn installed(cluster: &Cluster) -> Result<Self> {
        let bin = bin_folder()?;
        let deployment = Api::<Deployment>::namespaced(cluster.client(), NAMESPACE)
            .get(RELEASE)
            .await?;
        let pod = deployment
            .spec
            .and_then(|spec| spec.template.spec)
            .ok_or_else(|| Error::other("the chart's Deployment has no pod"))?;
        let service_account = pod
            .service_account_name
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        Ok(Self {
            cluster: cluster.clone(),
            service_account,
            pod,
            bin,
        })
    }

    /// Starts an instance and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or does not become ready.
    pub async fn start(&self, name: &str) -> Result<Instance> {
        let instance = self.launch(name, Launch::default()).await?;
        instance.wait_ready().await?;
        Ok(instance)
    }

    /// Starts an instance in a way of the test's own and waits for nothing.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn launch(&self, name: &str, launch: Launch) -> Result<Instance> {
        let folder = self.cluster.folder().join(format!("operator-{name}"));
        std::fs::create_dir_all(&folder).trying(format_args!("make {}", folder.display()))?;
        let kubeconfig = folder.join("kubeconfig");
        let server = launch
            .server
            .as_deref()
            .unwrap_or(&self.cluster.state().api_server);
        let authority = self.cluster.folder().join("ca.crt");
        let token = self.token().await?;
        crate::cluster::write_kubeconfig(&kubeconfig, server, &authority, &token)?;
        let host = command::Host {
            client: self.cluster.client(),
            namespace: NAMESPACE,
            pod_name: name,
            folder: &folder,
            bin: &self.bin,
        };
        let command = command::from_pod(&self.pod, "manager", &host).await?;
        let spec = launch
            .program(&format!("operator {name}"), &command.program, &folder)
            .args(command.args)
            .args(launch.args)
            .log(folder.join("log"))
            .env("RUST_BACKTRACE", "1")
            .env("KUBECONFIG", kubeconfig.display());
        let spec = command
            .env
            .into_iter()
            .chain(launch.env)
            .fold(spec, |spec, (name, value)| spec.env(name, value));
        Instance::start(name, spec, &command.listening, token_id(&token)?).await
    }

    /// The namespace of the chart.
    #[must_use]
    pub fn namespace(&self) -> &str {
        NAMESPACE
    }

    /// The user that its writes have in the audit log.
    #[must_use]
    pub fn user(&self) -> String {
        user(NAMESPACE, &self.service_account)
    }

    /// What others need to know of it.
    #[must_use]
    pub fn state(&self, instances: &[Instance]) -> OperatorState {
        OperatorState {
            namespace: NAMESPACE.to_owned(),
            service_account: self.service_account.clone(),
            instances: instances.iter().map(Instance::state).collect(),
        }
    }

    async fn token(&self) -> Result<String> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.cluster.client(), NAMESPACE);
        let answer = accounts
            .create_token_request(&self.service_account, &PostParams::default(), &request)
            .await?;
        answer
            .status
            .map(|status| status.token)
            .ok_or_else(|| Error::other("the API server gave no token"))
    }
}

/// The id of a token: the claim `jti`, by which the audit log tells tokens apart.
fn token_id(token: &str) -> Result<String> {
    let claims = token.split('.').nth(1).unwrap_or_default();
    let mut base64 = claims.replace('-', "+").replace('_', "/");
    while !base64.len().is_multiple_of(4) {
        base64.push('=');
    }
    let claims: ByteString = serde_json::from_value(Value::String(base64))?;
    let claims: Value = serde_json::from_slice(&claims.0)?;
    let id = claims["jti"]
        .as_str()
        .ok_or_else(|| Error::other("the token has no id"))?;
    Ok(id.to_owned())
}

/// A `ServiceAccount`'s user name.
pub(crate) fn user(namespace: &str, service_account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{service_account}")
}

/// Values by which the operator reaches the cluster's brokers: RabbitMQ as `rabbitmq` and, with queues that
/// their users make, as `theirs`; SQS as `sqs`.
#[must_use]
pub fn default_values(cluster: &Cluster) -> Value {
    let state = cluster.state();
    let mut transports = json!({});
    if let Some(rabbitmq) = &state.rabbitmq {
        let mut values = json!({
            "enabled": true,
            "type": "rabbitmq",
            "config": {
                "host": rabbitmq.host,
                "port": rabbitmq.port,
                "username": rabbitmq.user,
                "passwordSecretRef": {"name": RABBITMQ_SECRET, "key": "password"},
                "management": {"port": rabbitmq.management_port},
            },
        });
        if rabbitmq.vhost != "/" {
            values["config"]["vhost"] = json!(rabbitmq.vhost);
        }
        transports["theirs"] = values.clone();
        transports["theirs"]["config"]["queues"] = json!({"autoCreate": false});
        transports["rabbitmq"] = values;
    }
    if let Some(endpoint) = &state.sqs {
        let key = |key| json!({"name": SQS_SECRET, "key": key});
        transports["sqs"] = json!({
            "enabled": true,
            "type": "sqs",
            "config": {
                "region": "us-east-1",
                "endpoint": endpoint,
                "credentials": {"accessKeyIdSecretRef": key("id"), "secretAccessKeySecretRef": key("key")},
            },
        });
    }
    json!({"transports": transports})
}

/// Lays `over` on `base`: objects are merged, everything else is replaced.
pub fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    ignore_existing(
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await,
    )
}

/// Makes the Secrets with the brokers' credentials in a namespace.
///
/// # Errors
/// When the API server refuses.
pub async fn create_broker_secrets(client: &Client, namespace: &str) -> Result<()> {
    let secrets = [
        (RABBITMQ_SECRET, json!({"password": OPERATOR_PASSWORD})),
        (SQS_SECRET, json!({"id": "test", "key": "test"})),
    ];
    for (name, data) in secrets {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name},
            "stringData": data,
        }))?;
        let api = Api::namespaced(client.clone(), namespace);
        ignore_existing(api.create(&PostParams::default(), &secret).await)?;
    }
    Ok(())
}

fn ignore_existing<T>(created: kube::Result<T>) -> Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator")
}

/// The folder of our binaries: `$ASYA_BIN_DIR`, else the release or debug
/// folder of cargo's target folder.
///
/// # Errors
/// When they are not built: one line with the command that builds them.
pub fn bin_folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    std::env::var_os(BIN_VARIABLE)
        .map(PathBuf::from)
        .into_iter()
        .chain([target.join("release"), target.join("debug")])
        .find(|folder| folder.join("asya-controller").exists())
        .ok_or_else(|| {
            Error::Missing(format!(
                "asya-controller is not built: run `cargo build --release -p asya-controller`, or set {BIN_VARIABLE} to its folder"
            ))
        })
}

#[cfg(test)]
mod tests;
