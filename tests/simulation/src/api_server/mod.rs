//! An API server in memory: as much of a real one as the controller can tell apart.

pub mod discovery;
pub mod fields;
pub mod managed;
pub mod request;
pub mod resources;
pub mod scale;
pub mod selector;
pub mod status;
pub mod store;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::PatchOperation;
use serde_json::{Value, json};

use request::Verb;
use resources::Resource;
use selector::Filter;
use status::Failure;
use store::{Id, Store, Written};

/// An API server.
#[derive(Default)]
pub struct ApiServer {
    /// Its objects.
    pub store: Store,
    /// Largest page of a list, whatever the client asks for; 0 means no limit.
    pub page: usize,
    /// What is left of lists that were begun, by token.
    lists: BTreeMap<String, Remainder>,
}

/// The rest of a list.
struct Remainder {
    items: Vec<Arc<Value>>,
    version: u64,
}

impl ApiServer {
    /// Answers a request other than a watch.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn answer(&mut self, verb: Verb, metadata_only: bool) -> Result<Value, Failure> {
        let of_object = |object: Arc<Value>| Ok(shown(&object, metadata_only));
        match verb {
            Verb::List {
                resource,
                filter,
                limit,
                token,
            } => self.list(resource, &filter, (limit, token), metadata_only),
            Verb::Watch { .. } => Err(Failure::bad_request("a watch is not answered at once")),
            Verb::Discover { group, resources } => {
                discovery::answer(&group, resources).ok_or_else(Failure::no_such_path)
            }
            Verb::Get(id) => of_object(self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?),
            Verb::GetScale(id) => scale::get(&self.store, &id),
            Verb::PatchScale(id, patch, writer) => {
                scale::patch(&mut self.store, &id, &patch, &writer)
            }
            Verb::Evict(id, deletion) => {
                self.store.delete(&id, &deletion)?;
                Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
            }
            write => of_object(self.write(write)?),
        }
    }

    /// Answers a write without storing anything.
    ///
    /// # Errors
    /// If the server would refuse it.
    pub fn dry_run(&mut self, verb: Verb) -> Result<Value, Failure> {
        let live = verb.object().and_then(|id| self.store.get(id));
        let before = self.store.snapshot();
        let answer = self.answer(verb, false);
        self.store.restore(before);
        let mut object = answer?;
        let version = live.map_or(Value::Null, |live| live["metadata"]["resourceVersion"].clone());
        object["metadata"]["resourceVersion"] = version;
        managed::normalize(&mut object);
        Ok(object)
    }

    fn write(&mut self, verb: Verb) -> Written {
        match verb {
            Verb::Create(id, object, writer) => {
                self.check_namespace(&id)?;
                self.store.create(&id, object, &writer)
            }
            Verb::Update(id, object, writer) => self.store.update(&id, object, &writer),
            Verb::Apply(id, config, writer, force) => {
                self.check_namespace(&id)?;
                self.store.apply(&id, config, &writer, force)
            }
            Verb::MergePatch(id, patch, writer) => {
                let live = self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?;
                let mut object = (*live).clone();
                managed::merge_patch(&mut object, &patch);
                self.store.update(&id, object, &writer)
            }
            Verb::JsonPatch(id, patch, writer) => {
                let live = self.store.get(&id).ok_or_else(|| Failure::not_found(&id))?;
                let mut object = (*live).clone();
                let patch: json_patch::Patch = serde_json::from_value(patch)
                    .map_err(|error| Failure::bad_request(&error.to_string()))?;
                json_patch(&mut object, &patch)?;
                self.store.update(&id, object, &writer)
            }
            Verb::Delete(id, deletion) => self.store.delete(&id, &deletion),
            _ => Err(Failure::no_such_path()),
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
    ) -> Result<Value, Failure> {
        let mut rest = match &token {
            Some(token) => self.lists.remove(token).ok_or_else(Failure::expired)?,
            None => Remainder {
                items: self.matching(resource, filter),
                version: self.store.version(),
            },
        };
        let limits = [limit, self.page].into_iter().filter(|limit| *limit > 0);
        let size = limits.min().filter(|_| limit > 0).unwrap_or(usize::MAX);
        let later = rest.items.split_off(size.min(rest.items.len()));
        let items: Vec<Value> = rest
            .items
            .iter()
            .map(|it| shown(it, metadata_only))
            .collect();
        let mut metadata = json!({"resourceVersion": rest.version.to_string()});
        if !later.is_empty() {
            let next = format!("{}-{}-{}", resource.plural, rest.version, later.len());
            metadata["continue"] = next.clone().into();
            metadata["remainingItemCount"] = later.len().into();
            let version = rest.version;
            self.lists.insert(
                next,
                Remainder {
                    items: later,
                    version,
                },
            );
        }
        let (api_version, kind) = if metadata_only {
            (
                "meta.k8s.io/v1".to_owned(),
                "PartialObjectMetadataList".to_owned(),
            )
        } else {
            (resource.api_version(), format!("{}List", resource.kind))
        };
        Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items}))
    }

    fn matching(&self, resource: &'static Resource, filter: &Filter) -> Vec<Arc<Value>> {
        let objects = self.store.all(resource).map(|(_, object)| object);
        objects
            .filter(|object| filter.matches(object))
            .cloned()
            .collect()
    }
}

/// Applies a JSON patch. As with the real server, a test for `null` also passes where there is nothing.
fn json_patch(object: &mut Value, patch: &json_patch::Patch) -> Result<(), Failure> {
    for operation in &patch.0 {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|_| {
            Failure::invalid("the server rejected our request due to an error in our request")
        })?;
    }
    Ok(())
}

/// An object as a client asked for it.
fn shown(object: &Value, metadata_only: bool) -> Value {
    if metadata_only {
        let metadata = &object["metadata"];
        return json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    }
    object.clone()
}

#[cfg(test)]
mod tests;
