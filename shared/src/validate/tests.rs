#![allow(clippy::unwrap_used, clippy::expect_used)]

// tests/corpus/specs.yaml has an accepted and a rejected actor for each rule. Here are the cases that need more than a
// row.

use serde_json::{Value, json};

use super::*;
use crate::api::AsyncActorSpec;
use crate::config::TransportsConfig;

const TRANSPORTS: &str = r#"{"transports": {
    "rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "rabbitmq.test"}},
    "role": {"type": "sqs", "enabled": true, "config": {"region": "eu-central-1", "actorRoleArn": "arn:aws:iam::1:role/r"}},
    "off": {"type": "rabbitmq", "enabled": false, "config": {"host": "rabbitmq.test"}}
}}"#;

fn spec(transport: &str, workload: &Value) -> AsyncActorSpec {
    serde_json::from_value(json!({"transport": transport, "workload": workload})).unwrap()
}

fn template(container: &Value) -> Value {
    let mut runtime = json!({"name": "asya-runtime", "image": "a", "env": [{"name": "ASYA_HANDLER", "value": "a.b"}]});
    for (key, value) in container.as_object().unwrap() {
        runtime[key] = value.clone();
    }
    json!({"template": {"spec": {"containers": [runtime]}}})
}

fn with<T>(spec: &AsyncActorSpec, write: Write<'_>, run: impl Fn(&Subject<'_>) -> T) -> T {
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    run(&Subject {
        name: "actor",
        namespace: "ns",
        spec,
        role_arn: None,
        write,
        transports: &transports,
        privileged_sidecars: false,
    })
}

fn checked(spec: &AsyncActorSpec) -> Vec<String> {
    with(spec, Write::Create, |it| {
        check(it).iter().map(ToString::to_string).collect()
    })
}

fn warned(spec: &AsyncActorSpec, write: Write<'_>) -> Vec<String> {
    with(spec, write, |it| {
        warnings(it).iter().map(ToString::to_string).collect()
    })
}

#[test]
fn all_errors_are_reported_at_once_sorted_by_path() {
    let spec = spec(
        "",
        &json!({"replicas": -1, "template": {"spec": {"containers": [{"name": "asya-sidecar"}], "volumes": [{"name": "tmp"}]}}}),
    );
    assert_eq!(
        checked(&spec),
        [
            "spec.transport: must name a configured transport",
            "spec.workload.replicas: must be >= 0",
            "spec.workload.template.spec.containers: exactly one container must be named asya-runtime, found 0; \
             rename the one that runs your handler",
            "spec.workload.template.spec.containers[0].name: asya-sidecar is reserved for the injected sidecar; \
             rename this container",
            "spec.workload.template.spec.volumes[0].name: volume name tmp is reserved; choose another",
        ]
    );
}

#[test]
fn violation_separates_problem_and_fix() {
    let violation = Violation::new("a.b", "this is wrong; do that");
    assert_eq!(
        (violation.problem.as_str(), violation.fix.as_deref()),
        ("this is wrong", Some("do that"))
    );
    assert_eq!(violation.to_string(), "a.b: this is wrong; do that");
    assert_eq!(
        joined(&[violation, Violation::new("c", "d")]),
        "a.b: this is wrong; do that. c: d"
    );
}

/// API-6
#[test]
fn malformed_template_neither_panics_nor_bypasses_a_rule() {
    for (odd, path) in [
        (json!([]), ""),
        (json!("text"), ""),
        (json!({"spec": 1}), ".spec"),
        (json!({"metadata": []}), ".metadata"),
        (json!({"metadata": {"labels": ["app"]}}), ".metadata.labels"),
        (json!({"spec": {"containers": {}}}), ".spec.containers"),
        (
            json!({"spec": {"containers": "asya-runtime"}}),
            ".spec.containers",
        ),
        (
            json!({"spec": {"containers": [null]}}),
            ".spec.containers[0]",
        ),
        (
            json!({"spec": {"containers": [["name"]]}}),
            ".spec.containers[0]",
        ),
        (
            json!({"spec": {"containers": [{"name": 1}]}}),
            ".spec.containers[0].name",
        ),
        (
            json!({"spec": {"containers": [{"image": {}}]}}),
            ".spec.containers[0].image",
        ),
        (
            json!({"spec": {"containers": [{"command": "sh"}]}}),
            ".spec.containers[0].command",
        ),
        (
            json!({"spec": {"containers": [{"env": {"A": "b"}}]}}),
            ".spec.containers[0].env",
        ),
        (
            json!({"spec": {"containers": [{"env": ["A"]}]}}),
            ".spec.containers[0].env[0]",
        ),
        (
            json!({"spec": {"containers": [{"volumeMounts": [{"mountPath": 1}]}]}}),
            ".spec.containers[0].volumeMounts[0].mountPath",
        ),
        (
            json!({"spec": {"initContainers": {}}}),
            ".spec.initContainers",
        ),
        (json!({"spec": {"volumes": {"tmp": {}}}}), ".spec.volumes"),
    ] {
        let found = checked(&spec("rabbitmq", &json!({"template": odd})));
        let expected = format!("spec.workload.template{path}: must be ");
        assert!(
            found.iter().any(|it| it.starts_with(&expected)),
            "{odd}: {found:?}"
        );
    }
}

/// API-6
#[test]
fn undecodable_value_is_reported_with_its_path() {
    let cases = [
        (r#"{"transport": 1}"#, "spec.transport", "invalid type"),
        (
            r#"{"transport": "t", "scaling": {"minReplicas": 9999999999}}"#,
            "spec.scaling.minReplicas",
            "invalid value",
        ),
        (
            r#"{"transport": "t", "runtime": {"env": [{"name": "A"}, {"value": "b"}]}}"#,
            "spec.runtime.env[1]",
            "missing field `name`",
        ),
        (
            r#"{"transport": "t", "workload": {"kind": "DaemonSet", "template": {}}}"#,
            "spec.workload.kind",
            "unknown variant",
        ),
        (
            r#"{"workload": {"template": {}}}"#,
            "spec",
            "missing field `transport`",
        ),
        (r#"{"transport""#, "spec", "EOF"),
    ];
    for (text, path, problem) in cases {
        let violation = decode(text).unwrap_err();
        assert_eq!(violation.path, path, "{violation}");
        assert!(violation.problem.contains(problem), "{violation}");
        assert!(!violation.to_string().contains("line 1"), "{violation}");
    }
    assert_eq!(
        decode(r#"{"transport": "t", "newField": 1}"#)
            .unwrap()
            .transport,
        "t"
    );
}

/// VAL-8
#[test]
fn no_notation_of_a_reserved_path_bypasses_the_rule() {
    for (path, managed) in [
        ("/var/run/asya", true),
        ("/var/run/asya/", true),
        ("//var/./run/asya/deep", true),
        ("/var/run/x/../asya", true),
        ("/opt/asya/../asya/asya_runtime.py", true),
        ("/var/run", false),
        ("/var/run/asya-cache", false),
        ("/var/run/asya/..", false),
        ("/opt/asya", false),
        ("/opt/asya/asya_runtime.py.d", false),
    ] {
        let found = checked(&spec(
            "rabbitmq",
            &template(&json!({"volumeMounts": [{"name": "m", "mountPath": path}]})),
        ));
        assert_eq!(!found.is_empty(), managed, "{path}: {found:?}");
    }
}

/// VAL-11
#[test]
fn name_of_an_existing_actor_is_not_checked() {
    let spec = spec("rabbitmq", &template(&json!({})));
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    let judged = |name: &str, write| {
        check(&Subject {
            name,
            namespace: "ns",
            spec: &spec,
            role_arn: None,
            write,
            transports: &transports,
            privileged_sidecars: false,
        })
        .len()
    };
    assert_eq!(judged("my.actor", Write::Stored(Recorded::default())), 0);
    assert_eq!(judged("my.actor", Write::Update { old: &spec }), 0);
    for (name, wrong) in [
        ("my.actor", 1),
        ("-a", 1),
        ("a-", 1),
        ("A", 1),
        ("a1", 0),
        (&*"a".repeat(64), 1),
    ] {
        assert_eq!(judged(name, Write::Create), wrong, "{name}");
    }
}

/// VAL-15
#[test]
fn transport_role_excludes_a_service_account_of_the_user() {
    for key in ["serviceAccountName", "serviceAccount"] {
        let mut workload = template(&json!({}));
        workload["template"]["spec"][key] = json!("mine");
        assert_eq!(
            checked(&spec("role", &workload)),
            [format!(
                "spec.workload.template.spec.{key}: cannot be combined with an IRSA role; remove one"
            )]
        );
        assert_eq!(checked(&spec("rabbitmq", &workload)), [""; 0]);
        workload["template"]["spec"][key] = json!("");
        assert_eq!(checked(&spec("role", &workload)), [""; 0]);
    }
}

/// VAL-16
#[test]
fn conflicting_queue_is_reported_with_its_owner() {
    assert_eq!(
        queue_in_use("asya-phi3", "other", "phi3").to_string(),
        "spec.transport: queue asya-phi3 already belongs to other/phi3; rename this actor or set the transport's nameTemplate"
    );
}

/// BIND-2
#[test]
fn target_must_be_in_the_same_and_not_in_a_system_namespace() {
    let mut spec: AsyncActorSpec = serde_json::from_value(json!({
        "transport": "rabbitmq",
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
    }))
    .unwrap();
    let crossing = |spec: &AsyncActorSpec| {
        with(spec, Write::Stored(Recorded::default()), |it| {
            cross_namespace_violation(it).map(|it| it.to_string())
        })
    };
    assert_eq!(crossing(&spec), None);
    for (namespace, refused) in [("ns", false), ("", false), ("other", true)] {
        spec.workload_ref.as_mut().unwrap().namespace = Some(namespace.to_owned());
        assert_eq!(crossing(&spec).is_some(), refused, "{namespace}");
    }
    assert_eq!(
        crossing(&spec).unwrap(),
        "spec.workloadRef.namespace: an actor can bind only in its own namespace; remove it, or create the AsyncActor \
         in other"
    );
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    for (namespace, refused) in [
        ("ns", false),
        ("asya-system", true),
        ("kube-system", true),
        ("kube-flannel", true),
        ("kubeflow", false),
        ("kube", false),
    ] {
        let write = Write::Stored(Recorded::default());
        let subject = Subject {
            name: "actor",
            namespace,
            spec: &spec,
            role_arn: None,
            write,
            transports: &transports,
            privileged_sidecars: false,
        };
        assert_eq!(
            excluded_namespace_violation(&subject, "asya-system").is_some(),
            refused,
            "{namespace}"
        );
    }
}

/// VAL-17
#[test]
fn warnings_report_what_is_probably_unintended() {
    let good = spec("rabbitmq", &template(&json!({})));
    assert_eq!(warned(&good, Write::Stored(Recorded::default())), [""; 0]);

    let unknown = spec("kafka", &template(&json!({})));
    assert_eq!(
        warned(&unknown, Write::Create),
        ["spec.transport: transport \"kafka\" is not configured; enabled: rabbitmq, role"]
    );
    let off = spec("off", &template(&json!({})));
    assert_eq!(
        warned(&off, Write::Update { old: &good }),
        [
            "spec.transport: messages in the queue on rabbitmq are not moved to off",
            "spec.transport: transport \"off\" is disabled; enabled: rabbitmq, role",
        ]
    );

    let no_handler = spec("rabbitmq", &template(&json!({"env": []})));
    assert_eq!(warned(&no_handler, Write::Create).len(), 1);
    let from = spec(
        "rabbitmq",
        &template(&json!({"env": null, "envFrom": [{"configMapRef": {"name": "c"}}]})),
    );
    assert_eq!(warned(&from, Write::Create), [""; 0]);

    let mut two_periods = spec("rabbitmq", &template(&json!({})));
    two_periods.workload.as_mut().unwrap().template["spec"]["terminationGracePeriodSeconds"] =
        json!(60);
    assert_eq!(warned(&two_periods, Write::Create), [""; 0]);
    two_periods.timeout = serde_json::from_value(json!({"gracefulShutdown": 45})).unwrap();
    assert_eq!(
        warned(&two_periods, Write::Create),
        [
            "spec.workload.template.spec.terminationGracePeriodSeconds: takes precedence over \
             timeout.gracefulShutdown (45); set only one"
        ]
    );

    let mut scaled = good.clone();
    scaled.workload.as_mut().unwrap().replicas = Some(3);
    assert_eq!(warned(&scaled, Write::Create), [""; 0]);
    scaled.scaling = serde_json::from_value(json!({"enabled": true})).unwrap();
    assert_eq!(
        warned(&scaled, Write::Create),
        ["spec.workload.replicas: has no effect while scaling is enabled"]
    );

    let mut parallel = good.clone();
    parallel.concurrency = Some(8);
    assert_eq!(warned(&parallel, Write::Create), [""; 0]);
    parallel.scaling = serde_json::from_value(json!({"enabled": true})).unwrap();
    assert_eq!(
        warned(&parallel, Write::Create),
        [
            "spec.scaling.queueLength: 5 is below spec.concurrency 8: pods are added before the existing ones are busy"
        ]
    );

    let mut long = spec("role", &template(&json!({})));
    long.timeout = serde_json::from_value(json!({"processing": 21_600})).unwrap();
    assert_eq!(warned(&long, Write::Create), [""; 0]);
    for (processing, expected) in [
        (21_601, "a message that takes longer is redelivered"),
        (43_200, "a message that takes longer is redelivered"),
        (43_201, "the sidecar gives a message up after 43200 s"),
    ] {
        long.timeout = serde_json::from_value(json!({"processing": processing})).unwrap();
        let warnings = warned(&long, Write::Create);
        assert!(
            warnings.len() == 1 && warnings[0].contains(expected),
            "{processing}: {warnings:?}"
        );
    }
}

/// SEC-15
#[test]
fn privileged_sidecars_are_refused_unless_the_installation_allows_them() {
    let refused = "a privileged sidecar is not allowed on this cluster; remove the field, or ask an administrator to \
                   set sidecar.allowPrivileged: true in the chart";
    let cases = [
        (json!({"privileged": true}), "privileged"),
        (
            json!({"allowPrivilegeEscalation": true}),
            "allowPrivilegeEscalation",
        ),
        (
            json!({"capabilities": {"add": ["SYS_ADMIN"]}}),
            "capabilities.add",
        ),
        (json!({"procMount": "Unmasked"}), "procMount"),
        (
            json!({"privileged": false, "runAsUser": 7, "procMount": "Default"}),
            "",
        ),
        (
            json!({"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}),
            "",
        ),
        (json!("nonsense"), ""),
    ];
    for (context, field) in cases {
        let mut actor = spec("rabbitmq", &template(&json!({})));
        actor.sidecar = Some(serde_json::from_value(json!({"securityContext": context})).unwrap());
        let expected = format!("spec.sidecar.securityContext.{field}: {refused}");
        let expected: Vec<String> = Some(expected)
            .filter(|_| !field.is_empty())
            .into_iter()
            .collect();
        assert_eq!(checked(&actor), expected, "{context}");
        let allowed = with(&actor, Write::Create, |it| {
            check(&Subject {
                privileged_sidecars: true,
                ..*it
            })
        });
        assert_eq!(allowed, [], "{context}");
    }
}

/// BIND-26
#[test]
fn sidecar_of_a_binding_must_not_run_as_root() {
    let mut bound = spec("rabbitmq", &template(&json!({})));
    bound.workload = None;
    bound.workload_ref =
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}))
            .unwrap();
    let refused = "spec.sidecar.securityContext.runAsUser: in the pods of a binding, the sidecar and asya-runtime run \
                   as the same user, and never as root; set another user, or remove the field";
    let mut standalone = spec("rabbitmq", &template(&json!({})));
    for (user, is_refused) in [(0, true), (7, false)] {
        let sidecar = json!({"securityContext": {"runAsUser": user}});
        bound.sidecar = Some(serde_json::from_value(sidecar).unwrap());
        standalone.sidecar.clone_from(&bound.sidecar);
        let expected: &[&str] = if is_refused { &[refused] } else { &[] };
        assert_eq!(checked(&bound), expected, "{user}");
        assert_eq!(checked(&standalone), [""; 0], "{user}");
    }
}
