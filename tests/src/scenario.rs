//! A scenario: a namespace of its own on the shared cluster.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use crate::cluster::{Cluster, State};
use crate::error::{Error, Result, Trying};
use crate::eventually::{NotYet, check, eventually};
use crate::operator;
use crate::process::{self, Spec};
use crate::real;
use crate::turn::{self, Stopwatch};

/// `kubectl delete` waits for finalizers without end. The longest that a scenario waits for on purpose is shorter.
const KUBECTL: Duration = Duration::from_mins(4);

/// What a scenario's body gets.
pub struct Scenario {
    cluster: Cluster,
    namespace: String,
    suffix: String,
}

impl Scenario {
    /// Runs a scenario on the cluster that the environment names, in a fresh
    /// namespace with the Secrets of the brokers, and removes that afterwards.
    ///
    /// # Panics
    /// When the body fails or panics, as a test must. What the operator
    /// logged about the namespace is printed.
    pub async fn run<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let _turn = turn::beside_others().await;
        let _stopwatch = Stopwatch::start();
        Self::run_on(shared_cluster(), name, body).await;
    }

    /// The same for what waits for minutes and does little meanwhile: it may run beside what is timed, which would
    /// otherwise keep everything else waiting for it.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_patiently<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let _stopwatch = Stopwatch::start();
        Self::run_on(shared_cluster(), name, body).await;
    }

    /// The same while nobody else uses that cluster: something is timed.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_alone<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let _turn = turn::quiet().await;
        let _stopwatch = Stopwatch::start();
        Self::run_on(shared_cluster(), name, body).await;
    }

    /// The same on a cluster of the scenario's own.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_on<F>(cluster: Result<Cluster>, name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let entered = async { Self::enter(cluster?, name).await };
        let scenario = match entered.await {
            Ok(scenario) => scenario,
            Err(error) => {
                // One line: it tells what to do, a backtrace does not.
                eprintln!("{error}");
                std::panic::resume_unwind(Box::new(error.to_string()));
            }
        };
        let outcome = AssertUnwindSafe(body(&scenario)).catch_unwind().await;
        let failure: Option<Box<dyn Any + Send>> = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                eprintln!("{name}: {error}");
                Some(Box::new(error.to_string()))
            }
            Err(panic) => Some(panic),
        };
        if failure.is_some() {
            scenario.print_operator_log();
            if scenario.cluster.state().real {
                real::tell(&scenario).await;
            }
        }
        let namespaces = Api::<Namespace>::all(scenario.client());
        match namespaces
            .delete(&scenario.namespace, &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => eprintln!("{name}: namespace {} stays: {error}", scenario.namespace),
            Ok(_) => {}
        }
        if let Some(failure) = failure {
            // The hook has already printed a panic; an error is printed above.
            std::panic::resume_unwind(failure);
        }
    }

    async fn enter(cluster: Cluster, name: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let suffix = format!(
            "{:x}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let namespace = format!("{name}-{suffix}");
        operator::create_namespace(&cluster.client(), &namespace).await?;
        operator::create_broker_secrets(&cluster.client(), &namespace).await?;
        let scenario = Self {
            cluster,
            namespace,
            suffix,
        };
        // Without it pods are refused, and controllers back off.
        eventually(
            "the namespace has its ServiceAccount",
            Duration::from_secs(30),
            async || {
                scenario.api::<ServiceAccount>().get("default").await?;
                Ok(())
            },
        )
        .await?;
        Ok(scenario)
    }

    /// The shared cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// This scenario's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A name that no other scenario uses: queues are the whole broker's.
    #[must_use]
    pub fn name(&self, base: &str) -> String {
        format!("{base}-{}", self.suffix)
    }

    /// The objects of a kind in this scenario's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: k8s_openapi::Resource<Scope = NamespaceResourceScope>
            + Metadata<Ty = kube::api::ObjectMeta>
            + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// The actors in this scenario's namespace, as JSON: what the API server
    /// has, not what our types make of it.
    #[must_use]
    pub fn actors(&self) -> Api<DynamicObject> {
        let kind = kube::core::GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
        let resource = ApiResource::from_gvk_with_plural(&kind, "asyncactors");
        Api::namespaced_with(self.client(), &self.namespace, &resource)
    }

    /// Runs kubectl in this scenario's namespace and returns its output.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster
            .kubectl(&[&["--namespace", &self.namespace], args].concat())
            .await
    }

    /// `kubectl apply` of a manifest.
    ///
    /// # Errors
    /// When it is refused, with the API server's words.
    pub async fn apply(&self, manifest: &Value) -> Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = self
            .cluster
            .folder()
            .join(format!("{}-{number}.json", self.namespace));
        std::fs::write(&file, serde_json::to_vec(manifest)?)
            .trying(format_args!("write {}", file.display()))?;
        self.kubectl(&["apply", "--filename", &file.display().to_string()])
            .await
            .map(drop)
    }

    /// Waits until an actor is gone, its finalizer done.
    ///
    /// # Errors
    /// After the timeout, with the status seen last.
    pub async fn actor_gone(&self, actor: &str, timeout: Duration) -> Result<()> {
        let actors = self.actors();
        eventually(
            format_args!("actor {actor} is gone"),
            timeout,
            async || match actors.get_opt(actor).await? {
                None => Ok(()),
                Some(found) => Err(NotYet::new(format!("status {}", found.data["status"]))),
            },
        )
        .await
    }

    /// Waits until an actor's `.status.status` is this.
    ///
    /// # Errors
    /// After the timeout, with the status seen last.
    pub async fn actor_status(
        &self,
        actor: &str,
        status: &str,
        timeout: Duration,
    ) -> Result<DynamicObject> {
        let actors = self.actors();
        eventually(
            format_args!("actor {actor} is {status}"),
            timeout,
            async || {
                let found = actors.get(actor).await?;
                let seen = &found.data["status"];
                if seen["status"] == status {
                    Ok(found)
                } else {
                    Err(NotYet::new(format!("status {seen}")))
                }
            },
        )
        .await
    }

    /// Waits until an Event of this reason stands in the namespace, and answers what it says.
    ///
    /// # Errors
    /// After the timeout.
    pub async fn event(&self, reason: &str, timeout: Duration) -> Result<String> {
        let selector = format!("--field-selector=reason={reason}");
        let messages = "--output=jsonpath={.items[*].message}";
        eventually(format_args!("an Event {reason}"), timeout, async || {
            let found = self.kubectl(&["get", "events", messages, &selector]).await;
            let found = found.map_err(NotYet::new)?;
            check(!found.trim().is_empty(), "none")?;
            Ok(found)
        })
        .await
    }

    fn print_operator_log(&self) {
        let instances = self
            .cluster
            .state()
            .operator
            .iter()
            .flat_map(|operator| operator.instances.iter().chain(&operator.webhooks));
        for instance in instances {
            let log = std::fs::read(&instance.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let about: Vec<&str> = log
                .lines()
                .filter(|line| line.contains(&self.namespace))
                .collect();
            eprintln!("{} logged about {}:", instance.name, self.namespace);
            for line in &about[about.len().saturating_sub(40)..] {
                eprintln!("  {line}");
            }
        }
    }
}

fn shared_cluster() -> Result<Cluster> {
    State::from_env().and_then(Cluster::connect)
}

impl Cluster {
    /// Runs kubectl as the administrator and returns its output.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let state = self.state();
        let kubectl = Spec::new("kubectl", state.control_plane.join("kubectl"))
            .args(args)
            .env("KUBECONFIG", state.kubeconfig.display())
            // So short a life needs no garbage collection, which is a third of what it does.
            .env("GOGC", "off")
            // Its discovery cache must not survive a cluster on the same port.
            .env("HOME", state.folder.display());
        let output = timeout(KUBECTL, process::output(kubectl)).await;
        let late = |_| {
            let command = args.join(" ");
            Error::Other(format!("kubectl {command}: not done after {KUBECTL:?}"))
        };
        output
            .map_err(late)?
            .map_err(|error| Error::Other(error.to_string().trim().to_owned()))
    }
}
