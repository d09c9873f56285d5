//! The pods that an earlier actor of the same name left.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use serde_json::json;

use super::bound_to_web;
use crate::binding::LabelledPods;
use crate::cluster::watch::WatchSink;
use crate::reconcile::observe::pods_of;
use crate::reconcile::tests::fixtures::{actor, context, observed, spec};
use crate::record::{PodRecord, Projected};

/// BIND-43, FW-23 (e): a sidecar without a queue fails its pod.
#[tokio::test]
async fn pods_that_an_earlier_actor_left_may_receive_from_the_queue_in_whichever_mode_either_is() {
    let context = context();
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    for (name, uid, container, phase, owner) in [
        ("own", Some("actor-uid"), "asya-sidecar", "Running", "web-1"),
        (
            "bound",
            Some("earlier-uid"),
            "asya-sidecar",
            "Running",
            "web-1",
        ),
        (
            "ended",
            Some("earlier-uid"),
            "asya-sidecar",
            "Failed",
            "web-1",
        ),
        (
            "copied-annotation",
            Some("earlier-uid"),
            "model",
            "Running",
            "web-1",
        ),
        ("standalone", None, "asya-sidecar", "Running", "a-1"),
        (
            "copied-template",
            Some("earlier-uid"),
            "asya-sidecar",
            "Running",
            "a-1",
        ),
    ] {
        let annotations = uid.map(|uid| json!({"asya.sh/injected-by": uid}));
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true,
        });
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"}, "annotations": annotations.unwrap_or_else(|| json!({})),
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": "asya-runtime"}, {"name": container}]},
            "status": {"phase": phase},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&None, &pod);
    }
    labelled_pods.init_done(&None);
    let names = |mut pods: Vec<Arc<PodRecord>>| {
        pods.sort_by(|a, b| a.metadata.key.cmp(&b.metadata.key));
        let names = pods.iter().map(|it| it.metadata.key.name.to_string());
        names.collect::<Vec<_>>()
    };
    let standalone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    for (case, actor, orphaned, own, left) in [
        (
            "bound",
            bound_to_web().actor,
            None,
            &[][..],
            &["bound", "copied-template", "standalone"][..],
        ),
        (
            "standalone",
            standalone.actor.clone(),
            None,
            &["copied-template", "standalone"],
            &["bound"],
        ),
        (
            "beside an orphan",
            standalone.actor,
            Some(WorkloadKind::Deployment),
            &[],
            &["bound", "copied-template", "standalone"],
        ),
    ] {
        let (found, found_left) = pods_of(&context, &actor, orphaned);
        assert_eq!(names(found), own, "{case}");
        assert_eq!(names(found_left), left, "{case}");
    }
}
