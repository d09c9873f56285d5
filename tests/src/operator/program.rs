//! A Deployment of the chart, whose pods are processes on this host.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{PodSpec, ServiceAccount};
use kube::Api;
use kube::api::PostParams;

use super::instance::{Instance, Launch};
use super::{NAMESPACE, token_id};
use crate::cluster::{Cluster, write_kubeconfig};
use crate::command;
use crate::error::{Context, Error, Result};

/// Longer than any test run.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// The controller or the webhook, as the chart runs it.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Its name in messages and folder names.
    what: &'static str,
    container: &'static str,
    pub(super) pod: PodSpec,
    /// The labels of its pods.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) replicas: usize,
    pub(super) service_account: String,
}

impl Program {
    /// Reads the Deployment with this name; `None` if it is not installed.
    pub(super) async fn read(
        cluster: &Cluster,
        name: &str,
        what: &'static str,
        container: &'static str,
    ) -> Result<Option<Arc<Self>>> {
        let deployments = Api::<Deployment>::namespaced(cluster.client(), NAMESPACE);
        let Some(spec) = deployments.get_opt(name).await?.and_then(|it| it.spec) else {
            return Ok(None);
        };
        let pod = spec.template.spec;
        let pod = pod.ok_or_else(|| Error::Other(format!("Deployment {name} has no pod")))?;
        let account = pod.service_account_name.as_deref().unwrap_or("default");
        Ok(Some(Arc::new(Self {
            what,
            container,
            labels: spec
                .template
                .metadata
                .and_then(|it| it.labels)
                .unwrap_or_default(),
            replicas: spec.replicas.and_then(|it| it.try_into().ok()).unwrap_or(1),
            service_account: account.to_owned(),
            pod,
        })))
    }

    /// The number of a named container port.
    pub(crate) fn port(&self, name: &str) -> Option<u16> {
        let container = self
            .pod
            .containers
            .iter()
            .find(|it| it.name == self.container)?;
        let port = container
            .ports
            .iter()
            .flatten()
            .find(|it| it.name.as_deref() == Some(name))?;
        port.container_port.try_into().ok()
    }

    /// Starts a process for one of the pods, without waiting for readiness.
    pub(super) async fn launch(
        &self,
        cluster: &Cluster,
        bin: &Path,
        name: &str,
        launch: Launch,
    ) -> Result<Instance> {
        let title = format!("{} {name}", self.what);
        let folder = cluster.folder().join(title.replace(' ', "-"));
        std::fs::create_dir_all(&folder).context(format_args!("make {}", folder.display()))?;
        let kubeconfig = folder.join("kubeconfig");
        let server = launch
            .server
            .as_deref()
            .unwrap_or(&cluster.state().api_server);
        let authority = cluster.folder().join("ca.crt");
        let token = self.token(cluster).await?;
        write_kubeconfig(&kubeconfig, server, &authority, &token)?;
        let host = command::Host {
            client: cluster.client(),
            namespace: NAMESPACE,
            pod_name: name,
            folder: &folder,
            bin,
        };
        let command = Box::pin(command::from_pod(&self.pod, self.container, &host)).await?;
        let spec = launch
            .program(&title, &command.program, &folder)
            .args(command.args)
            .args(launch.args)
            .log(folder.join("log"))
            .env("RUST_BACKTRACE", "1")
            .env("KUBECONFIG", kubeconfig.display());
        let env = command.env.into_iter().chain(launch.env);
        let spec = env.fold(spec, |spec, (name, value)| spec.env(name, value));
        Instance::start(name, spec, command.listening, token_id(&token)?).await
    }

    /// Requests a token for the `ServiceAccount`.
    async fn token(&self, cluster: &Cluster) -> Result<String> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(cluster.client(), NAMESPACE);
        let answer = accounts
            .create_token_request(&self.service_account, &PostParams::default(), &request)
            .await?;
        let token = answer.status.map(|status| status.token);
        token.ok_or_else(|| Error::other("the API server gave no token"))
    }
}
