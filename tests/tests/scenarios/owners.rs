//! The simulated owners follow the write rules of their systems: which changes they revert, and which they keep.

mod argo;
mod conflicts;
mod kaito;
mod knative;
mod kserve;
mod last_applied;
mod llmisvc;
mod ray;
mod sidecar_remover;
mod template;

use std::collections::BTreeSet;

use asya_tests::Result;
use asya_tests::owners::{Kind, Owner, Reconciler, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

/// A user other than the owner and the operator.
fn somebody(scenario: &Scenario) -> RecordingClient {
    RecordingClient::new(scenario.client(), scenario.namespace(), "somebody")
}

/// Starts an owner, and lets it reconcile a target created by a user.
async fn owner_of(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target): (Kind, &Value),
) -> Result<Owner> {
    crds::install(scenario.cluster(), &[kind]).await?;
    somebody(scenario).create(kind, target).await?;
    let owner = Owner::start(scenario, reconciler);
    owner.rounds(1).await?;
    Ok(owner)
}

/// Changes a target as a user would with `kubectl edit`.
pub(crate) async fn edit(scenario: &Scenario, kind: Kind, name: &str, patch: &Value) -> Result<()> {
    let somebody = somebody(scenario);
    let live = somebody.get(kind, name).await?.unwrap_or_default();
    somebody.merge(kind, &live, patch).await?;
    Ok(())
}

/// Adds a foreign entry to each part of a workload, at the end of lists.
async fn add_foreign_entries(scenario: &Scenario, kind: Kind, name: &str) -> Result<()> {
    let somebody = somebody(scenario);
    let mut live = somebody.get(kind, name).await?.unwrap_or_default();
    // Overwrite concurrent changes: only what happens afterwards matters.
    live["metadata"]["resourceVersion"] = Value::Null;
    live["spec"]["replicas"] = json!(3);
    let add = |map: &mut Value| {
        if !map.is_object() {
            *map = json!({});
        }
        map["foreign.example.com/x"] = json!("yes");
    };
    add(&mut live["metadata"]["annotations"]);
    let template = &mut live["spec"]["template"];
    add(&mut template["metadata"]["annotations"]);
    add(&mut template["metadata"]["labels"]);
    let push = |list: &mut Value, item: Value| {
        if !list.is_array() {
            *list = json!([]);
        }
        list.as_array_mut().unwrap().push(item);
    };
    let pod = &mut template["spec"];
    let container = json!({"name": "foreign", "image": "foreign:1"});
    push(&mut pod["containers"], container);
    push(
        &mut pod["volumes"],
        json!({"name": "foreign", "emptyDir": {}}),
    );
    somebody.put(kind, &live).await?;
    Ok(())
}

/// The foreign entries that are left.
async fn left(scenario: &Scenario, kind: Kind, name: &str) -> Result<BTreeSet<&'static str>> {
    let live = somebody(scenario).get(kind, name).await?;
    let live = live.unwrap_or_default();
    let template = &live["spec"]["template"];
    let has = |map: &Value| map.get("foreign.example.com/x").is_some();
    let lists = |list: &Value| {
        let items = list.as_array();
        items.is_some_and(|items| items.iter().any(|it| it["name"] == "foreign"))
    };
    let parts = [
        ("metadata", has(&live["metadata"]["annotations"])),
        ("replicas", live["spec"]["replicas"] == 3),
        ("annotation", has(&template["metadata"]["annotations"])),
        ("label", has(&template["metadata"]["labels"])),
        ("container", lists(&template["spec"]["containers"])),
        ("volume", lists(&template["spec"]["volumes"])),
    ];
    let left = parts.into_iter().filter(|(_, is_there)| *is_there);
    Ok(left.map(|(part, _)| part).collect())
}

/// All entries added by [`add_foreign_entries`].
const ALL: [&str; 6] = [
    "metadata",
    "replicas",
    "annotation",
    "label",
    "container",
    "volume",
];

/// All entries except these.
fn all_but(gone: &[&str]) -> BTreeSet<&'static str> {
    ALL.into_iter().filter(|it| !gone.contains(it)).collect()
}
