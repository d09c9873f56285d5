use serde_json::json;

use super::without_sidecar;

#[test]
fn sidecar_is_removed_wherever_it_is() {
    let model = json!({"name": "model"});
    let sidecar = json!({"name": "asya-sidecar"});
    let pod = json!({"containers": [model, sidecar]});
    let removed = |path: &str| Some(json!([{"op": "remove", "path": path}]));
    assert_eq!(without_sidecar(&pod), removed("/spec/containers/1"));
    let native = json!({"containers": [model], "initContainers": [sidecar]});
    assert_eq!(without_sidecar(&native), removed("/spec/initContainers/0"));
    assert_eq!(without_sidecar(&json!({"containers": [model]})), None);
}
