//! What of an actor that goes is still in the pods of its target (BIND-43).

use asya_shared::api::BindingRollout;
use asya_shared::resolve::{ObjectRef, Resolution, Roll, Target};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::DeletionPolicy;
use super::rollout::lives;
use crate::binding::{Found, TemplatePart};
use crate::reconcile::bound_pods::{Lacking, Lacks};
use crate::reconcile::plan::roll::Live;
use crate::reconcile::{Context, Error};
use crate::record::ActorRecord;

/// What is left of a binding.
#[derive(Clone, Debug, Default)]
pub struct UnbindingSeen {
    /// The user, or the end of the namespace, makes it needless to take it back.
    pub skip: bool,
    /// Pods with the actor's sidecar that stay.
    pub pods: Vec<Lacking>,
    /// Such a pod is going.
    pub going: bool,
    /// How the target's pods are replaced.
    pub roll: Option<Roll>,
    /// What the queue scaled, where it could.
    pub scaled: Option<ObjectRef>,
    /// What was annotated, and what is rolled by that.
    pub live: Vec<Live>,
}

/// Looks at the pods of an actor that goes; `None` while nobody can tell.
pub(super) async fn see(
    context: &Context,
    actor: &ActorRecord,
    deletion: &DeletionPolicy,
    rollout: BindingRollout,
) -> Result<Option<UnbindingSeen>, Error> {
    let key = &actor.metadata.key;
    let mut seen = UnbindingSeen::default();
    // A sidecar without a queue fails the model's pod: only where the queue stays may it stay, too.
    let stays = rollout == BindingRollout::OnRestart && deletion.retains_queue;
    if actor.annotations.skip_unbind || deletion.orphans || stays {
        // What cannot be told holds up nobody who asked for this.
        let target = target(context, actor).await.ok().flatten().flatten();
        seen.scaled = target.and_then(|(target, _)| target.scale.object().cloned());
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
            seen.pods.push(Lacking {
                name: pod.metadata.key.name.as_ref().into(),
                uid: pod.metadata.uid.clone(),
                created: pod.created.clone(),
                lacks: Lacks::Today,
            });
        }
    }
    let Some(target) = target(context, actor).await? else {
        return Ok(None);
    };
    if let Some((target, part)) = target {
        let templated = part.is_some_and(|it| it.is_of(&actor.metadata.uid));
        seen.live = lives(context, key, &target).await?.0;
        for live in &mut seen.live {
            live.templated = templated && live.object == target.workload;
        }
        if context.bindings.owner_before(key).is_none() {
            seen.roll = Some(target.roll.clone());
            seen.scaled = target.scale.object().cloned();
        } else {
            seen.live.retain(|it| it.object == target.workload);
            seen.live.iter_mut().for_each(Live::of_another);
        }
    }
    if !seen.pods.is_empty() || seen.going {
        let namespaces: Api<Namespace> = Api::all(context.client.clone());
        let namespace = namespaces
            .get_opt(&key.namespace)
            .await
            .map_err(Error::Api)?;
        seen.skip = namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
    }
    Ok(Some(seen))
}

/// With what we own of its pod template. The outer `None`: nobody can tell yet.
async fn target(
    context: &Context,
    actor: &ActorRecord,
) -> Result<Option<Option<(Target, Option<TemplatePart>)>>, Error> {
    let bindings = &context.bindings;
    let key = &actor.metadata.key;
    let Some(target) = bindings.target_of(key) else {
        return Ok(Some(None));
    };
    let found = bindings.read(&context.client, &target);
    Ok(match found.await.map_err(Error::Api)? {
        Found::NotYet => None,
        Found::Absent | Found::OfKind(_) => Some(None),
        Found::Read(reading) => Some(match &reading.resolution {
            Resolution::Found(target) => Some((Target::clone(target), reading.templated.clone())),
            // What an older actor waits for holds nobody up.
            Resolution::Waiting(_) | Resolution::Refused(_) => {
                return Ok(bindings.owner_before(key).map(|_| None));
            }
        }),
    })
}
