//! No template may cause a panic or duplicate keys.

use std::collections::BTreeSet;

use serde_json::json;

use super::Value;
use crate::inject::testing::Fixture;

/// A small deterministic generator: every run tests the same templates.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of(&mut self, choices: &[&str]) -> Value {
        let at = self.below(choices.len() as u64);
        json!(choices[usize::try_from(at).unwrap()])
    }

    /// Usually `value`, sometimes a value of another type.
    fn odd(&mut self, value: Value) -> Value {
        match self.below(40) {
            0 => Value::Null,
            1 => json!("text"),
            2 => json!(7),
            3 => json!({}),
            4 => json!([]),
            5 => json!([null, 1, "x", {}, []]),
            _ => value,
        }
    }

    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Value) -> Value {
        let length = self.below(6);
        let items: Vec<Value> = (0..length).map(|_| item(self)).collect();
        self.odd(json!(items))
    }

    fn env(&mut self) -> Value {
        const NAMES: [&str; 6] = [
            "A",
            "B",
            "ASYA_SOCKET_DIR",
            "ASYA_SOCKET_NAME",
            "ASYA_GATEWAY_URL",
            "ASYA_ENABLE_VALIDATION",
        ];
        self.list(|random| {
            let (name, value) = (
                random.one_of(&NAMES),
                random.one_of(&["1", "$(A)", "x$(B)", ""]),
            );
            let entry = json!({"name": name, "value": value});
            random.odd(entry)
        })
    }

    fn container(&mut self) -> Value {
        const PATHS: [&str; 6] = [
            "/a",
            "/tmp",
            "/tmp/",
            "/tmp/x",
            "/var/run/asya",
            "/opt/asya/asya_runtime.py",
        ];
        let mut container = json!({"name": self.one_of(&["asya-runtime", "helper"])});
        container["env"] = self.env();
        container["ports"] = self.list(|random| {
            let port = json!({"containerPort": random.below(3), "protocol": random.one_of(&["TCP", "UDP"])});
            random.odd(port)
        });
        container["volumeMounts"] = self.list(|random| {
            let mount = json!({"name": "v", "mountPath": random.one_of(&PATHS)});
            random.odd(mount)
        });
        self.odd(container)
    }

    fn template(&mut self) -> Value {
        let containers = self.list(Self::container);
        let init_containers = self.list(Self::container);
        let volumes = self.list(|random| {
            let volume =
                json!({"name": random.one_of(&["v", "tmp", "socket-dir", "asya-runtime"])});
            random.odd(volume)
        });
        let labels = self.odd(json!({"app": "x"}));
        let metadata = self.odd(json!({"labels": labels}));
        let spec = self.odd(json!({"containers": containers, "initContainers": init_containers, "volumes": volumes}));
        let template = json!({"metadata": metadata, "spec": spec});
        self.odd(template)
    }
}

fn assert_unique(list: &Value, key: impl Fn(&Value) -> Option<String>) {
    let keys: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(key)
        .collect();
    let unique: BTreeSet<&String> = keys.iter().collect();
    assert_eq!(unique.len(), keys.len(), "{keys:?}");
}

fn text(item: &Value, key: &str) -> Option<String> {
    item.get(key)?.as_str().map(str::to_owned)
}

/// POD-7
#[test]
fn no_template_causes_a_panic_or_duplicate_keys() {
    let mut random = Random(7);
    let mut rendered_runtimes = 0;
    for round in 0..1_000 {
        let template = random.template();
        let sidecar = json!({"native": round % 2 == 0, "env": [
            {"name": "A", "value": "$(ASYA_LOG_LEVEL)"}, {"name": "ASYA_LOG_LEVEL", "value": "x"}, {"name": "A", "value": "2"},
        ]});
        let mut fixture =
            Fixture::new(&json!({"sidecar": sidecar, "workload": {"template": template}}));
        if round % 3 == 0 {
            fixture.actor = "happy-end";
        }
        let rendered = fixture.template();
        let spec = &rendered["spec"];
        assert_unique(&spec["volumes"], |volume| text(volume, "name"));
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array().into_iter().flatten() {
                assert_unique(&container["env"], |entry| text(entry, "name"));
                assert_unique(&container["volumeMounts"], |mount| text(mount, "mountPath"));
                assert_unique(&container["ports"], |port| {
                    Some(format!(
                        "{}/{}",
                        port.get("containerPort")?,
                        text(port, "protocol")?
                    ))
                });
                rendered_runtimes +=
                    usize::from(list == "containers" && container.get("command").is_some());
            }
        }
    }
    assert!(
        rendered_runtimes > 300,
        "{rendered_runtimes}: the generator makes too few good templates"
    );
}
