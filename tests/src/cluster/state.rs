//! The state file of a running cluster, written by the process that runs it and read by its clients.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};

/// The variable that holds the path of the state file of the cluster to test on.
pub const STATE_VARIABLE: &str = "ASYA_TEST_CLUSTER";

/// Addresses, files and process ids of a running cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The process that runs the cluster and shuts it down.
    pub owner: u32,
    /// The folder for everything that the cluster writes.
    pub folder: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// `https://127.0.0.1:PORT`.
    pub api_server: String,
    /// The folder of the control plane's programs and kubectl.
    pub control_plane: PathBuf,
    /// The folder of helm, kwok and kubeconform.
    pub tools: PathBuf,
    /// RabbitMQ, if it runs.
    pub rabbitmq: Option<RabbitMqState>,
    /// The SQS server's URL, if it runs.
    pub sqs: Option<String>,
    /// Whether KEDA runs.
    #[serde(default)]
    pub keda: bool,
    /// Whether pods are real.
    #[serde(default)]
    pub real: bool,
    /// The operator, if it was installed.
    pub operator: Option<OperatorState>,
}

/// How to reach RabbitMQ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RabbitMqState {
    /// 127.0.0.1, or a real node's address, at which pods reach it.
    pub host: String,
    /// The AMQP port.
    pub port: u16,
    /// The management API's port.
    pub management_port: u16,
    /// The management API's TLS port.
    pub management_tls_port: u16,
    /// The AMQP port with TLS.
    #[serde(default)]
    pub tls_port: u16,
    /// The CA certificate that signed the server certificate.
    pub ca: PathBuf,
    /// The management API's access log.
    pub access_log: PathBuf,
    /// The virtual host of this cluster.
    pub vhost: String,
    /// The user of this cluster's operator; the password is the same for all clusters.
    pub user: String,
}

/// The installed chart, and the processes that stand in for its pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorState {
    /// The namespace of the chart.
    pub namespace: String,
    /// The chart's `ServiceAccount`.
    pub service_account: String,
    /// One process per controller instance.
    pub instances: Vec<InstanceState>,
    /// One process per webhook replica.
    pub webhooks: Vec<InstanceState>,
}

/// A process of the controller or the webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceState {
    /// Its `POD_NAME`.
    pub name: String,
    /// The process id.
    pub pid: u32,
    /// `http://127.0.0.1:PORT` of `/healthz` and `/readyz`.
    pub health: String,
    /// `http://127.0.0.1:PORT` of `/metrics`.
    pub metrics: String,
    /// The log file.
    pub log: PathBuf,
}

impl State {
    /// Reads a state file.
    ///
    /// # Errors
    /// When the file cannot be read or is not a state file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).context(format_args!("read {}", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Reads the state of the cluster named by [`STATE_VARIABLE`].
    ///
    /// # Errors
    /// When the variable is not set: one line with the command that starts a cluster.
    pub fn from_env() -> Result<Self> {
        let Some(path) = std::env::var_os(STATE_VARIABLE) else {
            return Err(Error::Missing(format!(
                "{STATE_VARIABLE} is not set: scenarios run by `make test-scenarios` (or `asya-cluster run -- COMMAND`)"
            )));
        };
        Self::read(Path::new(&path))
    }

    /// Writes a state file atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, serde_json::to_vec_pretty(self)?)
            .context(format_args!("write {}", unfinished.display()))?;
        std::fs::rename(&unfinished, path).context(format_args!("write {}", path.display()))
    }
}
