//! What of an actor that goes is still in the pods of its target (BIND-43).

use std::time::Duration;

use asya_shared::api::BindingRollout;
use asya_shared::resolve::{ObjectRef, Resolution, Roll, Target};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use super::DeletionPolicy;
use super::rollout::lives;
use crate::binding::{Found, TemplatePart};
use crate::reconcile::bound_pods::{Lacking, Lacks};
use crate::reconcile::plan::roll::{Live, REPLACED};
use crate::reconcile::{Context, Error};
use crate::record::{ActorRecord, Key};

/// What is left of a binding.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about what is left"
)]
pub struct UnbindingSeen {
    /// The user, or the end of the namespace, makes it needless to take it back.
    pub skip: bool,
    /// Pods with the actor's sidecar that stay.
    pub pods: Vec<Lacking>,
    /// Such a pod is going.
    pub going: bool,
    /// What came in place of one is not ready yet.
    pub starting: bool,
    /// The target asks for no pods.
    pub asleep: bool,
    /// How the target's pods are replaced.
    pub roll: Option<Roll>,
    /// What the queue scaled, where it could.
    pub scaled: Option<ObjectRef>,
    /// What was annotated, and what is rolled by that.
    pub live: Vec<Live>,
    /// Why nobody knows what the target's pods are.
    pub unresolved: Option<String>,
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
        if let Ok(Looked::Found(target, ..)) = target(context, actor).await {
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
            seen.pods.push(Lacking {
                name: pod.metadata.key.name.as_ref().into(),
                uid: pod.metadata.uid.clone(),
                created: pod.created.clone(),
                lacks: Lacks::Today,
            });
        }
    }
    let target = match target(context, actor).await? {
        Looked::NotYet => return Ok(None),
        Looked::Gone => None,
        Looked::Unresolved(why) => {
            seen.unresolved = Some(why);
            None
        }
        Looked::Found(target, part, replicas) => {
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
        seen.starting = seen.live.iter().any(|it| it.unready) && is_fresh(context, key, &target);
        if context.bindings.owner_before(key).is_none() {
            seen.roll = Some(target.roll.clone());
            seen.scaled = target.scale.object().cloned();
        } else {
            seen.live.retain(|it| it.object == target.workload);
            seen.live.iter_mut().for_each(Live::of_another);
        }
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

/// Whether a pod without the sidecar is so new that it may be waited for.
fn is_fresh(context: &Context, key: &Key, target: &Target) -> bool {
    let now = Timestamp::now();
    let bare = context.bindings.pods.of(&key.namespace, &target.pods);
    bare.into_iter().flatten().any(|pod| {
        let age = pod.created.as_ref().map(|it| now.duration_since(it.0));
        let age = age.and_then(|it| Duration::try_from(it).ok());
        !pod.metadata.deleting && age.is_none_or(|it| it < REPLACED)
    })
}

/// What is known of the target of an actor that goes.
enum Looked {
    /// Nobody can tell yet.
    NotYet,
    /// There is none, or none that is to be looked at.
    Gone,
    /// It is there, and this is why nobody can tell what its pods are.
    Unresolved(String),
    /// With what we own of its pod template, and the number of pods that it asks for.
    Found(Box<Target>, Option<TemplatePart>, Option<i32>),
}

async fn target(context: &Context, actor: &ActorRecord) -> Result<Looked, Error> {
    let bindings = &context.bindings;
    let key = &actor.metadata.key;
    let Some(target) = bindings.target_of(key) else {
        return Ok(Looked::Gone);
    };
    let found = bindings.read(&context.client, &target);
    Ok(match found.await.map_err(Error::Api)? {
        Found::NotYet => Looked::NotYet,
        Found::Absent | Found::OfKind(_) => Looked::Gone,
        Found::Read(reading) => match &reading.resolution {
            Resolution::Found(target) => {
                Looked::Found(target.clone(), reading.templated.clone(), reading.replicas)
            }
            // What an older actor waits for holds nobody up.
            Resolution::Waiting(_) | Resolution::Refused(_)
                if bindings.owner_before(key).is_some() =>
            {
                Looked::Gone
            }
            Resolution::Waiting(finding) | Resolution::Refused(finding) => {
                Looked::Unresolved(finding.message.clone())
            }
        },
    })
}
