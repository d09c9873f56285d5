//! Observes what an actor being deleted still has in the pods of its target (BIND-43).

use asya_process::clock;
use asya_shared::api::{BindingRollout, RollAnnotation};
use asya_shared::resolve::{FindingReason, ObjectRef, Resolution, Target};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;
use tokio::time::Instant;

use super::availability::{self, TargetPodList};
use super::rollout::{blocking_pdb_of, read_target_objects};
use super::target_faults::forbidden_fault;
use crate::binding::deleted::DeletedBinding;
use crate::binding::{KindAvailability, OurTemplateFields, TargetState};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::rollout::{ObservedUnbinding, TargetObject, Unresolved};
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};
use crate::record::{ActorRecord, Key};

/// What an actor being deleted leaves behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftBehind {
    /// Its objects (FW-23).
    pub(super) orphans: bool,
    /// Its queues, which stay at the broker.
    pub(super) keeps_queues: bool,
}

/// Observes the pods of an actor being deleted; returns `None` while that is not possible yet.
pub(super) async fn observe(
    context: &Context,
    actor: &ActorRecord,
    left_behind: LeftBehind,
    rollout: BindingRollout,
    annotated: &[RollAnnotation],
) -> Result<Option<ObservedUnbinding>, Error> {
    let key = &actor.metadata.key;
    let lookup = look_up_target(context, actor).await;
    let opted_out = actor.annotations.skip_unbind || left_behind.orphans;
    // A sidecar without a queue fails the model's pod, so it may stay only if the queue is retained.
    let may_keep_sidecar = rollout == BindingRollout::OnRestart && left_behind.keeps_queues;
    // A stopped target has no pods, and nothing would scale it once it is started again (SAFE-24).
    let is_stopped = matches!(lookup, Ok(TargetLookup::Stopped(_)));
    if opted_out || (may_keep_sidecar && !is_stopped) {
        return observe_kept_sidecars(context, actor, lookup, opted_out).await;
    }
    let injected = InjectedPods::of_actor(context, key, &actor.metadata.uid);
    let mut unbinding = ObservedUnbinding {
        pods: injected.managed,
        unmanaged_pod: injected.unmanaged,
        has_terminating: injected.has_terminating,
        ..ObservedUnbinding::default()
    };
    match lookup? {
        TargetLookup::NotSynced => return Ok(None),
        TargetLookup::NotFound => {}
        TargetLookup::Unresolved(unresolved) => unbinding.unresolved = Some(unresolved),
        TargetLookup::Stopped(object) => unbinding.find_handoff(context, key, object).await?,
        TargetLookup::Found(found) => unbinding.observe_target(context, actor, found).await?,
    }
    // An older actor has annotated the same objects, and removes its annotation itself.
    if context.bindings.older_binding(key).is_none() {
        unbinding
            .find_stale_annotations(context, &key.namespace, annotated)
            .await?;
    }
    if unbinding.may_have_sidecars() {
        unbinding.skip = is_namespace_ending(context, &key.namespace).await?;
    }
    Ok(Some(unbinding))
}

/// Observes what is undone even if the sidecars stay; returns `None` while that is not possible yet.
async fn observe_kept_sidecars(
    context: &Context,
    actor: &ActorRecord,
    lookup: Result<TargetLookup, Error>,
    opted_out: bool,
) -> Result<Option<ObservedUnbinding>, Error> {
    let mut unbinding = ObservedUnbinding {
        skip: true,
        ..ObservedUnbinding::default()
    };
    let is_synced = unbinding
        .find_actor_annotation(context, actor, lookup)
        .await;
    // The user opted out of unbinding, so a target that cannot be read must not block the deletion.
    if !opted_out && !is_synced? {
        return Ok(None);
    }
    Ok(Some(unbinding))
}

/// Whether the namespace is gone or being deleted, and its pods with it.
async fn is_namespace_ending(context: &Context, name: &str) -> Result<bool, Error> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(name).await.map_err(Error::Api)?;
    Ok(namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
}

/// Observes the pods that got the sidecar of a binding after its actor was gone; `None` if there are none.
pub async fn observe_leftover(
    context: &Context,
    key: &Key,
    deleted: &DeletedBinding,
) -> Result<Option<ObservedUnbinding>, Error> {
    let injected = InjectedPods::of_actor(context, key, &deleted.actor_uid);
    if injected.managed.is_empty() {
        return Ok(None);
    }
    let read_at = Instant::now();
    let mut unbinding = ObservedUnbinding {
        pods: injected.managed,
        has_terminating: injected.has_terminating,
        objects: read_target_objects(context, key, &deleted.target)
            .await?
            .objects,
        ..ObservedUnbinding::default()
    };
    unbinding
        .read_availability(context, key, &deleted.target, read_at)
        .await?;
    Ok(Some(unbinding))
}

/// The pods with an actor's sidecar.
struct InjectedPods {
    /// Those that are not terminating and have a controller.
    managed: Vec<PodToReplace>,
    /// The name of a pod that is not terminating and has none: a user took it out of its workload, or created it.
    unmanaged: Option<Box<str>>,
    /// Whether another one is terminating.
    has_terminating: bool,
}

impl InjectedPods {
    fn of_actor(context: &Context, key: &Key, actor_uid: &str) -> Self {
        let mut pods = context.stores.pods.of_actor(key);
        pods.retain(|pod| {
            let injection = pod.injection.as_ref();
            !pod.finished && injection.is_some_and(|injection| *injection.by == *actor_uid)
        });
        let (terminating, active): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|pod| pod.metadata.deleting);
        let (managed, unmanaged): (Vec<_>, Vec<_>) = active
            .into_iter()
            .partition(|pod| pod.metadata.controller.is_some());
        let managed = managed.into_iter().map(|pod| PodToReplace {
            name: pod.metadata.key.name.as_ref().into(),
            uid: pod.metadata.uid.clone(),
            created: pod.created.clone(),
            sidecar: SidecarState::Outdated,
        });
        let unmanaged = unmanaged.iter().map(|pod| &pod.metadata.key.name).min();
        Self {
            managed: managed.collect(),
            unmanaged: unmanaged.map(|name| (**name).into()),
            has_terminating: !terminating.is_empty(),
        }
    }
}

impl ObservedUnbinding {
    /// Observes an existing target. Of one that an older actor binds, only our fields of the pod template are undone.
    async fn observe_target(
        &mut self,
        context: &Context,
        actor: &ActorRecord,
        found: FoundTarget,
    ) -> Result<(), Error> {
        let key = &actor.metadata.key;
        let target = found.target;
        let our_fields = found.our_template_fields;
        let owns_template = our_fields.is_some_and(|it| it.may_belong_to(&actor.metadata.uid));
        self.scaled_to_zero = found.replicas == Some(0);
        let read_at = Instant::now();
        self.objects = read_target_objects(context, key, &target).await?.objects;
        for target_object in &mut self.objects {
            target_object.in_template = owns_template && target_object.object == target.workload;
        }
        let slots = &context.rollout_slots;
        self.limits.has_slot = slots.can_acquire(key, clock::now());
        self.limits.refused_eviction = slots.refused_eviction(key, clock::now());
        // Giving up our fields replaces pods without the sidecar, too.
        let uid = &*actor.metadata.uid;
        let has_annotation = self.objects.iter().any(TargetObject::has_annotation);
        let has_fields =
            has_annotation || self.objects.iter().any(|it| it.has_template_fields_of(uid));
        if has_fields || !self.pods.is_empty() {
            let listed = self
                .read_availability(context, key, &target, read_at)
                .await?;
            if let Some(pod) = listed.example.filter(|_| has_annotation) {
                self.limits.blocking_pdb = blocking_pdb_of(context, key, &pod).await?;
            }
        }
        if context.bindings.older_binding(key).is_none() {
            self.roll = Some(target.roll.clone());
            self.scaled = Some(target.scaled().clone());
        } else {
            self.objects.retain(|it| it.object == target.workload);
            self.objects
                .iter_mut()
                .for_each(TargetObject::keep_template_fields_only);
        }
        self.target = Some(target);
        Ok(())
    }

    fn may_have_sidecars(&self) -> bool {
        !self.pods.is_empty()
            || self.unmanaged_pod.is_some()
            || self.has_terminating
            || self.unresolved.is_some()
    }

    /// Reads the availability of the target's pods. Its objects were requested at `read_at`.
    async fn read_availability(
        &mut self,
        context: &Context,
        key: &Key,
        target: &Target,
        read_at: Instant,
    ) -> Result<TargetPodList, Error> {
        let listed = availability::observe(context, key, target, &self.objects, read_at).await?;
        self.availability = Some(listed.availability.clone());
        Ok(listed)
    }

    /// Finds what is undone even if the sidecars stay: the number of replicas, and the annotation that names the actor
    /// (BIND-47). Returns `false` while the caches have not synced.
    async fn find_actor_annotation(
        &mut self,
        context: &Context,
        actor: &ActorRecord,
        lookup: Result<TargetLookup, Error>,
    ) -> Result<bool, Error> {
        let target = match lookup? {
            TargetLookup::Found(found) => found.target,
            TargetLookup::NotSynced => return Ok(false),
            _ => return Ok(true),
        };
        self.scaled = Some(target.scaled().clone());
        let key = &actor.metadata.key;
        if context.bindings.older_binding(key).is_none() {
            self.objects = read_target_objects(context, key, &target).await?.objects;
            self.objects.retain(|it| it.has_actor_annotation);
        }
        Ok(true)
    }

    /// Finds our handoff annotation on a stopped target, so that it is removed although there is neither a workload nor
    /// a pod.
    async fn find_handoff(
        &mut self,
        context: &Context,
        key: &Key,
        object: ObjectRef,
    ) -> Result<(), Error> {
        if context.bindings.older_binding(key).is_some() {
            return Ok(());
        }
        let body = context
            .bindings
            .read_object(&context.client, &key.namespace, &object);
        let body = body.await.map_err(Error::Api)?;
        // Use the API version that the server returned, not the one that the actor names.
        let served = body.and_then(|body| Some((ObjectRef::of(&body)?, body)));
        let target_object =
            served.map(|(object, body)| TargetObject::from_body(&object, &body, None));
        if let Some(target_object) = target_object.filter(|it| it.handed_off) {
            self.stale_objects.push(target_object.object.clone());
            self.objects.push(target_object);
        }
        Ok(())
    }

    /// Reads objects that status lists as annotated but that no longer belong to the target (SAFE-19).
    pub(super) async fn find_stale_annotations(
        &mut self,
        context: &Context,
        namespace: &str,
        annotated: &[RollAnnotation],
    ) -> Result<(), Error> {
        for annotation in annotated {
            let object = ObjectRef {
                api_version: annotation.api_version.clone(),
                kind: annotation.kind.clone(),
                name: annotation.name.clone(),
                uid: annotation.uid.clone(),
            };
            let is_same = |candidate: &TargetObject| {
                (&candidate.object.kind, &candidate.object.name)
                    == (&annotation.kind, &annotation.name)
            };
            if self.objects.iter().any(is_same) {
                continue;
            }
            let body = context
                .bindings
                .read_object(&context.client, namespace, &object);
            let body = body.await.map_err(Error::Api)?;
            let uid = |body: &Value| body["metadata"]["uid"].as_str().map(str::to_owned);
            let path: Vec<_> = annotation.path.split('.').collect();
            let target_object = body.filter(|body| uid(body) == annotation.uid);
            let target_object =
                target_object.map(|body| TargetObject::from_body(&object, &body, Some(&path)));
            if let Some(target_object) = target_object.filter(|it| it.roll_value.is_some()) {
                self.stale_objects.push(object);
                self.objects.push(target_object);
            }
        }
        Ok(())
    }
}

/// Result of looking up the target of an actor being deleted.
enum TargetLookup {
    /// Not known yet.
    NotSynced,
    /// There is no target, or none that needs cleaning up.
    NotFound,
    /// The target exists, but has no workload because its user stopped it.
    Stopped(ObjectRef),
    /// The target exists, but its pods cannot be determined, for this reason.
    Unresolved(Unresolved),
    Found(FoundTarget),
}

/// The target of an actor being deleted.
struct FoundTarget {
    target: Box<Target>,
    /// The fields of its pod template that we own.
    our_template_fields: Option<OurTemplateFields>,
    replicas: Option<i32>,
}

async fn look_up_target(context: &Context, actor: &ActorRecord) -> Result<TargetLookup, Error> {
    let bindings = &context.bindings;
    let key = &actor.metadata.key;
    let Some(target) = bindings.target_of(key) else {
        return Ok(TargetLookup::NotFound);
    };
    let state = bindings.read_target(&context.client, &target);
    Ok(match state.await.map_err(Error::Api)? {
        TargetState::NotSynced => TargetLookup::NotSynced,
        // An older actor, which binds the target, waits for the rule.
        TargetState::KindUnavailable(KindAvailability::Forbidden(rule))
            if bindings.older_binding(key).is_none() =>
        {
            let fault = forbidden_fault(&target.kind, &rule);
            TargetLookup::Unresolved(Unresolved::Forbidden(fault.message))
        }
        TargetState::NotFound | TargetState::KindUnavailable(_) => TargetLookup::NotFound,
        TargetState::Present(snapshot) => match &snapshot.resolution {
            Resolution::Found(target) => TargetLookup::Found(FoundTarget {
                target: target.clone(),
                our_template_fields: snapshot.our_template_fields.clone(),
                replicas: snapshot.replicas,
            }),
            // An unresolved target that an older actor binds must not block this deletion.
            Resolution::Waiting(_) | Resolution::Refused(_)
                if bindings.older_binding(key).is_some() =>
            {
                TargetLookup::NotFound
            }
            Resolution::Waiting(finding) if finding.reason == FindingReason::TargetStopped => actor
                .binds_to
                .as_ref()
                .map_or(TargetLookup::NotFound, |target_ref| {
                    TargetLookup::Stopped(ObjectRef {
                        api_version: target_ref.api_version.clone(),
                        kind: target_ref.kind.clone(),
                        name: target_ref.name.clone(),
                        uid: Some(snapshot.uid.clone().into_string()),
                    })
                }),
            Resolution::Waiting(finding) | Resolution::Refused(finding) => {
                TargetLookup::Unresolved(Unresolved::Target(finding.message.clone()))
            }
        },
    })
}
