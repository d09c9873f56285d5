//! A scenario: a test in its own namespace on the shared cluster.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Event, Namespace, ServiceAccount};
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::apply;
use crate::cluster::{Cluster, State};
use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, check, eventually};
use crate::operator;
use crate::process::{self, Folder, Spec};
use crate::real;
use crate::scheduling::{self, Shared, Stopwatch, Timed};

/// Timeout of kubectl, because `kubectl delete` waits for finalizers without one. Longer than any intended wait.
const KUBECTL: Duration = Duration::from_mins(4);

/// The context of a scenario's body.
pub struct Scenario {
    cluster: Cluster,
    namespace: String,
    suffix: String,
    slot: Mutex<Slot>,
    folder: OnceLock<Folder>,
}

/// What a scenario holds so that others may run on the cluster at the same time, but no measurement.
enum Slot {
    /// Nothing: it has its own cluster, is timed as a whole, or needs no slot.
    None,
    /// Its slot on the shared cluster.
    Shared(Shared),
    /// It is being timed, or was timed and ends after all others.
    Last(Timed),
}

impl Scenario {
    /// Runs a scenario on the cluster named by the environment, in a new namespace with the brokers' Secrets, and
    /// deletes the namespace afterwards.
    ///
    /// # Panics
    /// When the body fails or panics, as a test must. The operator's log lines about the namespace are printed.
    pub async fn run<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let slot = scheduling::shared_cluster().await;
        let _stopwatch = Stopwatch::start();
        Self::run_with(shared_cluster(), Slot::Shared(slot), name, body).await;
    }

    /// Like [`Self::run`], for scenarios that wait for minutes and are mostly idle. They may run beside timed
    /// scenarios: if those had to wait for them, everything queued behind would have to wait, too.
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

    /// Like [`Self::run`], after all other scenarios, beside a few that are also timed: on a busy machine a latency is
    /// meaningless.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_timed<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let _timed = scheduling::timed_at_the_end().await;
        let _stopwatch = Stopwatch::start();
        Self::run_on(shared_cluster(), name, body).await;
    }

    /// Like [`Self::run`], after all other scenarios and without any other on the cluster, for effects that others
    /// would notice.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_alone<F>(name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let _exclusive = scheduling::exclusive_at_the_end().await;
        let _stopwatch = Stopwatch::start();
        Self::run_on(shared_cluster(), name, body).await;
    }

    /// Like [`Self::run`], on the scenario's own cluster.
    ///
    /// # Panics
    /// When the body fails or panics.
    pub async fn run_on<F>(cluster: Result<Cluster>, name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        Self::run_with(cluster, Slot::None, name, body).await;
    }

    async fn run_with<F>(cluster: Result<Cluster>, slot: Slot, name: &str, body: F)
    where
        F: AsyncFnOnce(&Self) -> Result<()>,
    {
        let entered = async { Self::enter(cluster?, slot, name).await };
        let scenario = match entered.await {
            Ok(scenario) => scenario,
            Err(error) => {
                // Print one line, because it says what to do and a backtrace does not.
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
                real::print_diagnostics(&scenario).await;
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
            // The hook has printed a panic, the code above an error.
            std::panic::resume_unwind(failure);
        }
    }

    async fn enter(cluster: Cluster, slot: Slot, name: &str) -> Result<Self> {
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
            slot: Mutex::new(slot),
            folder: OnceLock::new(),
        };
        // Without it, pods are rejected and controllers back off.
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

    /// Runs a part of [`Self::run`] once all others have ended, for limits of a requirement, which are meaningless on a
    /// busy machine. The scenario then continues there.
    ///
    /// # Errors
    /// Those of the part.
    pub async fn timed<T>(&self, part: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        let mut slot = self.slot.lock().await;
        *slot = match std::mem::replace(&mut *slot, Slot::None) {
            Slot::Shared(shared) => {
                // Release it first: otherwise all would wait for this very scenario.
                drop(shared);
                Slot::Last(scheduling::timed_at_the_end().await)
            }
            Slot::Last(timed) => Slot::Last(timed),
            Slot::None => {
                let _timed = scheduling::timed().await;
                return part().await;
            }
        };
        drop(slot);
        part().await
    }

    /// The cluster that the scenario runs on.
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

    /// A temporary folder of this scenario's own.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn folder(&self) -> Result<&Path> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let folder = Folder::create("scenario")?;
        Ok(self.folder.get_or_init(|| folder))
    }

    /// A name that no other scenario uses, because scenarios share the broker's queues.
    #[must_use]
    pub fn name(&self, base: &str) -> String {
        format!("{base}-{}", self.suffix)
    }

    /// The API of a kind in this scenario's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: k8s_openapi::Resource<Scope = NamespaceResourceScope>
            + Metadata<Ty = kube::api::ObjectMeta>
            + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// The actors in this scenario's namespace, as JSON, so that tests see what the API server stores rather than what
    /// our types decode.
    #[must_use]
    pub fn actors(&self) -> Api<DynamicObject> {
        let kind = kube::core::GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
        let resource = ApiResource::from_gvk_with_plural(&kind, "asyncactors");
        Api::namespaced_with(self.client(), &self.namespace, &resource)
    }

    /// Runs kubectl in this scenario's namespace and returns its output.
    ///
    /// # Errors
    /// When kubectl fails; the error contains its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster
            .kubectl(&[&["--namespace", &self.namespace], args].concat())
            .await
    }

    /// Applies a manifest as `kubectl apply` does.
    ///
    /// # Errors
    /// When the manifest is rejected; the error contains the API server's message.
    pub async fn apply(&self, manifest: &Value) -> Result<()> {
        self.apply_all(std::slice::from_ref(manifest)).await
    }

    /// Applies these manifests as `kubectl apply` does.
    ///
    /// # Errors
    /// When one is rejected; the error contains the API server's message.
    pub async fn apply_all(&self, manifests: &[Value]) -> Result<()> {
        let left = apply::create_all(&self.client(), &self.namespace, manifests).await?;
        if left.is_empty() {
            return Ok(());
        }
        self.kubectl_apply(&left).await
    }

    async fn kubectl_apply(&self, manifests: &[Value]) -> Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = self
            .cluster
            .folder()
            .join(format!("{}-{number}.json", self.namespace));
        std::fs::write(&file, documents(manifests))
            .context(format_args!("write {}", file.display()))?;
        self.kubectl(&["apply", "--filename", &file.display().to_string()])
            .await
            .map(drop)
    }

    /// Waits until an actor is deleted, its finalizer removed.
    ///
    /// # Errors
    /// After the timeout, with the last observed status.
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

    /// Waits until an actor's `.status.status` has this value.
    ///
    /// # Errors
    /// After the timeout, with the last observed status.
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

    /// Waits for an Event with this reason in the namespace.
    ///
    /// # Errors
    /// After the timeout.
    pub async fn event(&self, reason: &str, timeout: Duration) -> Result<()> {
        self.event_with(reason, &[], timeout).await
    }

    /// Waits for an Event with this reason whose message contains all these texts. Other Events may have the same
    /// reason, and Events appear only after what they report.
    ///
    /// # Errors
    /// After the timeout, with the messages of the Events with this reason.
    pub async fn event_with(&self, reason: &str, texts: &[&str], timeout: Duration) -> Result<()> {
        let events = self.api::<Event>();
        let selector = format!("reason={reason}");
        let list = ListParams::default().fields(&selector);
        let what = format!("an Event {reason} with {texts:?}");
        eventually(what, timeout, async || {
            let found = events.list(&list).await?.items;
            let messages: Vec<String> = found.into_iter().filter_map(|it| it.message).collect();
            let mut messages_with = messages.iter();
            check(
                messages_with.any(|message| texts.iter().all(|text| message.contains(text))),
                format_args!("{messages:?}"),
            )
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

/// The text of a file with these manifests, one document each. To validate a List, kubectl downloads the `OpenAPI` v2
/// document of the whole cluster, which a busy API server with large CRDs cannot build before kubectl gives up.
#[must_use]
pub fn documents(manifests: &[Value]) -> String {
    let texts: Vec<String> = manifests.iter().map(Value::to_string).collect();
    texts.join("\n")
}

fn shared_cluster() -> Result<Cluster> {
    State::from_env().and_then(Cluster::connect)
}

impl Cluster {
    /// Runs kubectl as the administrator and returns its output.
    ///
    /// # Errors
    /// When kubectl fails; the error contains its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let state = self.state();
        let kubectl = Spec::new("kubectl", state.control_plane.join("kubectl"))
            .args(args)
            .env("KUBECONFIG", state.kubeconfig.display())
            // Skip garbage collection in such a short-lived process; it would take a third of the time.
            .env("GOGC", "off")
            // kubectl's discovery cache must not outlive the cluster, because another one may use the same port.
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
