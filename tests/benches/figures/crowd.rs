//! A crowd of actors in its own namespace.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::create_broker_secrets;
use asya_tests::{Error, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::object::NotUsed;
use kube::core::{GroupVersionKind, Object};
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::progress::Counts;

/// Maximum number of concurrent creates and deletes: as close to "at once" as an API server gets.
const AT_ONCE: usize = 32;
/// Longer than any size takes; [`Crowd::patience`] is the limit for a given size.
const PATIENCE: Duration = Duration::from_mins(30);
/// The lifetime of a watch, in seconds.
const WATCH_SECONDS: u32 = 250;

/// An object reduced to its metadata and the status fields that are read.
pub type Light<S> = Object<Option<NotUsed>, S>;

/// The fields of an actor's status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Told {
    status: String,
}

/// The number of pods per actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// A fixed number.
    Fixed(i32),
    /// As many as KEDA decides: none without messages.
    Scaled,
}

/// Actors that are created at once.
pub struct Crowd {
    /// The namespace of the actors.
    pub namespace: String,
    /// The names of the actors.
    pub names: Vec<String>,
    /// The pods of each actor.
    pub pods: Pods,
    /// The progress of the crowd.
    pub counts: Counts,
    client: Client,
}

impl Crowd {
    /// Creates a namespace for this many actors, and waits until it is ready for pods.
    pub async fn enter(cluster: &Cluster, label: &str, size: usize, pods: Pods) -> Result<Self> {
        let client = cluster.client();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": label}}))?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        create_broker_secrets(&client, label).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), label);
        eventually(
            "the namespace has its ServiceAccount",
            PATIENCE,
            async || {
                accounts.get("default").await?;
                Ok(())
            },
        )
        .await?;
        let names = (0..size).map(|number| format!("{label}-{number}"));
        Ok(Self {
            namespace: label.to_owned(),
            names: names.collect(),
            pods,
            counts: Counts::of(size),
            client,
        })
    }

    /// The manifest of an actor.
    pub fn actor(&self, name: &str) -> Value {
        let mut actor = json!({
            "apiVersion": "asya.sh/v1alpha1",
            "kind": "AsyncActor",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "transport": "rabbitmq",
                "workload": {
                    "template": {"spec": {"containers": [{
                        "name": "asya-runtime",
                        "image": "python:3.13-slim",
                        "env": [{"name": "ASYA_HANDLER", "value": "echo.handle"}],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    }]}},
                },
            },
        });
        match self.pods {
            Pods::Fixed(replicas) => actor["spec"]["workload"]["replicas"] = json!(replicas),
            Pods::Scaled => {
                actor["spec"]["scaling"] = json!({"enabled": true, "pollingInterval": 300});
            }
        }
        actor
    }

    /// Creates all actors; calls `created` with the name and UID of each.
    pub async fn create(&self, created: impl Fn(&str, String)) -> Result<()> {
        let api: Api<DynamicObject> = self.api(&self.client, "asya.sh", "AsyncActor");
        let (api, created) = (&api, &created);
        futures::stream::iter(&self.names)
            .map(|name| async move {
                let actor = serde_json::from_value(self.actor(name))?;
                let made = api.create(&PostParams::default(), &actor).await?;
                self.counts.created();
                created(name, made.metadata.uid.unwrap_or_default());
                Ok::<_, Error>(())
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// The STATUS of actors that have settled.
    pub fn settled(&self) -> &'static str {
        match self.pods {
            Pods::Fixed(_) => "Running",
            Pods::Scaled => "Napping",
        }
    }

    /// Creates the crowd and returns the status of its first actor once it is Running or Napping.
    pub async fn status_of_one(&self) -> Result<Value> {
        let from = self.version().await?;
        self.create(|_, _| ()).await?;
        self.all_settled(&from).await?;
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        let api: Api<DynamicObject> = self.api(&self.client, "asya.sh", "AsyncActor");
        Ok(api.get(name).await?.data["status"].clone())
    }

    /// The resource version from which a watch sees all later changes.
    pub async fn version(&self) -> Result<String> {
        let api: Api<Light<Told>> = self.api(&self.client, "asya.sh", "AsyncActor");
        let list = api.list(&ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// Waits until every actor has been Running or Napping once since that version.
    pub async fn all_settled(&self, from: &str) -> Result<()> {
        let mut waiting: HashSet<&str> = self.names.iter().map(String::as_str).collect();
        let api = self.api(&self.client, "asya.sh", "AsyncActor");
        follow(&api, from, |actor: Light<Told>| {
            let name = actor.metadata.name.unwrap_or_default();
            let rests = |told: Told| told.status == self.settled();
            if actor.status.is_some_and(rests) && waiting.remove(name.as_str()) {
                self.counts.settled();
            }
            !waiting.is_empty()
        })
        .await
    }

    /// The maximum time for any part of the work on the crowd: two minutes, plus five times what each actor took on 2
    /// cores.
    pub fn patience(&self) -> Duration {
        let actors = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let each = match self.pods {
            Pods::Fixed(_) => Duration::from_millis(250),
            Pods::Scaled => Duration::from_millis(700),
        };
        Duration::from_mins(2).saturating_add(each.saturating_mul(actors))
    }

    /// Deletes the actors and then the namespace. Returns how long the deletion of the actors took.
    pub async fn leave(&self) -> Result<Duration> {
        let began = Instant::now();
        let actors: Api<Light<Told>> = self.api(&self.client, "asya.sh", "AsyncActor");
        // A single `deletecollection` request would be cut off after a minute, complete or not.
        let (one, params) = (&actors, &DeleteParams::default());
        futures::stream::iter(&self.names)
            .map(|name| async move {
                match one.delete(name, params).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    deleted => Ok::<_, Error>(deleted.map(drop)?),
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        eventually("the actors are gone", PATIENCE, async || {
            let list = actors.list(&ListParams::default().limit(1)).await?;
            let more = list.metadata.remaining_item_count.unwrap_or_default();
            let left = list.items.len() + usize::try_from(more)?;
            self.counts.left(left);
            check(left == 0, format_args!("{left} are left"))
        })
        .await?;
        let took = began.elapsed();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await?;
        eventually("the namespace is gone", PATIENCE, async || {
            let left = namespaces.get_opt(&self.namespace).await?;
            check(left.is_none(), format_args!("{left:?}"))
        })
        .await?;
        Ok(took)
    }

    /// The API of a kind in the crowd's namespace.
    pub fn api<K>(&self, client: &Client, group: &str, kind: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        let version = if ["asya.sh", "keda.sh"].contains(&group) {
            "v1alpha1"
        } else {
            "v1"
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(client.clone(), &self.namespace, &resource)
    }
}

/// Calls `look` with every object that the watch reports, until it returns false.
pub async fn follow<S>(
    api: &Api<Light<S>>,
    from: &str,
    mut look: impl FnMut(Light<S>) -> bool,
) -> Result<()>
where
    S: Clone + Default + std::fmt::Debug + DeserializeOwned,
{
    let mut version = from.to_owned();
    loop {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let mut events = pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if let Some(newer) = &object.metadata.resource_version {
                        version.clone_from(newer);
                    }
                    if !look(object) {
                        return Ok(());
                    }
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => {}
                WatchEvent::Error(status) => return Err(Error::Other(status.message)),
            }
        }
    }
}
