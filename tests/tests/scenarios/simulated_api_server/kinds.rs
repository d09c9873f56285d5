//! The kinds used in calls, and random contents of their objects.
//!
//! Left out, with the reason:
//! - Pods: what kubelets and admission plugins do to them is simulated elsewhere.
//! - `HorizontalPodAutoscaler`s: the controller only reads them, and defaulting rewrites half of their spec.
//! - Events: nobody updates or applies them.
//! - Namespaces and `CustomResourceDefinition`s: other scenarios would notice.

use asya_simulation::api_server::resources::{self, Resource};
use fastrand::Rng;
use serde_json::{Value, json};

/// A kind.
pub struct Kind {
    pub resource: &'static Resource,
    content: fn(&mut Rng, bool) -> Value,
    /// A status, if the simulation serves one.
    status: Option<fn(&mut Rng) -> Value>,
}

impl Kind {
    /// Everything except metadata and status: of an object that can be created, or that a merge patch can change.
    pub fn content(&self, random: &mut Rng, whole: bool) -> Value {
        without_empty((self.content)(random, whole))
    }

    pub fn has_status(&self) -> bool {
        self.status.is_some()
    }

    pub fn status(&self, random: &mut Rng) -> Value {
        self.status.map_or(Value::Null, |status| {
            without_empty(json!({"status": status(random)}))
        })
    }
}

/// Without empty lists and objects: whether the real server keeps them depends on the declaration of each field, and
/// the operator writes none except `emptyDir: {}`.
fn without_empty(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        let old = std::mem::take(fields).into_iter();
        let new = old.map(|(name, value)| (name, without_empty(value)));
        let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
        fields.extend(new.filter(|(name, value)| name == "emptyDir" || !is_empty(value)));
    } else if let Some(items) = value.as_array_mut() {
        for item in items {
            *item = without_empty(item.take());
        }
    }
    value
}

pub static KINDS: [Kind; 9] = [
    Kind {
        resource: &resources::CONFIG_MAPS,
        content: config_map,
        status: None,
    },
    Kind {
        resource: &resources::SECRETS,
        content: secret,
        status: None,
    },
    Kind {
        resource: &resources::SERVICE_ACCOUNTS,
        content: service_account,
        status: None,
    },
    Kind {
        resource: &resources::LEASES,
        content: lease,
        status: None,
    },
    Kind {
        resource: &resources::DEPLOYMENTS,
        content: deployment,
        status: Some(deployment_status),
    },
    Kind {
        resource: &resources::STATEFUL_SETS,
        content: stateful_set,
        status: Some(stateful_set_status),
    },
    Kind {
        resource: &resources::ACTORS,
        content: actor,
        status: Some(actor_status),
    },
    Kind {
        resource: &resources::SCALED_OBJECTS,
        content: scaled_object,
        status: Some(scaled_object_status),
    },
    Kind {
        resource: &resources::TRIGGER_AUTHENTICATIONS,
        content: trigger_authentication,
        status: None,
    },
];

const TIMES: [&str; 2] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];

pub fn pick<T: Clone>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())].clone()
}

/// Some of the fields.
fn some<const N: usize>(random: &mut Rng, fields: [(&str, Value); N]) -> Value {
    let chosen = fields.into_iter().filter(|_| random.bool());
    chosen
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn with(mut object: Value, fields: Value) -> Value {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
    object
}

fn config_map(random: &mut Rng, _: bool) -> Value {
    let values = ["1", "2"];
    let data = [
        ("x", json!(pick(random, &values))),
        ("y", json!(pick(random, &values))),
        ("z", json!("1")),
    ];
    json!({"data": some(random, data)})
}

fn secret(random: &mut Rng, _: bool) -> Value {
    let values = ["MQ==", "Mg=="];
    let data = [
        ("x", json!(pick(random, &values))),
        ("y", json!(pick(random, &values))),
    ];
    json!({"type": "Opaque", "data": some(random, data)})
}

fn service_account(random: &mut Rng, _: bool) -> Value {
    let names = ["p", "q", "r"];
    let secrets: Vec<Value> = names
        .into_iter()
        .filter(|_| random.bool())
        .map(|name| json!({"name": name}))
        .collect();
    let mount = json!(random.bool());
    some(
        random,
        [
            ("imagePullSecrets", secrets.into()),
            ("automountServiceAccountToken", mount),
        ],
    )
}

fn lease(random: &mut Rng, _: bool) -> Value {
    let spec = [
        ("holderIdentity", json!(pick(random, &["one", "two"]))),
        ("leaseDurationSeconds", json!(random.u8(1..3))),
        ("leaseTransitions", json!(random.u8(..2))),
    ];
    json!({"spec": some(random, spec)})
}

fn environment(random: &mut Rng) -> Value {
    let names = ["A", "B", "C"];
    let chosen = names
        .into_iter()
        .filter(|_| random.bool())
        .collect::<Vec<_>>();
    let variable = |name: &str| json!({"name": name, "value": pick(random, &["1", "2"])});
    chosen.into_iter().map(variable).collect()
}

fn container(random: &mut Rng, name: &str) -> Value {
    let image = format!("image:{}", random.u8(1..3));
    let environment = environment(random);
    let optional = [
        ("env", environment),
        ("command", json!(["run", pick(random, &["a", "b"])])),
        ("ports", json!([{"containerPort": 80, "protocol": "TCP"}])),
        ("volumeMounts", json!([{"name": "v", "mountPath": "/v"}])),
    ];
    with(
        json!({"name": name, "image": image}),
        some(random, optional),
    )
}

fn template(random: &mut Rng) -> Value {
    let mut containers = vec![container(random, "main")];
    if random.bool() {
        containers.push(container(random, "side"));
    }
    let annotation = [("roll", json!(pick(random, &["1", "2"])))];
    let metadata = json!({"labels": {"app": "test"}, "annotations": some(random, annotation)});
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    json!({"metadata": metadata, "spec": {"containers": containers, "volumes": volumes}})
}

fn replicas(random: &mut Rng) -> Value {
    let replicas = json!(random.u8(..3));
    some(random, [("replicas", replicas)])
}

/// The selector is always the same, because it is immutable.
fn workload(random: &mut Rng, whole: bool) -> Value {
    let replicas = replicas(random);
    if !whole {
        return replicas;
    }
    let spec = json!({"selector": {"matchLabels": {"app": "test"}}, "template": template(random)});
    with(spec, replicas)
}

fn deployment(random: &mut Rng, whole: bool) -> Value {
    json!({"spec": workload(random, whole)})
}

fn stateful_set(random: &mut Rng, whole: bool) -> Value {
    let spec = workload(random, whole);
    if whole {
        return json!({"spec": with(spec, json!({"serviceName": "test"}))});
    }
    json!({"spec": spec})
}

fn deployment_status(random: &mut Rng) -> Value {
    let condition = |kind: &str, time: &str| json!({"type": kind, "status": "True", "lastUpdateTime": time, "lastTransitionTime": time});
    let time = pick(random, &TIMES);
    let conditions = json!([
        condition("Available", TIMES[0]),
        condition("Progressing", time)
    ]);
    let optional = [
        ("conditions", conditions),
        ("readyReplicas", json!(random.u8(1..3))),
    ];
    with(
        json!({"observedGeneration": random.u8(1..3), "replicas": 3}),
        some(random, optional),
    )
}

fn stateful_set_status(random: &mut Rng) -> Value {
    let ready = [("readyReplicas", json!(random.u8(1..3)))];
    with(
        json!({"observedGeneration": random.u8(1..3), "replicas": 3}),
        some(random, ready),
    )
}

fn actor(random: &mut Rng, whole: bool) -> Value {
    let scaling = [
        ("enabled", json!(random.bool())),
        ("minReplicas", json!(random.u8(..2))),
        ("maxReplicas", json!(random.u8(2..4))),
    ];
    let scaling = some(random, scaling);
    let environment = environment(random);
    let optional = [
        ("scaling", scaling),
        ("deletionPolicy", json!(pick(random, &["Delete", "Orphan"]))),
        (
            "queue",
            json!({"deletionPolicy": pick(random, &["Retain", "Drain"])}),
        ),
        ("sidecar", json!({"image": "sidecar:1", "env": environment})),
    ];
    let optional = some(random, optional);
    if !whole {
        return json!({"spec": optional});
    }
    let workload = with(json!({"template": template(random)}), replicas(random));
    // No broker has this name, so no broker is asked about the actors' queues.
    let spec = json!({"transport": "none", "workload": workload});
    json!({"spec": with(spec, optional)})
}

fn actor_status(random: &mut Rng) -> Value {
    let condition = |kind: &str, time: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
    let time = pick(random, &TIMES);
    let conditions = json!([condition("Ready", time), condition("Progressing", TIMES[0])]);
    let inventory =
        json!([{"group": "apps", "kind": "Deployment", "name": pick(random, &["a", "b"])}]);
    let fields = [
        ("conditions", conditions),
        ("observedGeneration", json!(random.u8(1..4))),
        ("status", json!(pick(random, &["Running", "Napping"]))),
        ("inventory", inventory),
        ("queue", json!({"name": "q", "transport": "none"})),
    ];
    some(random, fields)
}

fn scaled_object(random: &mut Rng, whole: bool) -> Value {
    let optional = [
        ("minReplicaCount", json!(random.u8(..2))),
        ("maxReplicaCount", json!(random.u8(2..4))),
        ("pollingInterval", json!(random.u8(5..7))),
    ];
    let optional = some(random, optional);
    if !whole {
        return json!({"spec": optional});
    }
    let value = pick(random, &["5", "6"]);
    let triggers = json!([{"type": "rabbitmq", "metadata": {"queueName": "q", "value": value}}]);
    let spec = json!({"scaleTargetRef": {"name": "target"}, "triggers": triggers});
    json!({"spec": with(spec, optional)})
}

fn scaled_object_status(random: &mut Rng) -> Value {
    let status = pick(random, &["True", "False"]);
    let conditions = json!([{"type": "Ready", "status": status, "reason": "R", "message": "m"}]);
    some(
        random,
        [("conditions", conditions), ("hpaName", json!("keda-hpa-a"))],
    )
}

fn trigger_authentication(random: &mut Rng, _: bool) -> Value {
    let key = pick(random, &["a", "b"]);
    let secrets = json!([{"parameter": "password", "name": "secret", "key": key}]);
    let identity = json!({"provider": pick(random, &["none", "aws"])});
    let spec = json!({"secretTargetRef": secrets});
    json!({"spec": with(spec, some(random, [("podIdentity", identity)]))})
}
