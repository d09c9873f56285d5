use serde_json::{Value, json};

use super::{comparable, hash};

fn deployment() -> Value {
    json!({"spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
    }})
}

/// CONF-6, ROLL-5
#[test]
fn operator_fields_and_replicas_do_not_change_the_target_hash() {
    let plain = deployment();
    let mut changed = plain.clone();
    changed["spec"]["replicas"] = json!(9);
    changed["spec"]["template"]["metadata"]["annotations"] = json!({"asya.sh/roll": "x"});
    assert_eq!(comparable(&changed), comparable(&plain));
    changed["spec"]["annotations"] = json!({"asya.sh/roll": "x"});
    assert_eq!(hash(&changed), hash(&plain), "at any depth");
    let template = &mut changed["spec"]["template"];
    template["metadata"]["annotations"]["asya.sh/injected-by"] = json!("uid");
    template["metadata"]["labels"]["asya.sh/actor"] = json!("a");
    template["spec"]["containers"] = json!([{"name": "asya-sidecar"}]);
    template["spec"]["volumes"] = json!([{"name": "asya-tmp", "emptyDir": {}}]);
    let mut plain = plain;
    plain["spec"]["template"]["spec"] = json!({});
    assert_eq!(hash(&changed), hash(&plain), "with strategy Template");
    changed["spec"]["template"]["metadata"]["annotations"] = json!({"their": "x"});
    assert_ne!(hash(&changed), hash(&plain));
}

/// CONF-6, RES-13
#[test]
fn target_without_spec_is_hashed_by_its_other_fields() {
    let workspace = |preset: &str, version: &str| {
        json!({
            "metadata": {"name": "phi", "resourceVersion": version},
            "inference": {"preset": {"name": preset}},
            "status": {"conditions": [version]},
        })
    };
    let one = hash(&workspace("phi-4", "1"));
    assert_eq!(one, hash(&workspace("phi-4", "2")));
    assert_ne!(one, hash(&workspace("phi-4-mini", "1")));
}
