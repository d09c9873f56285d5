//! Watches for bindings: each kind in a namespace from its first binding to its last (BIND-60 to BIND-62).

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::resolve::GroupKind;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use super::index::{Place, What};
use super::targets::TargetWatch;
use crate::health::Readiness;
use crate::operator::Operator;
use crate::record::{BarePodRecord, Record, TargetRecord};
use crate::store::Scope;
use crate::watch::{Keeps, Selector, Watch};

/// Pods that the watch of actors' pods does not show.
pub(super) const UNLABELLED: &str = "!asya.sh/asya";

/// Runs the watches that the bindings need, for ever.
pub async fn follow(operator: Operator, client: Client) {
    let bindings = Arc::clone(&operator.context.bindings);
    let mut places = bindings.places();
    let mut running: BTreeMap<Place, JoinSet<()>> = BTreeMap::new();
    loop {
        let wanted = places.borrow_and_update().clone();
        // What is new begins before what is old ends: some of it is the same.
        for place in &wanted {
            if !running.contains_key(place) {
                let task = start(&operator, &client, place);
                running.extend(task.map(|task| (place.clone(), task)));
            }
        }
        running.retain(|place, _| {
            let stays = wanted.contains(place);
            if !stays && place.what == What::Pods {
                bindings.pods.forget(&place.scope);
            }
            stays
        });
        if places.changed().await.is_err() {
            return;
        }
    }
}

/// It ends when it is dropped. `None` for a kind that cannot be watched.
fn start(operator: &Operator, client: &Client, place: &Place) -> Option<JoinSet<()>> {
    let Place { what, scope } = place;
    let bindings = &operator.context.bindings;
    match what {
        What::Pods => {
            let store: Arc<dyn Keeps<BarePodRecord>> = bindings.clone();
            Some(run(operator, client, scope, store, Some(UNLABELLED)))
        }
        What::Targets(kind) => match (kind.group, kind.kind) {
            ("apps", "Deployment") => {
                Some(run_targets::<Deployment>(operator, client, scope, *kind))
            }
            ("apps", "StatefulSet") => {
                Some(run_targets::<StatefulSet>(operator, client, scope, *kind))
            }
            _ => None,
        },
    }
}

fn run_targets<K>(
    operator: &Operator,
    client: &Client,
    scope: &Scope,
    kind: GroupKind<'static>,
) -> JoinSet<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    let store = TargetWatch::<K>::new(&operator.context.bindings, kind);
    let store: Arc<dyn Keeps<TargetRecord<K>>> = Arc::new(store);
    run(operator, client, scope, store, None)
}

fn run<R>(
    operator: &Operator,
    client: &Client,
    scope: &Scope,
    store: Arc<dyn Keeps<R>>,
    labels: Option<&'static str>,
) -> JoinSet<()>
where
    R: Record,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let api = match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let watch = Watch {
        api,
        scope: scope.clone(),
        selector: Selector {
            labels: labels.map(Into::into),
            ..Selector::default()
        },
        served: None,
        store,
        // Bindings come and go: whether the controller is ready does not depend on them.
        gate: Readiness::default().gate("binding"),
        metrics: Arc::clone(&operator.context.metrics),
    };
    let operator = operator.clone();
    let mut task = JoinSet::new();
    task.spawn(watch.run(move |concerns| operator.wake(concerns)));
    task
}
