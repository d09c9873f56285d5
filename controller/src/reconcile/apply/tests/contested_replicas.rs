//! Other writers of the target's replicas.

use super::*;
use crate::reconcile::apply::contention::find_conflict;
use crate::reconcile::plan::contested_fields::ContestedField;

const WORKLOAD: &str = "/apis/apps/v1/namespaces/ns/deployments/web";
const SCALED_OBJECT: &str = "/apis/keda.sh/v1alpha1/namespaces/ns/scaledobjects/a";
const HPA: &str = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers/keda-hpa-a";

/// A Deployment with 3 replicas that `manager` wrote, and an HPA that desires `desired`.
fn respond(request: &str, manager: &str, desired: i32) -> Option<(u16, Value)> {
    let fields = json!({"f:spec": {"f:replicas": {}}});
    let entry = json!({
        "manager": manager, "operation": "Update", "subresource": "scale", "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    let body = match request.split_once(' ')? {
        ("GET", WORKLOAD) => json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "ns", "resourceVersion": "1", "managedFields": [entry]},
            "spec": {"replicas": 3},
        }),
        ("GET", HPA) => json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "keda-hpa-a"},
            "spec": {"maxReplicas": 9, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            "status": {"desiredReplicas": desired},
        }),
        ("GET", SCALED_OBJECT) => {
            let text =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            return Some((404, text));
        }
        _ => return None,
    };
    Some((200, body))
}

/// CONF-4, SAFE-26: the watches of target and HPA deliver at different moments.
#[tokio::test]
async fn replicas_are_contested_only_if_they_differ_at_the_api_server() {
    type Respond = fn(&str) -> Option<(u16, Value)>;
    let cases: [(Respond, Option<&str>); 4] = [
        (|request| respond(request, "kubectl", 5), Some("kubectl")),
        (|request| respond(request, "kubectl", 3), None),
        (|request| respond(request, "vpa-recommender", 5), None),
        (
            |request| respond(request, "kube-controller-manager", 5),
            None,
        ),
    ];
    for (respond, expected) in cases {
        let context = context_with(respond);
        let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let kinds = &context.bindings.kinds;
        kinds.serve("apps", "Deployment", ApiResource::from_gvk(&kind));
        let field = ContestedField::Replicas(ObjectRef {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: "web".to_owned(),
            uid: None,
        });
        let found = find_conflict(&context, &Key::new("ns", "a"), &field).await;
        let writer = found.unwrap().and_then(|it| it.manager);
        let writer = writer.as_deref().and_then(|it| it.split(' ').next());
        assert_eq!(writer, expected);
    }
}
