//! Cleans up the `ConfigMap`s shared by the actors of a namespace when an actor is deleted (RUN-2, SAFE-33).

use asya_shared::names::{is_shared_config_map, label};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tracing::info;

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::observed::Observed;
use crate::record::Key;

/// Excludes terminated pods, which never mount anything again.
const LIVE: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// What to do with the shared `ConfigMap`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Still needed, or possibly so: check again later.
    Stay,
    /// Needed by something that outlives every actor (FW-23).
    Outlive,
    /// No longer needed: delete them.
    Go,
}

/// Inputs to [`fate`].
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct SharedConfigMapFacts {
    /// The actor's objects are orphaned, not deleted.
    orphans: bool,
    /// A pod template keeps our containers, so pods that mount them are still to be created.
    template_stays: bool,
    /// Other actors of the namespace still work.
    others: bool,
    /// A live pod may mount them.
    mounted: bool,
}

fn fate(facts: SharedConfigMapFacts) -> Fate {
    if facts.orphans || facts.template_stays {
        Fate::Outlive
    } else if facts.others || facts.mounted {
        Fate::Stay
    } else {
        Fate::Go
    }
}

/// Deletes the shared `ConfigMap`s with the last actor of the namespace, unless remaining pods mount them (RUN-2).
pub(super) async fn release(context: &Context, observed: &Observed) -> Result<(), Error> {
    let key = observed.key();
    let mut facts = SharedConfigMapFacts {
        orphans: observed.deletion.orphans,
        template_stays: template_stays(observed),
        others: lives_another(context, key),
        mounted: false,
    };
    let is_last = fate(facts) == Fate::Go && has_shared(context, &key.namespace);
    if is_last {
        // Pods of our own workload are deleted with it, so they do not count.
        let own = observed.actor.binds_to.is_none().then_some(&*key.name);
        facts.mounted = is_mounted(&context.client, &key.namespace, own).await?;
    }
    settle(context, &key.namespace, fate(facts)).await
}

/// Deletes the shared `ConfigMap`s of a namespace without actors once no pod can mount them. Returns whether they were
/// deleted.
///
/// # Errors
/// When the API server fails.
pub async fn sweep(context: &Context, namespace: &str) -> Result<bool, Error> {
    if is_mounted(&context.client, namespace, None).await? {
        return Ok(false);
    }
    // An actor created in the meantime needs them.
    if !context.stores.actors.keys_in(namespace).is_empty() {
        return Ok(false);
    }
    settle(context, namespace, Fate::Go).await?;
    info!(
        namespace,
        "shared ConfigMaps are removed: no pod mounts them any more"
    );
    Ok(true)
}

/// Returns whether the watches show `ConfigMap`s that are deleted with the last actor.
pub fn has_shared(context: &Context, namespace: &str) -> bool {
    let store = &context.config_maps.objects.store;
    let mut left = store.keys_in(namespace).into_iter();
    left.any(|key| {
        is_shared_config_map(&key.name)
            && !context.runtime.is_at_home(&key)
            && store.get(&key).is_some_and(|it| !it.orphaned)
    })
}

async fn settle(context: &Context, namespace: &str, fate: Fate) -> Result<(), Error> {
    if fate == Fate::Stay {
        return Ok(());
    }
    let labelled = context.config_maps.objects.store.keys_in(namespace);
    for shared in labelled
        .into_iter()
        .filter(|key| is_shared_config_map(&key.name))
    {
        if fate == Fate::Outlive {
            context.config_maps.orphan(&shared).await?;
        } else if !context.runtime.is_at_home(&shared) {
            context.config_maps.remove(&shared).await?;
        }
    }
    Ok(())
}

/// Actors being deleted do not count unless they still work; otherwise none of several deleted at once would be the
/// last.
fn lives_another(context: &Context, key: &Key) -> bool {
    let actors = &context.stores.actors;
    let stays = |other: &Key| {
        let actor = actors.get(other).filter(|_| other != key);
        actor.is_some_and(|actor| actor.works())
    };
    actors.keys_in(&key.namespace).iter().any(stays)
}

/// Returns whether an actor being deleted leaves its part in the target's pod template.
fn template_stays(observed: &Observed) -> bool {
    let seen = observed.binding.as_ref();
    let unbinding = seen.and_then(|it| it.unbinding.as_ref());
    unbinding.is_some_and(|it| it.skip) && observed.previous.template.is_some()
}

/// Returns whether a live pod of an actor other than `but` may mount them. Asks the API server rather than a cache,
/// because a pod whose `ConfigMap` is missing never starts.
async fn is_mounted(client: &Client, namespace: &str, but: Option<&str>) -> Result<bool, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = match but {
        Some(name) => format!("{0},{0}!={name}", label::ASYA),
        None => label::ASYA.to_owned(),
    };
    let mut params = ListParams::default()
        .labels(&selector)
        .fields(LIVE)
        .limit(100);
    loop {
        let found = pods.list_metadata(&params).await.map_err(Error::Api)?;
        let live =
            |pod: &kube::api::PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        if found.items.iter().any(live) {
            return Ok(true);
        }
        match found.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, SharedConfigMapFacts, fate};

    /// SAFE-33, RUN-2, FW-23
    #[test]
    fn shared_config_maps_outlive_the_last_actor_while_something_needs_them() {
        let none = SharedConfigMapFacts::default();
        let others = SharedConfigMapFacts {
            others: true,
            ..none
        };
        let mounted = SharedConfigMapFacts {
            mounted: true,
            ..none
        };
        for (facts, wanted) in [
            (none, Fate::Go),
            (others, Fate::Stay),
            (mounted, Fate::Stay),
            (
                SharedConfigMapFacts {
                    orphans: true,
                    ..none
                },
                Fate::Outlive,
            ),
            (
                SharedConfigMapFacts {
                    orphans: true,
                    ..others
                },
                Fate::Outlive,
            ),
            (
                SharedConfigMapFacts {
                    template_stays: true,
                    ..none
                },
                Fate::Outlive,
            ),
            (
                SharedConfigMapFacts {
                    template_stays: true,
                    ..mounted
                },
                Fate::Outlive,
            ),
        ] {
            assert_eq!(fate(facts), wanted, "{facts:?}");
        }
    }
}
