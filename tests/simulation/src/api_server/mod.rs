//! An in-memory API server, as faithful as the controller can observe.

pub mod answer;
pub mod crds;
pub mod deletion;
pub mod discovery;
pub mod fields;
mod garbage;
pub mod id;
pub mod managed;
pub mod object;
pub mod request;
pub mod resources;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod status;
pub mod store;
mod strategic;
mod strategy;
pub mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Value, json};

use answer::Answer;
use crds::Serving;
use id::Id;
use object::{Form, Object};
use request::Verb;
use resources::Resource;
use schema::Schema;
use selector::Filter;
use status::Failure;
use store::{Store, Written};

/// An API server.
#[derive(Default)]
pub struct ApiServer {
    /// Its objects.
    pub store: Store,
    /// Maximum page size of a list, whatever the client requests; 0 means no limit.
    pub page: usize,
    /// Whether a server-side apply creates objects whose CRD is being deleted, as in Kubernetes 1.33 and older.
    pub applies_while_terminating: bool,
    /// The remainders of lists in progress, by continue token.
    lists: BTreeMap<String, Remainder>,
}

/// The remaining items of a list.
#[derive(Clone)]
struct Remainder {
    items: VecDeque<Arc<Object>>,
    version: u64,
}

impl ApiServer {
    /// Answers a request other than a watch, with decoded JSON.
    ///
    /// # Errors
    /// If the server rejects it.
    pub fn answer(&mut self, verb: Verb, metadata_only: bool) -> Result<Value, Failure> {
        self.respond(verb, metadata_only).map(Answer::into_value)
    }

    /// Answers a request other than a watch.
    ///
    /// # Errors
    /// If the server rejects it.
    pub fn respond(&mut self, verb: Verb, metadata_only: bool) -> Result<Answer, Failure> {
        self.check_served(&verb)?;
        let of_object = |object| Ok(Answer::Object(object, Form::single(metadata_only)));
        let of_value = Answer::Value;
        match verb {
            Verb::List {
                resource,
                filter,
                limit,
                token,
            } => self.list(resource, &filter, (limit, token), metadata_only),
            Verb::Watch { .. } => Err(Failure::bad_request("a watch is not answered at once")),
            Verb::Discover { group, resources } => {
                discovery::answer(&self.store, &group, resources)
                    .map(of_value)
                    .ok_or_else(Failure::no_such_path)
            }
            Verb::Get(id) => of_object(self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?),
            Verb::GetScale(id) => scale::get(&self.store, &id).map(of_value),
            Verb::PatchScale(id, patch, writer) => {
                scale::patch(&mut self.store, &id, &patch, &writer).map(of_value)
            }
            Verb::Evict(id, deletion) => {
                self.store.delete(&id, &deletion)?;
                Ok(of_value(
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
                ))
            }
            Verb::Delete(id, deletion) => {
                let object = self.store.delete(&id, &deletion)?;
                let is_gone = self.store.get(&id).is_none();
                // Only for these kinds does a deletion return the object.
                if is_gone && !["Pod", "ServiceAccount"].contains(&id.resource.kind) {
                    return Ok(of_value(status::success(&id, &object)));
                }
                of_object(object)
            }
            write => of_object(self.write(write)?),
        }
    }

    /// Answers a write without storing anything.
    ///
    /// # Errors
    /// If the server would reject it.
    pub fn dry_run(&mut self, verb: Verb) -> Result<Answer, Failure> {
        let live = verb.object().and_then(|id| self.store.get(id));
        let is_custom = verb
            .object()
            .is_some_and(|id| schema::is_custom(id.resource));
        let before = self.store.snapshot();
        let answer = self.answer(verb, false);
        self.store.restore(before);
        let mut object = answer?;
        let version = live.map_or(Value::Null, |live| {
            live["metadata"]["resourceVersion"].clone()
        });
        object["metadata"]["resourceVersion"] = version;
        managed::normalize(&mut object, is_custom);
        Ok(object.into())
    }

    fn write(&mut self, verb: Verb) -> Written {
        match verb {
            Verb::Create(mut id, object, writer) => {
                self.check_namespace(&id)?;
                if let Some(prefix) = request::generated(&object) {
                    id.name = format!("{prefix}{:05}", self.store.version());
                }
                self.store.create(&id, object, &writer)
            }
            Verb::Update(id, object, writer) => self.store.update(&id, object, &writer),
            Verb::Apply(id, config, writer, force) => {
                self.check_namespace(&id)?;
                self.store.apply(&id, config, &writer, force)
            }
            Verb::MergePatch(id, patch, writer) => {
                let live = self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?;
                let mut object = live.to_value();
                managed::merge_patch(&mut object, &patch);
                self.store.update(&id, object, &writer)
            }
            Verb::StrategicPatch(id, patch, writer) => {
                let live = self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?;
                let mut object = live.to_value();
                strategic::patch(&mut object, &patch, Schema::of(id.resource));
                self.store.update(&id, object, &writer)
            }
            Verb::JsonPatch(id, patch, writer) => {
                let live = self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?;
                let mut object = live.to_value();
                let patch: json_patch::Patch = serde_json::from_value(patch)
                    .map_err(|error| Failure::bad_request(&error.to_string()))?;
                json_patch(&mut object, &patch)?;
                self.store.update(&id, object, &writer)
            }
            _ => Err(Failure::no_such_path()),
        }
    }

    fn check_served(&self, verb: &Verb) -> Result<(), Failure> {
        let object = verb.object();
        let Some(resource) = verb.resource().or(object.map(|id| id.resource)) else {
            return Ok(());
        };
        let is_new = || object.is_some_and(|id| self.store.get(id).is_none());
        match (self.store.serving(resource), verb) {
            (Serving::Absent, _) => Err(Failure::no_such_path()),
            (Serving::Terminating, Verb::Create(..)) => Err(Failure::crd_terminating()),
            (Serving::Terminating, Verb::Apply(..))
                if is_new() && !self.applies_while_terminating =>
            {
                Err(Failure::crd_terminating())
            }
            _ => Ok(()),
        }
    }

    fn check_namespace(&self, id: &Id) -> Result<(), Failure> {
        let namespace = Id::new(&resources::NAMESPACES, "", &id.namespace);
        if id.resource.namespaced && self.store.get(&namespace).is_none() {
            return Err(Failure::not_found(&namespace));
        }
        Ok(())
    }

    fn list(
        &mut self,
        resource: &'static Resource,
        filter: &Filter,
        (limit, token): (usize, Option<String>),
        metadata_only: bool,
    ) -> Result<Answer, Failure> {
        let mut rest = match &token {
            // A client may request the same page again.
            Some(token) => self
                .lists
                .get(token)
                .cloned()
                .ok_or_else(Failure::expired)?,
            None => Remainder {
                items: self.candidates(resource, filter),
                version: self.store.version(),
            },
        };
        let limits = [limit, self.page].into_iter().filter(|limit| *limit > 0);
        let size = limits.min().filter(|_| limit > 0).unwrap_or(usize::MAX);
        let mut items = Vec::new();
        // Another page follows if items remain, even if the selectors match none of them.
        while items.len() < size
            && let Some(object) = rest.items.pop_front()
        {
            if filter.matches(&object) {
                items.push(object);
            }
        }
        let mut metadata = json!({"resourceVersion": rest.version.to_string()});
        if !rest.items.is_empty() {
            let next = format!("{}-{}-{}", resource.plural, rest.version, self.lists.len());
            metadata["continue"] = next.clone().into();
            if !filter.has_selectors() {
                metadata["remainingItemCount"] = rest.items.len().into();
            }
            self.lists.insert(next, rest);
        }
        Ok(answer::list(resource, &metadata, &items, metadata_only))
    }

    /// The objects of the resource that a list has to consider.
    fn candidates(&self, resource: &'static Resource, filter: &Filter) -> VecDeque<Arc<Object>> {
        let objects = self.store.all(resource);
        objects
            .filter(|(id, _)| filter.is_candidate(&id.namespace, &id.name))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }
}

/// Applies a JSON patch. As on the real server, a test for `null` also passes if only the last step of the path is
/// missing, and a replacement adds a missing value.
fn json_patch(object: &mut Value, patch: &json_patch::Patch) -> Result<(), Failure> {
    for operation in &patch.0 {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
            && test
                .path
                .parent()
                .is_none_or(|parent| object.pointer(parent.as_str()).is_some())
        {
            continue;
        }
        // Add the value that is to be replaced but is missing.
        let mut operation = operation.clone();
        if let PatchOperation::Replace(replace) = &operation
            && object.pointer(replace.path.as_str()).is_none()
        {
            operation = PatchOperation::Add(AddOperation {
                path: replace.path.clone(),
                value: replace.value.clone(),
            });
        }
        json_patch::patch(object, std::slice::from_ref(&operation)).map_err(|_| {
            Failure::invalid("the server rejected our request due to an error in our request")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;
