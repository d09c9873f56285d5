#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn version() -> Value {
    crd().unwrap()["spec"]["versions"][0].clone()
}

fn schema() -> Value {
    version()["schema"]["openAPIV3Schema"].clone()
}

fn spec(value: Value) -> AsyncActorSpec {
    serde_json::from_value(value).unwrap()
}

fn standalone(more: &Value) -> AsyncActorSpec {
    let mut value = json!({"transport": "rabbitmq", "workload": {"template": {}}});
    for (key, field) in more.as_object().unwrap() {
        value[key] = field.clone();
    }
    spec(value)
}

/// Calls `visit` with each schema below this one, and its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&schema[key], &format!("{path}[]"), visit);
        }
    }
}

/// API-1
#[test]
fn crd_has_the_names_scope_and_subresources_of_the_former_operator() {
    let crd = crd().unwrap();
    assert_eq!(crd["metadata"]["name"], "asyncactors.asya.sh");
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    assert_eq!(
        crd["spec"]["names"],
        json!({
            "categories": ["asya"],
            "kind": "AsyncActor",
            "plural": "asyncactors",
            "singular": "asyncactor",
            "shortNames": ["asyncactor", "asya", "asyas"],
        })
    );
    assert_eq!(version()["name"], "v1alpha1");
    assert_eq!(
        version()["subresources"],
        json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workload.replicas",
                "statusReplicasPath": ".status.totalReplicas",
                "labelSelectorPath": ".status.selector",
            },
        })
    );
}

/// API-1
#[test]
fn conditions_merge_by_type_and_the_generation_is_64_bits_wide() {
    let status = &schema()["properties"]["status"]["properties"];
    assert_eq!(status["conditions"]["x-kubernetes-list-type"], "map");
    assert_eq!(
        status["conditions"]["x-kubernetes-list-map-keys"],
        json!(["type"])
    );
    assert_eq!(status["observedGeneration"]["format"], "int64");
}

/// API-4
#[test]
fn schema_has_no_defaults() {
    walk(&schema(), "", &mut |path, schema| {
        assert_eq!(schema.get("default"), None, "{path}");
    });
}

/// API-5
#[test]
fn template_is_preserved_with_any_content() {
    let template =
        &schema()["properties"]["spec"]["properties"]["workload"]["properties"]["template"];
    assert_eq!(template["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(template.get("properties"), None);
}

/// API-7
#[test]
fn printer_columns_show_the_status_and_wide_ones_its_details() {
    let columns: Vec<(String, String, String, i64)> = version()["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            (
                text("name"),
                text("type"),
                text("jsonPath"),
                it["priority"].as_i64().unwrap_or(0),
            )
        })
        .collect();
    let expected = [
        ("Status", "string", ".status.status", 0),
        ("Running", "integer", ".status.replicas", 0),
        ("Failing", "integer", ".status.failingPods", 0),
        ("Total", "integer", ".status.totalReplicas", 0),
        ("Desired", "integer", ".status.desiredReplicas", 0),
        ("Min", "integer", ".status.minReplicas", 0),
        ("Max", "integer", ".status.maxReplicas", 0),
        ("Last-Scale", "date", ".status.lastScaleTime", 0),
        ("Direction", "string", ".status.lastScaleDirection", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Mode", "string", ".status.mode", 1),
        ("Target", "string", ".status.resolvedTarget.name", 1),
        ("Workload", "string", ".status.workloadRef.kind", 1),
        ("Transport", "string", ".status.transportStatus", 1),
        ("Scaling", "string", ".status.scalingMode", 1),
        ("Queued", "integer", ".status.queuedMessages", 1),
        ("Processing", "integer", ".status.processingMessages", 1),
    ]
    .map(|(name, kind, path, priority)| {
        (name.to_owned(), kind.to_owned(), path.to_owned(), priority)
    });
    assert_eq!(columns, expected);
}

#[test]
fn every_field_has_a_description_without_requirement_ids() {
    walk(&schema(), "", &mut |path, schema| {
        let text = schema["description"].as_str().unwrap_or_default();
        // Kubernetes' own texts, items of lists and what every object has.
        let own = path.is_empty()
            || path.ends_with("[]")
            || path.contains(".conditions")
            || path.contains("claims[]")
            || path == ".apiVersion"
            || path == ".kind"
            || path == ".metadata";
        assert!(own || text.len() > 10, "{path}: \"{text}\"");
        for id in [
            "VAL-", "BIND-", "API-", "STA-", "POD-", "FW-", "SQS-", "KEDA-",
        ] {
            assert!(!text.contains(id), "{path}: \"{text}\"");
        }
        assert!(!text.contains('\n'), "{path}");
    });
}

/// API-2, API-3
#[test]
fn minimal_actor_gets_all_defaults() {
    let actor = standalone(&json!({}));
    let Ok(ModeSpec::Standalone(workload)) = actor.mode() else {
        panic!("{:?}", actor.mode());
    };
    assert_eq!(workload.effective_kind(), WorkloadKind::Deployment);
    assert_eq!(workload.effective_replicas(), 1);
    assert_eq!(workload.effective_python_executable(), "python3");
    assert_eq!(
        actor.effective_sidecar(),
        EffectiveSidecar {
            image: None,
            image_pull_policy: ImagePullPolicy::IfNotPresent,
            resources: None,
            env: &[],
            native: false,
            security_context: None,
        }
    );
    assert_eq!(
        actor.effective_timeout(),
        EffectiveTimeout {
            processing: Some(300),
            graceful_shutdown: 30,
            progress: Some(600)
        }
    );
    assert_eq!(actor.effective_scaling(), None);
    assert_eq!(actor.effective_adoption_policy(), AdoptionPolicy::Never);
}

/// API-2, API-3
#[test]
fn scaling_that_is_only_enabled_gets_all_defaults() {
    let actor = standalone(&json!({"scaling": {"enabled": true}}));
    assert_eq!(
        actor.effective_scaling(),
        Some(EffectiveScaling {
            min_replicas: 0,
            max_replicas: 50,
            polling_interval: 10,
            cooldown_period: 60,
            initial_cooldown_period: None,
            queue_length: 5,
            activation_queue_length: 0,
            count_in_flight: true,
            advanced: None,
            behavior: None,
            fallback: None,
        })
    );
    assert_eq!(
        standalone(&json!({"scaling": {"maxReplicas": 3}})).effective_scaling(),
        None
    );
}

/// SAFE-22
#[test]
fn bound_target_is_first_scaled_to_zero_after_the_cooldown() {
    let initial = |scaling: &serde_json::Value| {
        let actor = spec(json!({
            "transport": "mq", "scaling": scaling,
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        }));
        let scaling = actor.effective_scaling().unwrap();
        (scaling.cooldown_period, scaling.initial_cooldown_period)
    };
    assert_eq!(initial(&json!({"enabled": true})), (60, Some(60)));
    let slow = json!({"enabled": true, "cooldownPeriod": 600});
    assert_eq!(initial(&slow), (600, Some(600)));
    let explicit = json!({"enabled": true, "cooldownPeriod": 600, "initialCooldownPeriod": 0});
    assert_eq!(initial(&explicit), (600, Some(0)));
}

/// SAFE-28
#[test]
fn readiness_limit_is_the_progress_timeout_of_the_actor() {
    let default = Some(Duration::from_mins(5));
    for (timeout, limit) in [
        (json!({}), default),
        (json!({"progress": 3600}), Some(Duration::from_hours(1))),
        (json!({"progress": 60}), Some(Duration::from_mins(1))),
        (json!({"progress": 0}), None),
    ] {
        let actor = standalone(&json!({"timeout": timeout}));
        assert_eq!(actor.readiness_limit(default), limit, "{timeout}");
    }
}

/// KEDA-1, POD-2, POD-10, SQS-3
#[test]
fn zero_has_the_documented_meaning_of_each_field() {
    let actor = standalone(&json!({
        "timeout": {"processing": 0, "gracefulShutdown": 0, "progress": 0},
        "scaling": {"enabled": true, "pollingInterval": 0, "cooldownPeriod": 0, "initialCooldownPeriod": 0},
    }));
    let timeout = actor.effective_timeout();
    assert_eq!(
        (
            timeout.processing,
            timeout.graceful_shutdown,
            timeout.progress
        ),
        (None, 30, None)
    );
    assert_eq!(timeout.processing_for_broker(), 300);
    let scaling = actor.effective_scaling().unwrap();
    assert_eq!((scaling.polling_interval, scaling.cooldown_period), (10, 0));
    assert_eq!(scaling.initial_cooldown_period, Some(0));
}

/// BIND-1
#[test]
fn minimal_binding_gets_all_defaults() {
    let actor = spec(json!({
        "transport": "sqs",
        "workloadRef": {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": "phi-4"},
        "runtime": {"image": "", "handler": ""},
    }));
    let Ok(ModeSpec::Binding(binding)) = actor.mode() else {
        panic!("{:?}", actor.mode());
    };
    assert_eq!(binding.target.name, "phi-4");
    assert_eq!(
        (binding.strategy, binding.rollout, binding.required),
        (BindingStrategy::Pod, BindingRollout::Always, false)
    );
    assert_eq!(
        binding.runtime,
        EffectiveRuntime {
            image: None,
            python_executable: "python3",
            handler: None,
            target_url: None,
            env: &[],
            resources: None,
        }
    );
}

#[test]
fn mode_requires_exactly_one_of_workload_and_workload_ref() {
    let neither = spec(json!({"transport": "t"}));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let both = standalone(&json!({"workloadRef": target}));
    assert_eq!(neither.mode(), Err(ModeError));
    assert_eq!(both.mode(), Err(ModeError));
    assert_eq!(ModeError.to_string(), messages::ONE_MODE);
}

/// API-4
#[test]
fn spec_round_trips_unchanged() {
    let value = json!({
        "transport": "sqs",
        "workload": {"replicas": 2, "template": {"spec": {"newField": null, "containers": [{"ports": ["odd"]}]}}},
        "sidecar": {
            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "newField": true},
            "env": [{"name": "A", "valueFrom": {"newSource": {"a": 1}}}],
        },
        "scaling": {"behavior": {"scaleUp": {"newField": 1}}},
    });
    assert_eq!(serde_json::to_value(spec(value.clone())).unwrap(), value);
}

#[test]
fn status_of_another_release_is_readable() {
    let status: AsyncActorStatus = serde_json::from_value(json!({
        "status": "SomethingElse", "mode": null, "scalingMode": "Magic", "replicas": 2, "newField": {},
    }))
    .unwrap();
    assert_eq!(
        (status.status, status.mode, status.scaling_mode),
        (None, None, None)
    );
    assert_eq!(status.replicas, Some(2));
    let status: AsyncActorStatus =
        serde_json::from_value(json!({"status": "Napping", "scalingMode": "KEDA"})).unwrap();
    assert_eq!(
        (status.status, status.scaling_mode),
        (Some(State::Napping), Some(ScalingMode::Keda))
    );
}

#[test]
fn literal_of_a_variable_is_its_value_or_empty() {
    let literal = |value: Value| {
        let var: EnvVar = serde_json::from_value(value).unwrap();
        var.literal().map(str::to_owned)
    };
    assert_eq!(
        literal(json!({"name": "A", "value": "x"})).as_deref(),
        Some("x")
    );
    assert_eq!(literal(json!({"name": "A"})).as_deref(), Some(""));
    assert_eq!(
        literal(json!({"name": "A", "valueFrom": {"fieldRef": {}}})),
        None
    );
}
