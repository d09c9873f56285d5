//! A client that sends the operator's writes for a crowd of actors at full speed, without reconciling anything. It
//! measures the rate that the API server and the broker can sustain.

use std::collections::HashSet;
use std::sync::Arc;

use asya_shared::api::{AsyncActorSpec, ModeSpec, WorkloadKind};
use asya_shared::applied::HashedManifest;
use asya_shared::config::{Settings, Transport, TransportsConfig};
use asya_shared::inject::{PodInputs, Replicas, runtime_config_map, workload};
use asya_shared::names::{FINALIZER, manager};
use asya_shared::scaling::{ScaleTarget, ScalingInputs, ScalingObjects, scaling_objects};
use asya_tests::cluster::Cluster;
use asya_tests::operator::default_values;
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::object::NotUsed;
use kube::{Client, Config};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::crowd::{Crowd, Light, Pods, follow};

const SCRIPT: &str = include_str!("../../../controller/runtime/asya_runtime.py");
const ADAPTERS: &str = include_str!("../../../controller/runtime/asya_adapters.py");
const EXCHANGE: &str = "asya";

/// The fields of a Deployment's status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Counts {
    ready_replicas: i32,
    observed_generation: i64,
}

/// The fields of a `ScaledObject`'s status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl Condition {
    fn says_ready(&self) -> bool {
        (&*self.r#type, &*self.status) == ("Ready", "True")
    }
}

/// The bare client, with the operator's account, credentials and objects.
pub struct Bare {
    client: Client,
    broker: RabbitMq,
    transport: Transport,
    settings: Settings,
    /// A status as the operator writes it.
    status: Value,
    turns: Semaphore,
    at_once: usize,
}

impl Bare {
    /// Creates a client with up to `at_once` concurrent writes, under the account of the operator's instance with that
    /// name. `status` is that of a running actor.
    pub async fn new(
        cluster: &Cluster,
        instance: &str,
        at_once: usize,
        status: Value,
    ) -> Result<Self> {
        let file = cluster
            .folder()
            .join(format!("operator-{instance}/kubeconfig"));
        let file = Kubeconfig::read_from(file).map_err(Error::other)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .map_err(Error::other)?;
        let values = json!({"transports": default_values(cluster)["transports"]});
        let transports = TransportsConfig::parse(&values.to_string()).map_err(Error::other)?;
        let transport = transports.usable("rabbitmq").map_err(Error::other)?;
        Ok(Self {
            client: Client::try_from(config)?,
            broker: cluster.rabbitmq()?,
            transport: transport.clone(),
            settings: Settings::parse(None, None, None).map_err(Error::other)?,
            status,
            turns: Semaphore::new(at_once),
            at_once,
        })
    }

    /// Creates the crowd, and performs the operator's writes for each actor.
    pub async fn serve(&self, crowd: &Crowd) -> Result<()> {
        let from = crowd.version().await?;
        self.prepare(crowd).await?;
        let (created, mut actors) = mpsc::unbounded_channel();
        let (running, mut ready) = mpsc::unbounded_channel();
        let creation = async {
            let told = created;
            crowd
                .create(|name, uid| drop(told.send((name.to_owned(), uid))))
                .await
        };
        let begin = async {
            let new = futures::stream::poll_fn(|context| actors.poll_recv(context));
            new.map(|(name, uid)| async move { self.begin(crowd, &name, &uid).await })
                .buffer_unordered(self.at_once)
                .try_collect::<()>()
                .await
        };
        let watch = async {
            let told = running;
            let mut waiting: HashSet<String> = crowd.names.iter().cloned().collect();
            let mut note = |name: &str, ready: bool| {
                if ready && waiting.remove(name) {
                    drop(told.send(name.to_owned()));
                }
                !waiting.is_empty()
            };
            match crowd.pods {
                Pods::Fixed(replicas) => {
                    let deployments = crowd.api(&self.client, "apps", "Deployment");
                    follow(&deployments, &from, |found: Light<Counts>| {
                        let counts = found.status.unwrap_or_default();
                        let seen = counts.observed_generation > 0;
                        let ready = seen && counts.ready_replicas == replicas;
                        note(found.metadata.name.as_deref().unwrap_or_default(), ready)
                    })
                    .await
                }
                Pods::Scaled => {
                    let scaled = crowd.api(&self.client, "keda.sh", "ScaledObject");
                    follow(&scaled, &from, |found: Light<Conditions>| {
                        let all = found.status.unwrap_or_default().conditions;
                        let ready = all.iter().any(Condition::says_ready);
                        note(found.metadata.name.as_deref().unwrap_or_default(), ready)
                    })
                    .await
                }
            }
        };
        let finish = async {
            let actors = futures::stream::poll_fn(|context| ready.poll_recv(context));
            actors
                .map(|name| async move {
                    self.write_status(crowd, &name, crowd.settled()).await?;
                    crowd.counts.settled();
                    Ok(())
                })
                .buffer_unordered(self.at_once)
                .try_collect::<()>()
                .await
        };
        tokio::try_join!(creation, begin, watch, finish).map(drop)
    }

    /// Creates what the namespace and the broker need only once.
    async fn prepare(&self, crowd: &Crowd) -> Result<()> {
        let script = runtime_config_map(&crowd.namespace, SCRIPT, ADAPTERS).object;
        let api = crowd.api::<Light<NotUsed>>(&self.client, "", "ConfigMap");
        let params = PatchParams::apply(manager::RUNTIME).force();
        api.patch("asya-runtime", &params, &Patch::Apply(script))
            .await?;
        let first = crowd.names.first().map(String::as_str).unwrap_or_default();
        let scaling = self.scaling(crowd, first, "")?;
        if let Some(login) = scaling.and_then(|objects| objects.config_map) {
            let params = PatchParams::apply(manager::SCALED_OBJECT).force();
            api.patch(login.name(), &params, &Patch::Apply(&login.object))
                .await?;
        }
        let exchange = json!({"type": "topic", "durable": true, "auto_delete": false});
        self.send(Method::PUT, &["exchanges", "/", EXCHANGE], &exchange)
            .await
    }

    async fn begin(&self, crowd: &Crowd, name: &str, uid: &str) -> Result<()> {
        let actors = crowd.api::<Light<NotUsed>>(&self.client, "asya.sh", "AsyncActor");
        let finalizer = json!({"metadata": {"uid": uid, "finalizers": [FINALIZER]}});
        let turn = self.turn().await?;
        actors
            .patch(name, &PatchParams::default(), &Patch::Merge(finalizer))
            .await?;
        drop(turn);
        self.declare(name).await?;
        let deployments = crowd.api::<Light<NotUsed>>(&self.client, "apps", "Deployment");
        let params = PatchParams::apply(manager::WORKLOAD).force();
        let object = self.deployment(crowd, name, uid)?;
        let turn = self.turn().await?;
        deployments
            .patch(name, &params, &Patch::Apply(object))
            .await?;
        drop(turn);
        if let Some(objects) = self.scaling(crowd, name, uid)? {
            let kind = "TriggerAuthentication";
            self.apply_scaling(crowd, kind, objects.trigger_authentication.as_ref())
                .await?;
            self.apply_scaling(crowd, "ScaledObject", Some(&objects.scaled_object))
                .await?;
        }
        self.write_status(crowd, name, "Creating").await
    }

    async fn apply_scaling(
        &self,
        crowd: &Crowd,
        kind: &str,
        object: Option<&HashedManifest>,
    ) -> Result<()> {
        let Some(object) = object else {
            return Ok(());
        };
        let api = crowd.api::<Light<NotUsed>>(&self.client, "keda.sh", kind);
        let params = PatchParams::apply(manager::SCALED_OBJECT).force();
        let _turn = self.turn().await?;
        api.patch(object.name(), &params, &Patch::Apply(&object.object))
            .await?;
        Ok(())
    }

    fn scaling(&self, crowd: &Crowd, name: &str, uid: &str) -> Result<Option<ScalingObjects>> {
        let spec: AsyncActorSpec = serde_json::from_value(crowd.actor(name)["spec"].clone())?;
        let Some(scaling) = spec.effective_scaling() else {
            return Ok(None);
        };
        let objects = scaling_objects(&ScalingInputs {
            namespace: &crowd.namespace,
            actor: name,
            uid,
            scaling,
            target: ScaleTarget::workload(WorkloadKind::Deployment, name),
            transport: &self.transport,
            names: &self.transport.names_of(&crowd.namespace, name),
            queue_url: None,
        });
        objects.map(Some).map_err(Error::other)
    }

    async fn write_status(&self, crowd: &Crowd, name: &str, state: &str) -> Result<()> {
        let actors = crowd.api::<Light<NotUsed>>(&self.client, "asya.sh", "AsyncActor");
        let mut status = self.status.clone();
        status["status"] = json!(state);
        let object = json!({
            "apiVersion": "asya.sh/v1alpha1",
            "kind": "AsyncActor",
            "metadata": {"name": name, "namespace": crowd.namespace},
            "status": status,
        });
        let params = PatchParams::apply(manager::STATUS).force();
        let _turn = self.turn().await?;
        actors
            .patch_status(name, &params, &Patch::Apply(object))
            .await?;
        Ok(())
    }

    fn deployment(&self, crowd: &Crowd, name: &str, uid: &str) -> Result<Value> {
        let spec: AsyncActorSpec = serde_json::from_value(crowd.actor(name)["spec"].clone())?;
        let ModeSpec::Standalone(template) = spec.mode().map_err(Error::other)? else {
            return Err(Error::other("not a standalone actor"));
        };
        let inputs = PodInputs {
            namespace: &crowd.namespace,
            actor: name,
            spec: &spec,
            workload: template,
            transport: &self.transport,
            settings: &self.settings,
            runtime_hash: "0",
            service_account: None,
        };
        let replicas = match crowd.pods {
            Pods::Fixed(replicas) => Replicas::Enforced(replicas),
            Pods::Scaled => Replicas::Initial(0),
        };
        Ok(workload(&inputs, uid, replicas).to_create().into_owned())
    }

    async fn declare(&self, name: &str) -> Result<()> {
        let queue = format!("asya-{name}");
        let _turn = self.turn().await?;
        let body = json!({"durable": true, "auto_delete": false, "arguments": {}});
        self.send(Method::PUT, &["queues", "/", &queue], &body)
            .await?;
        for key in [name, queue.as_str()] {
            let path = ["bindings", "/", "e", EXCHANGE, "q", &queue];
            self.send(Method::POST, &path, &json!({"routing_key": key}))
                .await?;
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &[&str], body: &Value) -> Result<()> {
        let request = self.broker.request(method, path)?.json(body);
        request.send().await?.error_for_status()?;
        Ok(())
    }

    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(Error::other)
    }

    /// Removes the finalizers and queues that the operator would have removed.
    pub async fn clear(&self, crowd: &Crowd) -> Result<()> {
        let actors = Arc::new(crowd.api::<Light<NotUsed>>(&self.client, "asya.sh", "AsyncActor"));
        let none = json!({"metadata": {"finalizers": null}});
        let mut cleared: FuturesUnordered<_> = crowd
            .names
            .iter()
            .map(|name| {
                let (actors, none) = (Arc::clone(&actors), Patch::Merge(none.clone()));
                async move {
                    let _turn = self.turn().await?;
                    self.broker.delete_queue(&format!("asya-{name}")).await?;
                    actors.patch(name, &PatchParams::default(), &none).await?;
                    Ok::<_, Error>(())
                }
            })
            .collect();
        while cleared.try_next().await?.is_some() {}
        Ok(())
    }
}
