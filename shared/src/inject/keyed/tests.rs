use serde_json::json;

use super::*;

fn merged(list: &[Value], item: Value, by: MergeKey) -> Value {
    let mut list = list.to_vec();
    upsert(&mut list, item, by);
    Value::from(list)
}

/// POD-7
#[test]
fn item_replaces_the_one_with_the_same_key() {
    let env = [
        json!({"name": "A", "value": "1"}),
        json!({"name": "B", "value": "2"}),
    ];
    let b = &env[1];
    assert_eq!(
        merged(&env, json!({"name": "A", "value": "3"}), BY_NAME),
        json!([{"name": "A", "value": "3"}, b])
    );
    assert_eq!(
        merged(&env, json!({"name": "C"}), BY_NAME),
        json!([env[0], b, {"name": "C"}])
    );
}

/// POD-7
#[test]
fn variable_that_refers_to_others_comes_after_them() {
    let env = [
        json!({"name": "A", "value": "1"}),
        json!({"name": "B", "value": "2"}),
    ];
    let refers = json!({"name": "A", "value": "x$(B)"});
    assert_eq!(
        merged(&env, refers.clone(), BY_NAME),
        json!([env[1], refers])
    );
}

/// POD-7
#[test]
fn ports_differ_by_number_and_protocol() {
    let tcp = json!({"containerPort": 80});
    let udp = json!({"containerPort": 80, "protocol": "UDP"});
    let named = json!({"containerPort": 80, "protocol": "TCP", "name": "web"});
    let unset = json!({"containerPort": 80, "protocol": null});
    let ports = [tcp, udp.clone()];
    assert_eq!(merged(&ports, named.clone(), BY_PORT), json!([named, udp]));
    assert_eq!(merged(&ports, unset.clone(), BY_PORT), json!([unset, udp]));
}

#[test]
fn items_without_a_key_are_kept() {
    let odd = [json!("text"), json!({"value": "1"}), json!(null)];
    assert_eq!(
        merged(&odd, json!({"value": "1"}), BY_NAME),
        json!([odd[0], odd[1], odd[2], {"value": "1"}])
    );
}

/// POD-7
#[test]
fn last_duplicate_wins_in_each_list_and_other_values_are_kept() {
    let mut container = json!({
        "env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP", "name": "x"}, {"containerPort": 1, "protocol": "UDP"}],
        "volumeMounts": [{"mountPath": "/a", "name": "x"}, {"mountPath": "/a", "name": "y"}],
        "volumeDevices": [{"devicePath": "/d", "name": "x"}, {"devicePath": "/d", "name": "y"}],
        "args": ["a", "a"],
    });
    if let Value::Object(container) = &mut container {
        last_wins_in_container(container);
    }
    assert_eq!(
        container,
        json!({
            "env": [{"name": "A", "value": "2"}, {"name": "B"}],
            "ports": [{"containerPort": 1, "protocol": "TCP", "name": "x"}, {"containerPort": 1, "protocol": "UDP"}],
            "volumeMounts": [{"mountPath": "/a", "name": "y"}],
            "volumeDevices": [{"devicePath": "/d", "name": "y"}],
            "args": ["a", "a"],
        })
    );

    let topology = |key: &str, skew: i32| json!({"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": skew});
    let mut spec = json!({
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "secret": {}}],
        "imagePullSecrets": [{"name": "s"}, {"name": "s"}],
        "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}, {"ip": "1.1.1.1", "hostnames": ["b"]}],
        "topologySpreadConstraints": [topology("zone", 1), topology("node", 1), topology("zone", 2)],
        "tolerations": {"not": "a list"},
        "containers": [{"name": "a"}, {"name": "a"}],
    });
    if let Value::Object(spec) = &mut spec {
        last_wins_in_pod(spec);
    }
    assert_eq!(
        spec,
        json!({
            "volumes": [{"name": "v", "secret": {}}],
            "imagePullSecrets": [{"name": "s"}],
            "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["b"]}],
            "topologySpreadConstraints": [topology("zone", 2), topology("node", 1)],
            "tolerations": {"not": "a list"},
            "containers": [{"name": "a"}, {"name": "a"}],
        })
    );
}
