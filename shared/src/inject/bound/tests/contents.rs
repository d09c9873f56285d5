//! The fields that are added to a pod: BIND-20 to BIND-28, ROLL-8.

use serde_json::{Value, json};

use crate::api::InjectionStatus;
use crate::config::Settings;
use crate::config::testing::parse;
use crate::inject::bound::testing::{
    Binding, container, env, env_lines, hash_of, injected, injected_pod, pod, review, reviewed,
};
use crate::inject::bound::{BoundActor, InjectedHash, InjectionReason};

/// BIND-23, BIND-25
#[test]
fn runtime_calls_the_model_in_its_own_pod() {
    let pod = injected_pod(&json!({}));
    let runtime = container(&pod, "asya-runtime");
    assert_eq!(runtime["image"], "python:3.13-slim");
    assert_eq!(
        runtime["command"],
        json!(["python3", "/opt/asya/asya_runtime.py"])
    );
    assert_eq!(
        env_lines(&pod, "asya-runtime"),
        [
            "ASYA_SOCKET_DIR=/var/run/asya",
            "ASYA_HANDLER=asya_adapters.rest",
            "ASYA_TARGET_URL=http://127.0.0.1:8090",
            "ASYA_TARGET_TIMEOUT=300",
            "ASYA_ENABLE_VALIDATION=false",
        ]
    );
    for name in ["asya-runtime", "asya-sidecar"] {
        let container = container(&pod, name).as_object().unwrap();
        for none in ["ports", "readinessProbe", "livenessProbe", "startupProbe"] {
            assert!(!container.contains_key(none), "{name} {none}");
        }
    }
}

/// BIND-23
#[test]
fn actor_overrides_url_handler_and_image_of_its_runtime() {
    let pod = injected_pod(&json!({"runtime": {
        "image": "me/python:3", "pythonExecutable": "/opt/py", "handler": "asya_adapters.openai_chat",
        "targetURL": "http://127.0.0.1:5000/$x",
        "env": [{"name": "ASYA_ENABLE_VALIDATION", "value": "true"}, {"name": "ASYA_TARGET_MODEL", "value": "phi-3"}],
    }}));
    let runtime = container(&pod, "asya-runtime");
    assert_eq!(runtime["image"], "me/python:3");
    assert_eq!(runtime["command"][0], "/opt/py");
    assert_eq!(
        env_lines(&pod, "asya-runtime"),
        [
            "ASYA_SOCKET_DIR=/var/run/asya",
            "ASYA_HANDLER=asya_adapters.openai_chat",
            "ASYA_TARGET_URL=http://127.0.0.1:5000/$$x",
            "ASYA_TARGET_TIMEOUT=300",
            "ASYA_ENABLE_VALIDATION=true",
            "ASYA_TARGET_MODEL=phi-3",
            "ASYA_CONCURRENCY=8",
        ]
    );
}

/// BIND-32, SC-37: if the sidecar gave up first, it would restart the runtime.
#[test]
fn model_has_as_long_to_respond_as_the_sidecar_waits() {
    let (rabbitmq, sqs) = (json!({"host": "broker"}), json!({"region": "eu-west-1"}));
    for (transport, config, processing, runtime, sidecar) in [
        ("rabbitmq", &rabbitmq, 0, "300", None),
        ("rabbitmq", &rabbitmq, 86_400, "86400", Some("86400s")),
        ("sqs", &sqs, 43_200, "43200", Some("43200s")),
        ("sqs", &sqs, 43_201, "43200", Some("43200s")),
    ] {
        let mut binding = Binding::new(&json!({"timeout": {"processing": processing}}));
        let transports = json!({"rabbit": {"type": transport, "enabled": true, "config": config}});
        binding.transports = parse(&transports).unwrap();
        let after = injected(&binding.actor(), &pod(&json!({})));
        let case = format!("{transport} {processing}");
        let found = env(&after, "asya-runtime", "ASYA_TARGET_TIMEOUT");
        assert_eq!(found, Some(runtime), "{case}");
        let found = env(&after, "asya-sidecar", "ASYA_RUNTIME_TIMEOUT");
        assert_eq!(found, sidecar, "{case}");
    }
}

/// BIND-21
#[test]
fn volumes_are_mounted_only_by_injected_containers() {
    let pod = injected_pod(&json!({}));
    let mounts = |name: &str| -> Vec<String> {
        let mounts = container(&pod, name)["volumeMounts"].as_array().unwrap();
        let mut all: Vec<_> = mounts
            .iter()
            .map(|it| {
                format!(
                    "{}:{}",
                    it["name"].as_str().unwrap(),
                    it["mountPath"].as_str().unwrap()
                )
            })
            .collect();
        all.sort();
        all
    };
    assert_eq!(
        mounts("asya-runtime"),
        [
            "asya-no-token:/var/run/secrets/kubernetes.io/serviceaccount",
            "asya-runtime:/opt/asya",
            "asya-socket-dir:/var/run/asya",
            "asya-tmp:/tmp",
        ]
    );
    assert_eq!(
        mounts("asya-sidecar"),
        [
            "asya-no-token:/var/run/secrets/kubernetes.io/serviceaccount",
            "asya-socket-dir:/var/run/asya",
            "asya-tmp:/tmp",
        ]
    );
    assert!(container(&pod, "model").get("volumeMounts").is_none());
    let script = pod["spec"]["volumes"].as_array().unwrap();
    let script = script
        .iter()
        .find(|it| it["name"] == "asya-runtime")
        .unwrap();
    assert_eq!(script["configMap"]["name"], "asya-runtime");
}

/// BIND-26
#[test]
fn both_containers_are_admitted_under_pod_security_restricted() {
    let context = |pod: &Value, name: &str| container(pod, name)["securityContext"].clone();
    let expected = |user: i64| {
        json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": user,
        })
    };
    let actor = Binding::new(&json!({})).actor();
    for (of_pod, user) in [
        (json!(null), 65532),
        (json!({"runAsUser": 1000}), 1000),
        (json!({"runAsUser": 0}), 65532),
    ] {
        let after = injected(&actor, &pod(&json!({"securityContext": of_pod})));
        assert_eq!(context(&after, "asya-runtime"), expected(user));
        assert_eq!(context(&after, "asya-sidecar"), expected(user));
    }

    let mut on_openshift = Binding::new(&json!({}));
    on_openshift.settings = on_openshift.settings.with_binding(None, true);
    let after = injected(
        &on_openshift.actor(),
        &pod(&json!({"securityContext": {"runAsUser": 1000}})),
    );
    for name in ["asya-runtime", "asya-sidecar"] {
        let mut without_user = expected(0);
        without_user.as_object_mut().unwrap().remove("runAsUser");
        assert_eq!(context(&after, name), without_user);
    }

    // the user's setting wins, and both containers still run as one user
    let own = json!({"sidecar": {"securityContext": {"runAsUser": 7, "runAsNonRoot": true}}});
    let after = injected_pod(&own);
    assert_eq!(
        context(&after, "asya-sidecar"),
        own["sidecar"]["securityContext"]
    );
    assert_eq!(context(&after, "asya-runtime"), expected(7));
}

/// BIND-27
#[test]
fn requests_are_small_and_always_set() {
    let resources = |spec: &Value, of_pod: &Value| {
        let after = injected(&Binding::new(spec).actor(), &pod(of_pod));
        ["asya-runtime", "asya-sidecar"].map(|name| container(&after, name)["resources"].clone())
    };
    let small = json!({"requests": {"cpu": "10m", "memory": "32Mi"}});
    assert_eq!(
        resources(&json!({}), &json!({})),
        [small.clone(), small.clone()]
    );
    let more = json!({"sidecar": {"resources": {"requests": {"cpu": 0.2}, "limits": {"memory": "64Mi"}}}, "runtime": {"resources": {}}});
    assert_eq!(
        resources(&more, &json!({})),
        [
            small,
            json!({"requests": {"cpu": 0.2, "memory": "64Mi"}, "limits": {"memory": "64Mi"}}),
        ]
    );
    // pod-level resources must cover all containers
    let whole = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}});
    assert_eq!(resources(&json!({}), &whole), [json!({}), json!({})]);
}

/// SAFE-6
#[test]
fn limits_required_by_a_quota_are_set_and_do_not_outdate_pods() {
    let resources_with = |spec: &Value, limits: &[&str], of_pod: &Value| {
        let mut binding = Binding::new(spec);
        let without = binding.actor();
        binding.injection = Some(InjectionStatus {
            verified_actor_hash: Some(without.plan().unwrap().hash().actor.clone()),
            limits: limits.iter().map(|it| (*it).to_owned()).collect(),
            ..InjectionStatus::default()
        });
        let actor = binding.actor();
        let hash = |it: &BoundActor| it.plan().unwrap().hash().clone();
        assert_eq!(hash(&actor), hash(&without));
        let after = injected(&actor, &pod(of_pod));
        assert_eq!(reviewed(&actor, &after), after, "the second call");
        ["asya-runtime", "asya-sidecar"].map(|name| container(&after, name)["resources"].clone())
    };
    let none = json!({});
    let requests = json!({"cpu": "10m", "memory": "32Mi"});
    let limited = |limits: Value| json!({"requests": requests, "limits": limits});
    // the limits that the installation sets for its own sidecars
    let memory = limited(json!({"memory": "256Mi"}));
    assert_eq!(
        resources_with(&none, &["memory"], &none),
        [memory.clone(), memory]
    );
    let both = limited(json!({"cpu": "500m", "memory": "256Mi"}));
    assert_eq!(resources_with(&none, &["cpu", "memory"], &none)[0], both);
    // a limit is never below the user's request, and the user's limit is kept
    let large = json!({"runtime": {"resources": {"requests": {"memory": "1Gi"}}}, "sidecar": {"resources": {"limits": {"memory": "64Mi"}}}});
    let [runtime, sidecar] = resources_with(&large, &["memory"], &none);
    assert_eq!(runtime["limits"], json!({"memory": "1Gi"}));
    assert_eq!(sidecar["limits"], json!({"memory": "64Mi"}));
    // a resource without a known sufficient quantity
    let other = resources_with(&none, &["ephemeral-storage"], &none);
    assert_eq!(other[0], json!({"requests": requests}));
    let whole = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}});
    assert_eq!(
        resources_with(&none, &["memory"], &whole),
        [none.clone(), none.clone()]
    );
}

/// BIND-27
#[test]
fn guaranteed_pod_stays_guaranteed() {
    let containers = |resources: &[Value]| {
        let all: Vec<_> = resources
            .iter()
            .enumerate()
            .map(|(at, it)| json!({"name": format!("c{at}"), "image": "m", "ports": [{"containerPort": 1}], "resources": it}))
            .collect();
        json!({"containers": all})
    };
    let full = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}});
    let limits_only = json!({"limits": {"cpu": 2, "memory": "1Gi"}});
    let actor = Binding::new(
        &json!({"sidecar": {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}}}),
    )
    .actor();
    let after = injected(&actor, &pod(&containers(&[full.clone(), limits_only])));
    let both = |cpu: &str, memory: &str| {
        let quantities = json!({"cpu": cpu, "memory": memory});
        json!({"requests": quantities, "limits": quantities})
    };
    assert_eq!(
        container(&after, "asya-runtime")["resources"],
        both("100m", "128Mi")
    );
    assert_eq!(
        container(&after, "asya-sidecar")["resources"],
        both("200m", "128Mi")
    );

    for other in [
        json!({}),
        json!({"limits": {"cpu": "1"}}),
        json!({"limits": {"cpu": "0", "memory": "1Gi"}}),
        json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
    ] {
        let after = injected(&actor, &pod(&containers(&[full.clone(), other.clone()])));
        let runtime = &container(&after, "asya-runtime")["resources"];
        assert!(runtime.get("limits").is_none(), "{other}: {runtime}");
    }
    let mut with_init = containers(&[full]);
    with_init["initContainers"] = json!([{"name": "init", "image": "i"}]);
    let after = injected(&actor, &pod(&with_init));
    assert!(
        container(&after, "asya-runtime")["resources"]
            .get("limits")
            .is_none()
    );
}

/// INJ-9, ROLL-8 (a, b)
#[test]
fn actor_settings_roll_pods_and_platform_settings_only_outdate_them() {
    let base = || Binding::new(&json!({}));
    let (actor, platform) = hash_of(&base().actor());
    let after = |binding: Binding| {
        let (other_actor, other_platform) = hash_of(&binding.actor());
        (other_actor != actor, other_platform != platform)
    };
    let spec = |spec: Value| after(Binding::new(&spec));

    assert_eq!(
        spec(json!({"scaling": {"enabled": true, "maxReplicas": 9}})),
        (false, false)
    );
    assert_eq!(spec(json!({"binding": {"required": true}})), (false, false));
    assert_eq!(
        spec(json!({"timeout": {"gracefulShutdown": 60}})),
        (false, false)
    );
    for rolls in [
        json!({"timeout": {"processing": 60}}),
        json!({"transport": "cloud"}),
        json!({"sidecar": {"image": "s:2"}}),
        json!({"sidecar": {"env": [{"name": "A", "value": "b"}]}}),
        json!({"sidecar": {"resources": {"requests": {"cpu": "1"}}}}),
        json!({"sidecar": {"native": true}}),
        json!({"sidecar": {"securityContext": {"runAsUser": 7}}}),
        json!({"runtime": {"image": "r:2"}}),
        json!({"runtime": {"pythonExecutable": "python"}}),
        json!({"runtime": {"handler": "a.b"}}),
        json!({"runtime": {"targetURL": "http://127.0.0.1:1"}}),
        json!({"runtime": {"env": [{"name": "A", "value": "b"}]}}),
        json!({"runtime": {"resources": {"requests": {"cpu": "1"}}}}),
    ] {
        assert!(spec(rolls.clone()).0, "{rolls}");
    }
    let of_role = |role_arn| Binding {
        role_arn,
        ..Binding::new(&json!({"transport": "cloud"}))
    };
    let (without_role, _) = hash_of(&of_role(None).actor());
    assert_ne!(hash_of(&of_role(Some("r")).actor()).0, without_role);

    let settings = |change: fn(&mut Settings)| {
        let mut binding = base();
        change(&mut binding.settings);
        after(binding)
    };
    assert_eq!(
        settings(|it| it.sidecar_image = "s:2".to_owned()),
        (false, true)
    );
    assert_eq!(
        settings(|it| it.gateway_url = Some("http://g".to_owned())),
        (false, true)
    );
    assert_eq!(
        settings(|it| it.binding.runtime_image = "p".to_owned()),
        (false, true)
    );
    assert_eq!(settings(|it| it.binding.openshift = true), (false, true));
    let scripts = Binding {
        scripts_hash: "other",
        ..base()
    };
    assert_eq!(after(scripts), (false, true));

    let text = format!("{actor}.{platform}");
    assert_eq!(
        InjectedHash::parse(&text),
        Some(InjectedHash { actor, platform })
    );
    assert_eq!(InjectedHash::parse("none"), None);
}

/// INJ-6
#[test]
fn rendering_is_deterministic() {
    let patch = || {
        let actor =
            Binding::new(&json!({"sidecar": {"env": [{"name": "A", "value": "b"}]}})).actor();
        let decision = review(&actor, &pod(&json!({})));
        assert_eq!(decision.reason, InjectionReason::Injected);
        match decision.action {
            crate::inject::bound::Action::Inject(patch) => patch.to_json().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(patch(), patch());
}

/// BIND-26: the kubelet would refuse to start a runtime that must not be root and is.
#[test]
fn sidecar_that_is_to_run_as_root_is_not_injected() {
    let root = json!({"sidecar": {"securityContext": {"runAsUser": 0}}});
    let (actor, pod) = (Binding::new(&root).actor(), pod(&json!({})));
    assert_eq!(review(&actor, &pod).reason, InjectionReason::ActorUnusable);
}
