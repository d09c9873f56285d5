//! Where a running cluster is: written by who runs it, read by who uses it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Trying};

/// The variable that names the state file of the cluster to test on.
pub const STATE_VARIABLE: &str = "ASYA_TEST_CLUSTER";

/// Addresses, files and process ids of a running cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The process that runs the cluster and ends it.
    pub owner: u32,
    /// Everything that the cluster writes.
    pub folder: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// `https://127.0.0.1:PORT`.
    pub api_server: String,
    /// The programs of the control plane: kubectl among them.
    pub control_plane: PathBuf,
    /// helm, kwok, kubeconform.
    pub tools: PathBuf,
    /// The broker, if it runs.
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

/// Where RabbitMQ is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RabbitMqState {
    /// 127.0.0.1, or the address of a real node, where pods reach it.
    pub host: String,
    /// AMQP.
    pub port: u16,
    /// The management API.
    pub management_port: u16,
    /// The management API by TLS.
    pub management_tls_port: u16,
    /// Certificate of the authority that its certificate is of.
    pub ca: PathBuf,
    /// The management API's access log.
    pub access_log: PathBuf,
    /// The virtual host of this cluster.
    pub vhost: String,
    /// The user of this cluster's operator; its password is that of all of them.
    pub user: String,
}

/// What `helm install` made, and our processes that stand for its pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorState {
    /// Where the chart is installed.
    pub namespace: String,
    /// The chart's `ServiceAccount`.
    pub service_account: String,
    /// One process for each instance of the controller.
    pub instances: Vec<InstanceState>,
    /// One process for each replica of the webhook.
    pub webhooks: Vec<InstanceState>,
}

/// One process of the operator's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceState {
    /// Its `POD_NAME`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// `http://127.0.0.1:PORT` of `/healthz` and `/readyz`.
    pub health: String,
    /// `http://127.0.0.1:PORT` of `/metrics`.
    pub metrics: String,
    /// Its output.
    pub log: PathBuf,
}

impl State {
    /// Reads a state file.
    ///
    /// # Errors
    /// When it is not there or not one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).trying(format_args!("read {}", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The cluster that [`STATE_VARIABLE`] names.
    ///
    /// # Errors
    /// When none is named: one line with the command that starts one.
    pub fn from_env() -> Result<Self> {
        let Some(path) = std::env::var_os(STATE_VARIABLE) else {
            return Err(Error::Missing(format!(
                "{STATE_VARIABLE} is not set: scenarios run by `make test-scenarios` (or `asya-cluster run -- COMMAND`)"
            )));
        };
        Self::read(Path::new(&path))
    }

    /// Writes a state file, complete or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, serde_json::to_vec_pretty(self)?)
            .trying(format_args!("write {}", unfinished.display()))?;
        std::fs::rename(&unfinished, path).trying(format_args!("write {}", path.display()))
    }
}
