//! A cluster: [`RunningCluster`] runs one, [`Cluster`] is a handle to one.

mod control_plane;
mod egress;
mod kubernetes;
mod kwok;
mod state;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::select_all;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

pub use egress::{Backend, set_route};
pub use kwok::{CONTAINER, MODE};
pub use state::{InstanceState, OperatorState, RabbitMqState, STATE_VARIABLE, State};

use crate::audit::Audit;
use crate::build::{self, Component};
use crate::error::{Error, Result};
use crate::keda;
use crate::operator::{self, Instance, Operator};
use crate::process::{Folder, Process, Signal};
use crate::rabbitmq::{self, RabbitMq};
use crate::real;
use crate::scheduling;
use crate::sqs::{self, Sqs};
use crate::webhook::Webhook;

/// What a cluster runs besides Kubernetes.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something that a cluster has or has not"
)]
pub struct Options {
    /// RabbitMQ: a virtual host on the shared cluster named by [`STATE_VARIABLE`] if there is one, otherwise a server.
    pub rabbitmq: bool,
    /// Run RabbitMQ as this cluster's own server, which a test can stop.
    pub own_rabbitmq: bool,
    /// An SQS server.
    pub sqs: bool,
    /// KEDA.
    pub keda: bool,
    /// The number of fake nodes.
    pub nodes: u32,
    /// Add a real node, in the sandbox that this process runs in.
    pub real: bool,
    /// Enable the admission plugin `OwnerReferencesPermissionEnforcement`, as `OpenShift` does: changing an object's
    /// owner requires permission to delete the object, and blocking an owner's deletion requires permission to set its
    /// finalizers. The API server then rejects owners of a new kind for up to 30 s after its CRD is created.
    pub guards_owners: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rabbitmq: true,
            own_rabbitmq: false,
            sqs: false,
            keda: false,
            nodes: 2,
            real: false,
            guards_owners: false,
        }
    }
}

impl Options {
    /// The address on which brokers listen.
    fn host(self) -> &'static str {
        if self.real {
            real::ADDRESS
        } else {
            "127.0.0.1"
        }
    }
}

/// A handle to a running cluster: its addresses and an administrator's client.
#[derive(Clone)]
pub struct Cluster {
    state: Arc<State>,
    client: Client,
}

impl Cluster {
    /// Connects to the cluster described by a state file.
    ///
    /// # Errors
    /// When the cluster's CA certificate cannot be read.
    pub fn connect(state: State) -> Result<Self> {
        crate::install_crypto_provider();
        Ok(Self {
            client: control_plane::client(&state.api_server, &state.folder)?,
            state: Arc::new(state),
        })
    }

    /// Addresses, files and process ids of the cluster.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// An administrator's client for another address, such as a proxy's.
    ///
    /// # Errors
    /// When the client cannot be created.
    pub fn client_at(&self, server: &str) -> Result<Client> {
        control_plane::client(server, self.folder())
    }

    /// The folder of the cluster's files and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.state.folder
    }

    /// The API server's audit log.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.folder().join("audit.log"), self.client())
    }

    /// A client for RabbitMQ's management API, as administrator.
    ///
    /// # Errors
    /// When the cluster has no RabbitMQ.
    pub fn rabbitmq(&self) -> Result<RabbitMq> {
        let state = self.state.rabbitmq.as_ref();
        RabbitMq::new(state.ok_or_else(|| Error::other("this cluster has no RabbitMQ"))?)
    }

    /// A client for the SQS server.
    ///
    /// # Errors
    /// When the cluster has no SQS server.
    pub fn sqs(&self) -> Result<Sqs> {
        let endpoint = self.state.sqs.as_ref();
        Sqs::new(endpoint.ok_or_else(|| Error::other("this cluster has no SQS server"))?)
    }

    /// The user of the operator's writes in the audit log.
    ///
    /// # Errors
    /// When the cluster has no operator.
    pub fn operator_user(&self) -> Result<String> {
        let operator = self
            .state
            .operator
            .as_ref()
            .ok_or_else(|| Error::other("this cluster has no operator"))?;
        Ok(operator::user(
            &operator.namespace,
            &operator.service_account,
        ))
    }

    /// Routes a Service port to our processes.
    ///
    /// # Errors
    /// When the route cannot be written.
    pub fn set_route(
        &self,
        namespace: &str,
        service: &str,
        port: u16,
        backends: &[Backend],
    ) -> Result<()> {
        egress::set_route(self.folder(), namespace, service, port, backends)
    }
}

/// A cluster that this process runs; it is shut down when dropped.
pub struct RunningCluster {
    cluster: Cluster,
    instances: Vec<Instance>,
    webhook: Option<Webhook>,
    processes: Vec<Process>,
    _egress: egress::Egress,
    folder: Folder,
}

impl Deref for RunningCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl RunningCluster {
    /// Builds missing parts and starts a cluster.
    ///
    /// # Errors
    /// When a component cannot be built or does not start; the error contains the end of its log. Nothing is left
    /// running.
    pub async fn start(options: Options) -> Result<Self> {
        crate::install_crypto_provider();
        let control_plane_bin = build::ensure(Component::ControlPlane).await?;
        let tools = build::ensure(Component::Tools).await?;
        let shared = State::from_env().ok().and_then(|state| state.rabbitmq);
        let shared = shared.filter(|_| options.rabbitmq && !options.own_rabbitmq);
        let rabbitmq_bin = if options.rabbitmq && shared.is_none() {
            Some(build::ensure(Component::RabbitMq).await?)
        } else {
            None
        };
        let sqs_bin = if options.sqs {
            Some(build::ensure(Component::Sqs).await?)
        } else {
            None
        };

        if options.keda {
            build::ensure(Component::Keda).await?;
        }

        let _beside = scheduling::no_measurement().await;
        let folder = Folder::create("c")?;
        let (client_sender, client_receiver) = watch::channel(None);
        let egress = egress::listen(&folder, client_receiver, options.real)?;
        let host = options.host();
        let kubernetes = async {
            let programs = (control_plane_bin.as_path(), tools.as_path());
            Box::pin(kubernetes::start(programs, &folder, options, client_sender)).await
        };
        let broker = async {
            if let Some(shared) = &shared {
                let state = rabbitmq::server::add_virtual_host(shared).await?;
                return Ok(Some((state, Vec::new())));
            }
            match &rabbitmq_bin {
                Some(bin) => rabbitmq::server::start(bin, &folder, host).await.map(Some),
                None => Ok(None),
            }
        };
        let sqs = async {
            match &sqs_bin {
                Some(bin) => sqs::server::start(bin, &folder, host).await.map(Some),
                None => Ok(None),
            }
        };
        let (control_plane, broker, sqs) = tokio::try_join!(kubernetes, broker, sqs)?;
        let mut processes = control_plane.processes;
        let rabbitmq = broker.map(|(state, started)| {
            processes.extend(started);
            state
        });
        let sqs = sqs.map(|(url, process)| {
            processes.push(process);
            url
        });
        let state = State {
            owner: std::process::id(),
            folder: folder.path().to_owned(),
            kubeconfig: control_plane.kubeconfig,
            api_server: control_plane.api_server,
            control_plane: control_plane_bin,
            tools,
            rabbitmq,
            sqs,
            keda: false,
            real: options.real,
            operator: None,
        };
        let mut running = Self {
            cluster: Cluster {
                state: Arc::new(state),
                client: control_plane.client,
            },
            instances: Vec::new(),
            webhook: None,
            processes,
            _egress: egress,
            folder,
        };
        if options.keda {
            running.start_keda().await?;
        }
        Ok(running)
    }

    /// Builds KEDA if needed, then installs and starts it.
    ///
    /// # Errors
    /// When it cannot be built, installed or started.
    pub async fn start_keda(&mut self) -> Result<()> {
        let bin = build::ensure(Component::Keda).await?;
        let started = keda::start(&bin, &self.cluster).await?;
        self.processes.extend(started);
        self.set_keda(true);
        Ok(())
    }

    /// Uninstalls KEDA with its CRDs, which deletes every `ScaledObject`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn remove_keda(&mut self) -> Result<()> {
        let client = self.client();
        keda::unregister(&client).await?;
        keda::remove_crds(&client).await?;
        for name in [keda::ADAPTER, keda::OPERATOR] {
            self.process(name)?.kill().await;
        }
        self.processes
            .retain(|process| ![keda::ADAPTER, keda::OPERATOR].contains(&process.name()));
        self.set_keda(false);
        Ok(())
    }

    fn set_keda(&mut self, keda: bool) {
        let mut state = self.cluster.state().clone();
        state.keda = keda;
        self.cluster.state = Arc::new(state);
    }

    /// Installs the operator with these values. Without a real node, also starts one controller and the webhook's
    /// replicas.
    ///
    /// # Errors
    /// When the operator cannot be installed or does not become ready.
    pub async fn start_operator(&mut self, values: Value) -> Result<()> {
        let operator = Operator::install(&self.cluster, values).await?;
        if self.state().real {
            operator.rolled_out().await?;
            self.set_operator(operator.state(&[], &[]));
            return Ok(());
        }
        let instance = operator.start("asya-operator-0").await?;
        self.instances.push(instance);
        let webhook = self.webhook.insert(Webhook::start(&operator).await?);
        let state = operator.state(&self.instances, webhook.replicas());
        self.set_operator(state);
        Ok(())
    }

    fn set_operator(&mut self, operator: OperatorState) {
        let mut state = self.cluster.state().clone();
        state.operator = Some(operator);
        self.cluster.state = Arc::new(state);
    }

    /// The processes that stand in for the operator's pods.
    fn pods(&self) -> impl Iterator<Item = &Process> {
        let replicas = self.webhook.iter().flat_map(Webhook::replicas);
        self.instances.iter().chain(replicas).map(Instance::process)
    }

    /// Returns a process by its name (`kube-apiserver`, `rabbitmq`, …).
    ///
    /// # Errors
    /// When the cluster has no such process.
    pub fn process(&self, name: &str) -> Result<&Process> {
        let found = self.processes.iter().find(|process| process.name() == name);
        found.ok_or_else(|| Error::Other(format!("this cluster has no process {name}")))
    }

    /// Restarts a process that was killed or stopped.
    ///
    /// # Errors
    /// When the cluster has no such process, or it cannot be started.
    pub async fn restart(&mut self, name: &str) -> Result<()> {
        let found = self
            .processes
            .iter_mut()
            .find(|process| process.name() == name);
        let process =
            found.ok_or_else(|| Error::Other(format!("this cluster has no process {name}")))?;
        process.kill().await;
        *process = Process::start(process.spec().clone()).await?;
        Ok(())
    }

    /// Waits until a process of the cluster or an instance of the operator exits on its own.
    pub async fn death(&self) -> Error {
        let all = self.processes.iter().chain(self.pods());
        let waits: Vec<_> = all
            .map(|process| Box::pin(async move { process.death(process.wait().await) }))
            .collect();
        select_all(waits).await.0
    }

    /// Keeps the logs after the cluster is shut down.
    pub fn keep_logs(&mut self) {
        self.folder.keep();
    }
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        let all: Vec<&Process> = self.pods().chain(&self.processes).collect();
        for process in &all {
            process.signal(Signal::KILL);
        }
        // The supervisor's thread reaps the processes. The folder must not be removed while a process still writes to
        // it.
        let started = Instant::now();
        while all.iter().any(|process| process.exited().is_none())
            && started.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        // These take up most of a folder that is kept for its logs.
        for data in ["etcd", "rabbitmq/mnesia"] {
            let _ = std::fs::remove_dir_all(self.folder.join(data));
        }
    }
}

pub(crate) fn write_kubeconfig(
    path: &Path,
    server: &str,
    authority: &Path,
    token: &str,
) -> Result<()> {
    control_plane::write_json(path, &control_plane::kubeconfig(server, authority, token)?)
}
