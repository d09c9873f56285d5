//! Observes what an actor being deleted still has in the pods of its target (BIND-43).

use asya_shared::api::{BindingRollout, RollAnnotation};
use asya_shared::resolve::{FindingReason, ObjectRef, Resolution, Target};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;

use super::availability;
use super::rollout::lives;
use crate::binding::{Found, TemplatePart};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};
use crate::reconcile::model::observed::DeletionPolicy;
use crate::reconcile::model::rollout::Live;
use crate::reconcile::model::rollout::UnbindingSeen;
use crate::record::{ActorRecord, Key};

/// Observes the pods of an actor being deleted; returns `None` while that is not possible yet.
pub(super) async fn see(
    context: &Context,
    actor: &ActorRecord,
    (deletion, rollout): (&DeletionPolicy, BindingRollout),
    annotated: &[RollAnnotation],
) -> Result<Option<UnbindingSeen>, Error> {
    let key = &actor.metadata.key;
    let mut seen = UnbindingSeen::default();
    // A sidecar without a queue fails the model's pod, so it may stay only if the queue is retained.
    let stays = rollout == BindingRollout::OnRestart && deletion.retains_queue;
    if actor.annotations.skip_unbind || deletion.orphans || stays {
        // The user opted out of unbinding, so a target that cannot be read must not block the deletion.
        if let Ok(TargetLookup::Found(target, ..)) = target(context, actor).await {
            seen.scaled = target.scale.object().cloned();
        }
        seen.skip = true;
        return Ok(Some(seen));
    }
    for pod in context.stores.pods.of_actor(key) {
        let injection = pod.injection.as_ref();
        let is_ours = injection.is_some_and(|it| *it.by == *actor.metadata.uid);
        if pod.finished || !is_ours {
            continue;
        }
        if pod.metadata.deleting {
            seen.going = true;
        } else {
            seen.pods.push(OutdatedPod {
                name: pod.metadata.key.name.as_ref().into(),
                uid: pod.metadata.uid.clone(),
                created: pod.created.clone(),
                lacks: Lacks::Today,
            });
        }
    }
    let target = match target(context, actor).await? {
        TargetLookup::NotYet => return Ok(None),
        TargetLookup::Gone => None,
        TargetLookup::Unresolved(why) => {
            seen.unresolved = Some(why);
            None
        }
        TargetLookup::Stopped(object) => {
            seen.release_claim(context, key, object).await?;
            None
        }
        TargetLookup::Found(target, part, replicas) => {
            seen.asleep = replicas == Some(0);
            Some((target, part))
        }
    };
    if let Some((target, part)) = target {
        let templated = part.is_some_and(|it| it.is_of(&actor.metadata.uid));
        seen.live = lives(context, key, &target).await?.0;
        for live in &mut seen.live {
            live.templated = templated && live.object == target.workload;
        }
        // Only needed if pods may be evicted.
        if !seen.pods.is_empty() {
            (seen.availability, _) = availability::see(context, key, &target, &seen.live).await?;
        }
        if context.bindings.owner_before(key).is_none() {
            seen.roll = Some(target.roll.clone());
            seen.scaled = target.scale.object().cloned();
        } else {
            seen.live.retain(|it| it.object == target.workload);
            seen.live.iter_mut().for_each(Live::of_another);
        }
    }
    // An older actor has annotated the same objects, and removes that itself.
    if context.bindings.owner_before(key).is_none() {
        seen.look_for_annotations(context, &key.namespace, annotated)
            .await?;
    }
    if !seen.pods.is_empty() || seen.going || seen.unresolved.is_some() {
        let namespaces: Api<Namespace> = Api::all(context.client.clone());
        let namespace = namespaces
            .get_opt(&key.namespace)
            .await
            .map_err(Error::Api)?;
        seen.skip = namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
    }
    Ok(Some(seen))
}

impl UnbindingSeen {
    /// Finds our claim on a stopped target, which has neither workload nor pods, so that it is removed all the same.
    async fn release_claim(
        &mut self,
        context: &Context,
        key: &Key,
        object: ObjectRef,
    ) -> Result<(), Error> {
        if context.bindings.owner_before(key).is_some() {
            return Ok(());
        }
        let body = context
            .bindings
            .body(&context.client, &key.namespace, &object);
        let body = body.await.map_err(Error::Api)?;
        // Use the API version that the server returned, not the one that the actor names.
        let served = body.and_then(|body| Some((ObjectRef::of(&body)?, body)));
        let live = served.map(|(object, body)| Live::of(&object, &body, None));
        if let Some(live) = live.filter(|it| it.claimed) {
            self.left.push(live.object.clone());
            self.live.push(live);
        }
        Ok(())
    }

    /// Reads objects that status lists as annotated but that no longer belong to the target (SAFE-19).
    pub(super) async fn look_for_annotations(
        &mut self,
        context: &Context,
        namespace: &str,
        annotated: &[RollAnnotation],
    ) -> Result<(), Error> {
        for mark in annotated {
            let object = ObjectRef {
                api_version: mark.api_version.clone(),
                kind: mark.kind.clone(),
                name: mark.name.clone(),
                uid: mark.uid.clone(),
            };
            let is_it = |it: &Live| (&it.object.kind, &it.object.name) == (&mark.kind, &mark.name);
            if self.live.iter().any(is_it) {
                continue;
            }
            let body = context.bindings.body(&context.client, namespace, &object);
            let body = body.await.map_err(Error::Api)?;
            let uid = |body: &Value| body["metadata"]["uid"].as_str().map(str::to_owned);
            let path: Vec<_> = mark.path.split('.').collect();
            let live = body.filter(|body| uid(body) == mark.uid);
            let live = live.map(|body| Live::of(&object, &body, Some(&path)));
            if let Some(live) = live.filter(|it| it.value.is_some()) {
                self.left.push(object);
                self.live.push(live);
            }
        }
        Ok(())
    }
}

/// The target of an actor being deleted.
enum TargetLookup {
    /// Not known yet.
    NotYet,
    /// There is no target, or none that needs cleaning up.
    Gone,
    /// The target exists, but has no workload because its user stopped it.
    Stopped(ObjectRef),
    /// The target exists, but its pods cannot be determined, for this reason.
    Unresolved(String),
    /// The target, the fields of its pod template that we own, and its desired replicas.
    Found(Box<Target>, Option<TemplatePart>, Option<i32>),
}

async fn target(context: &Context, actor: &ActorRecord) -> Result<TargetLookup, Error> {
    let bindings = &context.bindings;
    let key = &actor.metadata.key;
    let Some(target) = bindings.target_of(key) else {
        return Ok(TargetLookup::Gone);
    };
    let found = bindings.read(&context.client, &target);
    Ok(match found.await.map_err(Error::Api)? {
        Found::NotYet => TargetLookup::NotYet,
        Found::Absent | Found::OfKind(_) => TargetLookup::Gone,
        Found::Read(reading) => match &reading.resolution {
            Resolution::Found(target) => {
                TargetLookup::Found(target.clone(), reading.templated.clone(), reading.replicas)
            }
            // An unresolved target that an older actor binds must not block this deletion.
            Resolution::Waiting(_) | Resolution::Refused(_)
                if bindings.owner_before(key).is_some() =>
            {
                TargetLookup::Gone
            }
            Resolution::Waiting(finding) if finding.reason == FindingReason::TargetStopped => {
                actor.binds_to.as_ref().map_or(TargetLookup::Gone, |to| {
                    TargetLookup::Stopped(ObjectRef {
                        api_version: to.api_version.clone(),
                        kind: to.kind.clone(),
                        name: to.name.clone(),
                        uid: Some(reading.uid.clone().into_string()),
                    })
                })
            }
            Resolution::Waiting(finding) | Resolution::Refused(finding) => {
                TargetLookup::Unresolved(finding.message.clone())
            }
        },
    })
}
