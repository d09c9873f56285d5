//! The operator as a user installs it: helm installs the chart, and our processes stand in for the pods of its
//! Deployments, with the commands, environment and mounts that the Deployments specify.

mod instance;
mod program;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

pub use self::instance::{Instance, Launch};
pub(crate) use self::program::Program;
use crate::cluster::{Cluster, OperatorState};
use crate::error::{Error, Result};
use crate::helm::Helm;
use crate::rabbitmq::OPERATOR_PASSWORD;
use crate::real;

/// The `User-Agent` of the operator's RabbitMQ requests, without the version.
pub const OPERATOR_AGENT: &str = "asya-operator/";

/// The variable that holds the folder of our binaries.
pub const BIN_VARIABLE: &str = "ASYA_BIN_DIR";

/// The Secret with RabbitMQ's password, in the operator's namespace, in `default`, and in each scenario's namespace.
pub const RABBITMQ_SECRET: &str = "rabbitmq-secret";

/// The Secret with the credentials for the SQS server, as named in `default_values`.
pub const SQS_SECRET: &str = "sqs-secret";

pub(crate) const RELEASE: &str = "asya-operator";
pub(crate) const NAMESPACE: &str = "asya-system";
/// The operator's programs.
pub(crate) const PROGRAMS: [&str; 2] = ["asya-controller", "asya-webhook"];

/// An installed operator, whose instances are started one by one.
#[derive(Clone)]
pub struct Operator {
    cluster: Cluster,
    controller: Arc<Program>,
    webhook: Option<Arc<Program>>,
    bin: PathBuf,
}

impl Operator {
    /// Installs the chart with these values merged over [`default_values`].
    ///
    /// # Errors
    /// When the binaries are not built, or helm fails.
    pub async fn install(cluster: &Cluster, values: Value) -> Result<Self> {
        prepare(cluster).await?;
        // The API server validates objects itself; helm would first fetch the OpenAPI document of the whole cluster.
        let command = ["upgrade", "--install", "--disable-openapi-validation"];
        Helm::four(cluster).with_chart(&command, values).await?;
        Self::installed(cluster).await
    }

    /// Returns the operator that is installed on this cluster.
    ///
    /// # Errors
    /// When the operator is not installed, or the binaries are not built.
    pub async fn installed(cluster: &Cluster) -> Result<Self> {
        let controller = Program::read(cluster, RELEASE, "operator", "manager").await?;
        let name = format!("{RELEASE}-webhook");
        Ok(Self {
            controller: controller.ok_or_else(|| Error::other("the chart is not installed"))?,
            webhook: Program::read(cluster, &name, "webhook", "webhook").await?,
            cluster: cluster.clone(),
            bin: bin_folder()?,
        })
    }

    /// The same installation with the programs in another folder.
    #[must_use]
    pub fn with_programs(self, bin: &Path) -> Self {
        let bin = bin.to_owned();
        Self { bin, ..self }
    }

    /// Waits until the rollout of the chart's Deployments is complete; needs a real node.
    ///
    /// # Errors
    /// When a rollout does not complete.
    pub async fn rolled_out(&self) -> Result<()> {
        let webhook = format!("{RELEASE}-webhook");
        let webhook = self.webhook.as_ref().map(|_| webhook.as_str());
        for name in [RELEASE].into_iter().chain(webhook) {
            let deployment = format!("deployment/{name}");
            let args = ["rollout", "status", &deployment, "--timeout=90s"];
            let args = [&["--namespace", NAMESPACE], args.as_slice()].concat();
            self.cluster.kubectl(&args).await?;
        }
        Ok(())
    }

    /// Starts an instance and waits until it is ready.
    ///
    /// # Errors
    /// When the instance exits or does not become ready.
    pub async fn start(&self, name: &str) -> Result<Instance> {
        let instance = self.launch(name, Launch::default()).await?;
        instance.wait_ready().await?;
        Ok(instance)
    }

    /// Starts an instance with these overrides, without waiting for readiness.
    ///
    /// # Errors
    /// When the instance cannot be started.
    pub async fn launch(&self, name: &str, launch: Launch) -> Result<Instance> {
        let (cluster, bin) = (&self.cluster, &self.bin);
        self.controller.launch(cluster, bin, name, launch).await
    }

    /// Starts a webhook replica with these overrides, without waiting for readiness. It gets no reviews until
    /// [`Webhook`](crate::webhook::Webhook) routes them.
    ///
    /// # Errors
    /// When the replica cannot be started, or the chart installs no webhook.
    pub async fn launch_webhook(&self, name: &str, launch: Launch) -> Result<Instance> {
        let (cluster, bin) = (&self.cluster, &self.bin);
        self.webhook()?.launch(cluster, bin, name, launch).await
    }

    /// The installed webhook.
    pub(crate) fn webhook(&self) -> Result<&Program> {
        let installed = self.webhook.as_deref();
        installed.ok_or_else(|| Error::other("the chart installs no webhook"))
    }

    /// The cluster on which the operator is installed.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The namespace of the chart.
    #[must_use]
    pub fn namespace(&self) -> &str {
        NAMESPACE
    }

    /// The user of the operator's writes in the audit log.
    #[must_use]
    pub fn user(&self) -> String {
        user(NAMESPACE, &self.controller.service_account)
    }

    /// The operator's part of the cluster's state file.
    #[must_use]
    pub fn state(&self, instances: &[Instance], replicas: &[Instance]) -> OperatorState {
        let states = |all: &[Instance]| all.iter().map(Instance::state).collect();
        OperatorState {
            namespace: NAMESPACE.to_owned(),
            service_account: self.controller.service_account.clone(),
            instances: states(instances),
            webhooks: states(replicas),
        }
    }
}

/// The id of a token: the claim `jti`, by which the audit log distinguishes tokens.
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

/// The user name of a `ServiceAccount`.
pub(crate) fn user(namespace: &str, service_account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{service_account}")
}

/// Values for the cluster's brokers: RabbitMQ as `rabbitmq` and, with queues that users manage, as `theirs`; SQS as
/// `sqs`.
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
    // Short, so that five consecutive conflicts with their backoff take less than half a minute.
    let mut values = json!({"transports": transports, "controller": {"conflictWait": "1s"}});
    if state.real {
        let (repository, tag) = real::OPERATOR_IMAGE;
        values["image"] = json!({"repository": repository, "tag": tag});
        values["binding"] = json!({"runtimeImage": real::PYTHON_IMAGE});
    }
    values
}

/// Values with which the webhook rejects no actor, for scenarios about how the controller reports invalid ones.
#[must_use]
pub fn unvalidated() -> Value {
    json!({"webhook": {"validation": {"mode": "Off"}}})
}

/// Values that scenarios share. Periodic queue checks are off, since some scenarios count the operator's requests to
/// the broker.
#[must_use]
pub fn of_all_scenarios() -> Value {
    let mut values = unvalidated();
    let never = json!({"controller": {"queueHealthCheckInterval": "0"}});
    merge(&mut values, never);
    values
}

/// Merges `over` into `base`: objects recursively, everything else is replaced.
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

/// Creates what the chart expects: its namespace, and the brokers' Secrets there and in `default`, where users try
/// things out.
///
/// # Errors
/// When the API server rejects a request.
pub async fn prepare(cluster: &Cluster) -> Result<()> {
    let client = cluster.client();
    create_namespace(&client, NAMESPACE).await?;
    for namespace in [NAMESPACE, "default"] {
        create_broker_secrets(&client, namespace).await?;
    }
    Ok(())
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

/// Creates the Secrets with the brokers' credentials in a namespace.
///
/// # Errors
/// When the API server rejects a request.
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

/// Returns the folder of our binaries: `$ASYA_BIN_DIR`, else the release or debug folder of cargo's target folder,
/// whichever was built last.
///
/// # Errors
/// When the binaries are not built: one line with the command that builds them.
pub fn bin_folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    let has_programs = |folder: &PathBuf| PROGRAMS.iter().all(|name| folder.join(name).exists());
    let built = |folder: &PathBuf| folder.join(PROGRAMS[0]).metadata()?.modified();
    std::env::var_os(BIN_VARIABLE)
        .map(PathBuf::from)
        .filter(has_programs)
        .or_else(|| {
            // The other folder may be from an older tree.
            [target.join("release"), target.join("debug")]
                .into_iter()
                .filter(has_programs)
                .max_by_key(|folder| built(folder).ok())
        })
        .ok_or_else(|| {
            Error::Missing(format!(
                "asya-controller and asya-webhook are not built: run `make programs`, or set {BIN_VARIABLE} to their folder"
            ))
        })
}

#[cfg(test)]
mod tests;
