//! Reads a target, its dependents and its owners, and lets the kind's resolver interpret them (RES-1, RES-2).

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::names::{annotation, is_our_manager, manager};
use asya_shared::resolve::{
    GroupKind, ObjectRef, Related, Resolution, Resolver, Roll, Target, controller_of, resolver,
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

use super::kinds::Kind;
use super::targets::Asked;
use super::{Bindings, Found, KindAvailability, Object, Reading, TemplatePart, spec};
use crate::record::{Key, applied_by};

/// Concurrent reads for one target.
const AT_ONCE: usize = 4;
/// Maximum number of owners to follow above a target (RES-4).
const HIGHEST: usize = 4;

impl Bindings {
    /// Looks up and resolves a target. Calls the API server only if a watch has shown a change since the last read.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn read(&self, client: &Client, target: &Object) -> Result<Found, kube::Error> {
        let resource = match self.kinds.standing(&target.kind) {
            KindAvailability::Served(resource) => resource,
            KindAvailability::Unknown => return Ok(Found::NotYet),
            other => return Ok(Found::OfKind(other)),
        };
        let GroupKind { group, kind } = target.kind.names();
        let row = resolver(group, kind);
        if !self.sees(row, target) {
            return Ok(Found::NotYet);
        }
        let question = match self.targets.ask(target) {
            Asked::Known(found) => return Ok(found),
            Asked::Anew(question) => question,
        };
        let mut versions = HashMap::new();
        let live = match get(client, &resource, &target.key).await {
            Ok(live) => live,
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.kinds.doubt(&target.kind);
                return Ok(Found::NotYet);
            }
            Err(error) => return Err(error),
        };
        let found = match live {
            None => Found::Absent,
            Some(live) => {
                versions.insert(target.clone(), version_of(&live));
                let Some(uid) = uid_of(&live) else {
                    return Ok(Found::Absent);
                };
                // From here on, changes of dependents are observed.
                for actor in self.index.actors_of(target) {
                    self.index.located(&actor, &uid);
                }
                let Some(related) = self
                    .related(client, row, (target, &live), &mut versions)
                    .await?
                else {
                    return Ok(Found::NotYet);
                };
                Found::Read(Arc::new(
                    Reading {
                        replicas: None,
                        refused: self.refused(row),
                        resolution: row.resolve(&live, &related),
                        uid,
                        spec: spec::hash(&live),
                        templated: None,
                    }
                    .with_workloads(&live, &related),
                ))
            }
        };
        self.targets
            .answer(target, question, found.clone(), versions);
        Ok(found)
    }

    /// Reads an object from the API server; `None` if it does not exist, or if its kind is not served or not readable.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn body(
        &self,
        client: &Client,
        namespace: &str,
        object: &ObjectRef,
    ) -> Result<Option<Value>, kube::Error> {
        let Some(resource) = self.resource_of(object) else {
            return Ok(None);
        };
        get(client, &resource, &Key::new(namespace, &object.name)).await
    }

    /// API resource of an object whose kind has been discovered.
    pub fn resource_of(&self, object: &ObjectRef) -> Option<Arc<ApiResource>> {
        match self.kinds.standing(&Kind::from(object.group_kind())) {
            KindAvailability::Served(resource) => Some(resource),
            _ => None,
        }
    }

    /// Whether the watches of the target's dependents have synced, where such watches can run.
    fn sees(&self, row: &dyn Resolver, target: &Object) -> bool {
        row.related().iter().all(|kind| {
            let kind = Kind::from(*kind);
            match self.kinds.standing(&kind) {
                KindAvailability::Unknown => false,
                KindAvailability::Served(_) => self.tree.is_listed(&kind, &target.key.namespace),
                KindAvailability::NotInstalled
                | KindAvailability::NotNamespaced
                | KindAvailability::Forbidden(_) => true,
            }
        })
    }

    fn refused(&self, row: &dyn Resolver) -> Option<(Kind, Arc<str>)> {
        let mut kinds = row.related().iter().map(|kind| Kind::from(*kind));
        kinds.find_map(|kind| match self.kinds.standing(&kind) {
            KindAvailability::Forbidden(rule) => Some((kind, rule)),
            _ => None,
        })
    }

    /// Reads dependents and owners; `None` while the kind of an owner has not been discovered yet.
    async fn related(
        &self,
        client: &Client,
        row: &dyn Resolver,
        (target, live): (&Object, &Value),
        versions: &mut HashMap<Object, u64>,
    ) -> Result<Option<Related>, kube::Error> {
        let mut related = Related::default();
        let kinds: Vec<_> = row.related().iter().map(|it| Kind::from(*it)).collect();
        let uid = uid_of(live).unwrap_or_default();
        let below = self.tree.below(&uid, &kinds).into_iter();
        let asked = below.filter_map(|object| match self.kinds.standing(&object.kind) {
            KindAvailability::Served(resource) => Some((object, resource)),
            _ => None,
        });
        let read = stream::iter(asked).map(|(object, resource)| async move {
            let body = get(client, &resource, &object.key).await?;
            Ok::<_, kube::Error>((object.kind, body))
        });
        let bodies: Vec<_> = read.buffered(AT_ONCE).try_collect().await?;
        for (kind, body) in bodies {
            let wanted = row.related().iter().find(|it| **it == kind.names());
            if let (Some(kind), Some(body)) = (wanted, body) {
                related.objects.entry(*kind).or_default().push(body);
            }
        }
        // Owners are followed only from a target that is a workload itself.
        if !kinds.is_empty() {
            return Ok(Some(related));
        }
        let mut owners = Vec::new();
        let mut next = controller_of(live);
        while let Some(owner) = next.take().filter(|_| owners.len() < HIGHEST) {
            let kind = Kind::from(owner.group_kind());
            self.kinds.want(&kind);
            let resource = match self.kinds.standing(&kind) {
                KindAvailability::Unknown => {
                    owners.push(object_of(&owner, target));
                    self.index.belongs_to(target, &owners);
                    return Ok(None);
                }
                KindAvailability::Served(resource) => resource,
                _ => break,
            };
            let object = object_of(&owner, target);
            owners.push(object.clone());
            self.index.belongs_to(target, &owners);
            let body = match get(client, &resource, &object.key).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => None,
                body => body?,
            };
            let Some(body) = body.filter(|body| uid_of(body).as_deref() == owner.uid.as_deref())
            else {
                break;
            };
            versions.insert(object, version_of(&body));
            next = controller_of(&body);
            related.owners.push(body);
        }
        self.index.belongs_to(target, &owners);
        Ok(Some(related))
    }
}

impl Reading {
    /// Adds what the target's workloads contain: the desired replicas, of the one workload or the sum over all that the
    /// target groups, and an actor's part of a pod template, whichever target that actor binds.
    fn with_workloads(mut self, live: &Value, related: &Related) -> Self {
        let Resolution::Found(target) = &self.resolution else {
            return self;
        };
        let all = || related.objects.values().flatten().chain([live]);
        let body = |workload: &ObjectRef| {
            all().find(|it| {
                workload.uid.is_some() && uid_of(it).as_deref() == workload.uid.as_deref()
            })
        };
        let of = |workload: &ObjectRef| body(workload)?.pointer("/spec/replicas")?.as_i64();
        let replicas = match (&target.roll, is_counted(target)) {
            (_, true) => of(&target.workload),
            (Roll::AnnotateTemplate(workloads), false) => workloads.iter().map(of).sum(),
            (Roll::Annotate(..) | Roll::Evict, false) => None,
        };
        let grouped = match &target.roll {
            Roll::AnnotateTemplate(workloads) => &workloads[..],
            Roll::Annotate(..) | Roll::Evict => &[],
        };
        let workloads = [&target.workload].into_iter().chain(grouped);
        self.templated = workloads.filter_map(body).find_map(part_of);
        self.replicas = replicas.and_then(|replicas| replicas.try_into().ok());
        self
    }
}

/// Whether the workload's replica count equals the number of bound pods.
fn is_counted(target: &Target) -> bool {
    let GroupKind { group, kind } = target.workload.group_kind();
    (group == "apps" && kind != "DaemonSet") || kind == "LeaderWorkerSet"
}

/// The part of the pod template that we own (BIND-50).
fn part_of(live: &Value) -> Option<TemplatePart> {
    let entries = live.pointer("/metadata/managedFields")?;
    let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(entries.clone()).ok()?;
    let annotations = live.pointer("/spec/template/metadata/annotations");
    let actor = annotations.and_then(|it| it.get(annotation::INJECTED_BY)?.as_str());
    Some(TemplatePart {
        fields: applied_by(&entries, manager::TEMPLATE)?,
        actor: actor.map(Box::from),
    })
}

fn object_of(owner: &ObjectRef, target: &Object) -> Object {
    Object {
        kind: Kind::from(owner.group_kind()),
        key: Key::new(&target.key.namespace, &owner.name),
    }
}

fn uid_of(object: &Value) -> Option<Box<str>> {
    Some(object.pointer("/metadata/uid")?.as_str()?.into())
}

fn version_of(object: &Value) -> u64 {
    let version = object.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str);
    version
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Reads the object as stored, with only our own entries in `managedFields`.
async fn get(
    client: &Client,
    resource: &ApiResource,
    key: &Key,
) -> Result<Option<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, resource);
    let Some(mut live) = api.get_opt(&key.name).await? else {
        return Ok(None);
    };
    if let Some(ours) = &mut live.metadata.managed_fields {
        ours.retain(|it| it.manager.as_deref().is_some_and(is_our_manager));
    }
    let live = serde_json::to_value(live).map_err(kube::Error::SerdeError)?;
    Ok(Some(live))
}

#[cfg(test)]
mod tests;
