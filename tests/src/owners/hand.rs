//! What an owner reads and writes with; it remembers the writes.

use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Kind;
use crate::error::Result;

/// How an owner wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT of a whole object.
    Put,
    /// A strategic merge patch.
    Strategic,
    /// A merge patch, also of `/scale`.
    Merge,
    /// DELETE.
    Delete,
}

/// One write that the API server accepted; trials (`dryRun`) and status are none.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// How.
    pub verb: Verb,
    /// Kind of the object.
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// What was sent.
    pub body: Value,
    /// Whether the object is another one since.
    pub changed: bool,
}

/// The hand of one owner in one namespace.
#[derive(Clone)]
pub struct Hand {
    client: Client,
    namespace: String,
    manager: &'static str,
    writes: Arc<Mutex<Vec<Write>>>,
    silent: bool,
}

impl Hand {
    /// A hand that writes as this field manager.
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

    /// The same, which prints nothing.
    #[must_use]
    pub fn silent(self) -> Self {
        Self {
            silent: true,
            ..self
        }
    }

    /// All writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.clone()
    }

    /// The objects of a kind.
    #[must_use]
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// All objects of a kind that are not being deleted, by name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let found = self.api(kind).list(&ListParams::default()).await?;
        let live = found
            .into_iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none());
        let mut objects = live.map(value).collect::<Result<Vec<_>>>()?;
        objects.sort_by(|a, b| name(a).cmp(name(b)));
        Ok(objects)
    }

    /// An object, if it is there.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        self.api(kind).get_opt(name).await?.map(value).transpose()
    }

    /// Makes an object.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<Value> {
        let made = self
            .api(kind)
            .create(&self.post(false), &typed(kind, object)?)
            .await?;
        let made = value(made)?;
        self.wrote(Verb::Create, kind, name(&made), object, true);
        Ok(made)
    }

    /// What a PUT would make of an object, its defaults filled in; nothing is written.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn try_put(&self, kind: Kind, object: &Value) -> Result<Value> {
        self.replace(kind, object, true).await
    }

    /// PUTs an object, `resourceVersion` included if it has one.
    ///
    /// # Errors
    /// When the API server refuses: 409 when somebody was faster.
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

    /// Sends a strategic merge patch of a live object.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn strategic(&self, kind: Kind, live: &Value, patch: &Value) -> Result<Value> {
        let patched = self.patch(kind, live, &Patch::Strategic(patch)).await?;
        let changed = version(&patched) != version(live);
        self.wrote(Verb::Strategic, kind, name(live), patch, changed);
        Ok(patched)
    }

    /// Sends a merge patch of a live object.
    ///
    /// # Errors
    /// When the API server refuses.
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

    /// Sets `/scale` of a live workload, as autoscalers do.
    ///
    /// # Errors
    /// When the API server refuses.
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

    /// Deletes an object; one that is gone already is none.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete(&self, kind: Kind, live: &Value) -> Result<()> {
        let params = DeleteParams::default();
        match self.api(kind).delete(name(live), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            other => other?,
        };
        self.wrote(Verb::Delete, kind, name(live), &Value::Null, true);
        Ok(())
    }

    /// Writes those parts of an object's status that are not so yet. Not logged: no workload knows of it.
    ///
    /// # Errors
    /// When the API server refuses.
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
            // Shown where the test fails.
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

/// Whether all that is in `part` is in `whole`, too; lists are compared item by item.
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

/// An object's name.
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
