//! `ConfigMap`s that the actors of a namespace share, at the end of one of them (RUN-2, SAFE-33).

use asya_shared::names::{is_shared_config_map, label};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tracing::info;

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::observed::Observed;
use crate::record::Key;

/// Pods that have ended never mount anything again.
const LIVE: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// What becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Somebody needs them, or may: they are looked at again.
    Stay,
    /// What needs them outlives every actor (FW-23).
    Outlive,
    /// Nobody needs them.
    Go,
}

/// What decides that.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Facts {
    /// What the actor made is to stay.
    orphans: bool,
    /// A pod template keeps our containers, whose pods come and go.
    template_stays: bool,
    /// Other actors of the namespace live.
    others: bool,
    /// A pod is there that may mount them.
    mounted: bool,
}

fn fate(facts: Facts) -> Fate {
    if facts.orphans || facts.template_stays {
        Fate::Outlive
    } else if facts.others || facts.mounted {
        Fate::Stay
    } else {
        Fate::Go
    }
}

/// What actors share goes with the last one of its namespace (RUN-2), unless pods stay that mount it.
pub(super) async fn release(context: &Context, observed: &Observed) -> Result<(), Error> {
    let key = observed.key();
    let mut facts = Facts {
        orphans: observed.deletion.orphans,
        template_stays: template_stays(observed),
        others: lives_another(context, key),
        mounted: false,
    };
    let is_last = fate(facts) == Fate::Go && has_shared(context, &key.namespace);
    if is_last {
        // Pods of a workload of ours go with it.
        let own = observed.actor.binds_to.is_none().then_some(&*key.name);
        facts.mounted = is_mounted(&context.client, &key.namespace, own).await?;
    }
    settle(context, &key.namespace, fate(facts)).await
}

/// Removes them from a namespace without actors once no pod can mount them any more. Answers whether they are gone.
///
/// # Errors
/// When the API server does not tell, or fails.
pub async fn sweep(context: &Context, namespace: &str) -> Result<bool, Error> {
    if is_mounted(&context.client, namespace, None).await? {
        return Ok(false);
    }
    // An actor that has come meanwhile needs them.
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

/// Whether `ConfigMap`s are left that go with the last actor, as far as watches show.
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

/// One that goes, too, does not count, unless it still works: of several at once none would be the last.
fn lives_another(context: &Context, key: &Key) -> bool {
    let actors = &context.stores.actors;
    let stays = |other: &Key| {
        let actor = actors.get(other).filter(|_| other != key);
        actor.is_some_and(|actor| actor.works())
    };
    actors.keys_in(&key.namespace).iter().any(stays)
}

/// Whether an actor that goes leaves its part of a target's pod template there.
fn template_stays(observed: &Observed) -> bool {
    let seen = observed.binding.as_ref();
    let unbinding = seen.and_then(|it| it.unbinding.as_ref());
    unbinding.is_some_and(|it| it.skip) && observed.previous.template.is_some()
}

/// Whether a pod may mount them: one with an actor's label that has not ended and is not being deleted, of another actor
/// than this one. The API server itself is asked: a pod whose `ConfigMap` is gone never starts again.
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
    use super::{Facts, Fate, fate};

    /// SAFE-33, RUN-2, FW-23
    #[test]
    fn what_pods_mount_goes_with_the_last_of_them_and_not_with_the_last_actor() {
        let none = Facts::default();
        let others = Facts {
            others: true,
            ..none
        };
        let mounted = Facts {
            mounted: true,
            ..none
        };
        for (facts, wanted) in [
            (none, Fate::Go),
            (others, Fate::Stay),
            (mounted, Fate::Stay),
            (
                Facts {
                    orphans: true,
                    ..none
                },
                Fate::Outlive,
            ),
            (
                Facts {
                    orphans: true,
                    ..others
                },
                Fate::Outlive,
            ),
            (
                Facts {
                    template_stays: true,
                    ..none
                },
                Fate::Outlive,
            ),
            (
                Facts {
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
