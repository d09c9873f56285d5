//! The client of a simulated owner or a user, which records its writes.

use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Kind;
use crate::error::Result;

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT of a whole object.
    Put,
    /// A strategic merge patch.
    Strategic,
    /// A merge patch, also of the `/scale` subresource.
    Merge,
    /// DELETE.
    Delete,
}

/// A write that the API server accepted. Dry runs and status updates are not recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// How it was written.
    pub verb: Verb,
    /// The object's kind.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    /// The request body.
    pub body: Value,
    /// Whether the write changed the object.
    pub changed: bool,
}

/// The client of one owner or user in one namespace.
#[derive(Clone)]
pub struct RecordingClient {
    client: Client,
    namespace: String,
    manager: &'static str,
    writes: Arc<Mutex<Vec<Write>>>,
    silent: bool,
}

impl RecordingClient {
    /// Creates a client that writes with this field manager.
    #[must_use]
    pub fn new(client: Client, namespace: &str, manager: &'static str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            manager,
            writes: Arc::default(),
            silent: false,
        }
    }

    /// The same client, without printing its writes.
    #[must_use]
    pub fn silent(self) -> Self {
        Self {
            silent: true,
            ..self
        }
    }

    /// The writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.clone()
    }

    /// The API of a kind in the owner's namespace.
    #[must_use]
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Lists the objects of a kind, by name, without those being deleted.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let found = self.api(kind).list(&ListParams::default()).await?;
        let live = found
            .into_iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none());
        let mut objects = live.map(value).collect::<Result<Vec<_>>>()?;
        objects.sort_by(|a, b| name(a).cmp(name(b)));
        Ok(objects)
    }

    /// Returns an object, if it exists.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        self.api(kind).get_opt(name).await?.map(value).transpose()
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<Value> {
        let made = self
            .api(kind)
            .create(&self.post(false), &typed(kind, object)?)
            .await?;
        let made = value(made)?;
        self.wrote(Verb::Create, kind, name(&made), object, true);
        Ok(made)
    }

    /// Returns the result of a dry-run PUT, with defaults.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn try_put(&self, kind: Kind, object: &Value) -> Result<Value> {
        self.replace(kind, object, true).await
    }

    /// PUTs an object, with its `resourceVersion` if it has one.
    ///
    /// # Errors
    /// If the API server rejects the request: with 409 on a conflict.
    pub async fn put(&self, kind: Kind, object: &Value) -> Result<Value> {
        let stored = self.replace(kind, object, false).await?;
        let changed = version(&stored) != version(object);
        self.wrote(Verb::Put, kind, name(object), object, changed);
        Ok(stored)
    }

    async fn replace(&self, kind: Kind, object: &Value, dry_run: bool) -> Result<Value> {
        let (params, sent) = (self.post(dry_run), typed(kind, object)?);
        value(self.api(kind).replace(name(object), &params, &sent).await?)
    }

    /// Applies a strategic merge patch to a live object.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn strategic(&self, kind: Kind, live: &Value, patch: &Value) -> Result<Value> {
        let patched = self.patch(kind, live, &Patch::Strategic(patch)).await?;
        let changed = version(&patched) != version(live);
        self.wrote(Verb::Strategic, kind, name(live), patch, changed);
        Ok(patched)
    }

    /// Applies a merge patch to a live object.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn merge(&self, kind: Kind, live: &Value, patch: &Value) -> Result<Value> {
        let patched = self.patch(kind, live, &Patch::Merge(patch)).await?;
        let changed = version(&patched) != version(live);
        self.wrote(Verb::Merge, kind, name(live), patch, changed);
        Ok(patched)
    }

    async fn patch(&self, kind: Kind, live: &Value, patch: &Patch<&Value>) -> Result<Value> {
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        value(self.api(kind).patch(name(live), &params, patch).await?)
    }

    /// Sets the replicas of a live workload through `/scale`, as autoscalers do.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn scale(&self, kind: Kind, live: &Value, replicas: i64) -> Result<()> {
        let patch = json!({"spec": {"replicas": replicas}});
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let api = self.api(kind);
        api.patch_scale(name(live), &params, &Patch::Merge(&patch))
            .await?;
        let changed = live.pointer("/spec/replicas") != Some(&json!(replicas));
        self.wrote(Verb::Merge, kind, name(live), &patch, changed);
        Ok(())
    }

    /// Deletes an object; succeeds without recording a write if it no longer exists.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn delete(&self, kind: Kind, live: &Value) -> Result<()> {
        let params = DeleteParams::default();
        match self.api(kind).delete(name(live), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            other => other?,
        };
        self.wrote(Verb::Delete, kind, name(live), &Value::Null, true);
        Ok(())
    }

    /// Updates those parts of an object's status that differ. Not recorded, since no workload is affected.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn status(&self, kind: Kind, live: &Value, status: &Value) -> Result<()> {
        if includes(&live["status"], status) {
            return Ok(());
        }
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({"status": status});
        let api = self.api(kind);
        api.patch_status(name(live), &params, &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    fn post(&self, dry_run: bool) -> PostParams {
        PostParams {
            dry_run,
            field_manager: Some(self.manager.to_owned()),
        }
    }

    fn wrote(&self, verb: Verb, kind: Kind, name: &str, body: &Value, changed: bool) {
        let kind = kind.kind;
        if !self.silent {
            // Output is captured, and shown if the test fails.
            println!(
                "{}: {verb:?} {kind}/{name}, changed: {changed}: {body}",
                self.manager
            );
        }
        let write = Write {
            verb,
            kind,
            name: name.to_owned(),
            body: body.clone(),
            changed,
        };
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(write);
    }
}

/// Whether `whole` contains all of `part`. Lists are compared item by item.
pub(super) fn includes(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, part)| {
            whole
                .get(key)
                .map_or(part.is_null(), |whole| includes(whole, part))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| includes(a, b))
        }
        _ => whole == part,
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

fn value(object: DynamicObject) -> Result<Value> {
    Ok(serde_json::to_value(object)?)
}

fn typed(kind: Kind, object: &Value) -> Result<DynamicObject> {
    let mut object = object.clone();
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    Ok(serde_json::from_value(object)?)
}

#[cfg(test)]
mod tests;
