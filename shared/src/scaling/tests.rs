#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::api::{AsyncActorSpec, WorkloadKind};
use crate::applied::HashedManifest;
use crate::config::testing::transport;
use crate::hash;

/// Actor `foo` in `team-a` on a transport of this type, with these fields in `spec.scaling`.
fn build(
    kind: &str,
    config: &Value,
    scaling: &Value,
    queue_url: Option<&str>,
) -> Result<ScalingObjects, TriggerError> {
    build_for("foo", kind, config, scaling, queue_url)
}

fn build_for(
    actor: &str,
    kind: &str,
    config: &Value,
    scaling: &Value,
    queue_url: Option<&str>,
) -> Result<ScalingObjects, TriggerError> {
    let mut scaling = scaling.clone();
    scaling["enabled"] = json!(true);
    let spec: AsyncActorSpec =
        serde_json::from_value(json!({"transport": "t", "scaling": scaling})).unwrap();
    let transport = transport(kind, config);
    let names = transport.names_of("team-a", actor);
    scaling_objects(&ScalingInputs {
        namespace: "team-a",
        actor,
        uid: "uid-1",
        scaling: spec.effective_scaling().unwrap(),
        target: ScaleTarget::workload(WorkloadKind::StatefulSet, actor),
        transport: &transport,
        names: &names,
        queue_url,
    })
}

fn rabbitmq(config: &Value) -> ScalingObjects {
    let mut whole = json!({"host": "broker"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    build("rabbitmq", &whole, &json!({}), None).unwrap()
}

fn scaled(scaling: &Value) -> Value {
    build("rabbitmq", &json!({"host": "broker"}), scaling, None)
        .unwrap()
        .scaled_object
        .object
}

fn trigger(objects: &ScalingObjects) -> &Value {
    &objects.scaled_object.object["spec"]["triggers"][0]
}

fn metadata<'a>(objects: &'a ScalingObjects, key: &str) -> Option<&'a str> {
    trigger(objects)["metadata"].get(key)?.as_str()
}

fn golden(objects: &ScalingObjects, text: &str) {
    let sealed = [
        objects.config_map.as_ref(),
        objects.trigger_authentication.as_ref(),
        Some(&objects.scaled_object),
    ];
    let built: Vec<&Value> = sealed
        .into_iter()
        .flatten()
        .map(|sealed| &sealed.object)
        .collect();
    let golden: Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        json!(built),
        golden,
        "{}",
        serde_json::to_string_pretty(&built).unwrap()
    );
}

/// All objects for an actor on RabbitMQ (KEDA-1, KEDA-2, KEDA-6).
#[test]
fn rabbitmq_objects_match_the_golden_file() {
    let objects = rabbitmq(&json!({
        "username": "asya",
        "passwordSecretRef": {"name": "rabbitmq-secret", "key": "password"},
        "vhost": "models",
    }));
    golden(&objects, include_str!("golden_rabbitmq.json"));
}

/// All objects for an actor on SQS with every scaling field set (KEDA-3, KEDA-4, KEDA-5).
#[test]
fn sqs_objects_match_the_golden_file() {
    let config = json!({
        "region": "eu-central-1",
        "accountId": "123456789012",
        "credentials": {
            "accessKeyIdSecretRef": {"name": "aws", "key": "id"},
            "secretAccessKeySecretRef": {"name": "aws", "key": "secret"},
        },
    });
    let scaling = json!({
        "minReplicas": 1,
        "maxReplicas": 7,
        "pollingInterval": 3,
        "cooldownPeriod": 0,
        "initialCooldownPeriod": 30,
        "queueLength": 2,
        "activationQueueLength": 4,
        "countInFlight": false,
        "fallback": {"failureThreshold": 3, "replicas": 2},
        "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
        "advanced": {
            "formula": "queueLength * 2",
            "target": "10",
            "activationTarget": "1",
            "metricType": "Value",
            "restoreToOriginalReplicaCount": true,
        },
    });
    let objects = build("sqs", &config, &scaling, None).unwrap();
    golden(&objects, include_str!("golden_sqs.json"));
}

/// KEDA-7
#[test]
fn each_object_carries_its_own_hash() {
    let objects = rabbitmq(&json!({"passwordSecretRef": {"name": "s", "key": "k"}}));
    let all = [
        objects.config_map.unwrap(),
        objects.trigger_authentication.unwrap(),
        objects.scaled_object,
    ];
    for HashedManifest { mut object, hash } in all {
        let annotations = object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        assert_eq!(annotations, Some(json!({"asya.sh/applied-hash": hash})));
        assert_eq!(hash, hash::of_value(&object));
    }
}

/// KEDA-1
#[test]
fn hpa_name_is_set_only_where_the_default_is_too_long() {
    let name = |actor: &str| {
        let config = json!({"host": "broker"});
        let objects = build_for(actor, "rabbitmq", &config, &json!({}), None).unwrap();
        let hpa =
            &objects.scaled_object.object["spec"]["advanced"]["horizontalPodAutoscalerConfig"];
        hpa.get("name").cloned()
    };
    let (longest, longer) = ("a".repeat(54), "a".repeat(55));
    assert_eq!(name(&longest), None);
    assert_eq!(hpa_name(&longest), format!("keda-hpa-{longest}"));
    assert_eq!(name(&longer), Some(json!(longer)));
    assert_eq!(hpa_name(&longer), longer);
}

/// KEDA-1: KEDA 2.16 removes an initial cooldown of 0, so that the operator would have to write it again.
#[test]
fn initial_cooldown_of_zero_is_left_out() {
    for (seconds, written) in [(json!(0), None), (json!(30), Some(json!(30)))] {
        let object = scaled(&json!({"initialCooldownPeriod": seconds}));
        let spec = object["spec"].as_object();
        assert_eq!(
            spec.and_then(|it| it.get("initialCooldownPeriod")),
            written.as_ref()
        );
    }
}

/// KEDA-1
#[test]
fn zero_is_kept_for_the_cooldown_and_replaced_for_polling() {
    let object = scaled(&json!({"pollingInterval": 0, "cooldownPeriod": 0}));
    let spec = &object["spec"];
    assert_eq!(
        (&spec["pollingInterval"], &spec["cooldownPeriod"]),
        (&json!(10), &json!(0))
    );
}

/// KEDA-2
#[test]
fn behaviour_half_set_by_the_user_replaces_the_default() {
    let ours = scaled(&json!({}));
    let behavior = |object: &Value| {
        object["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"].clone()
    };
    let up = json!({"stabilizationWindowSeconds": 9});
    let given = behavior(&scaled(&json!({"behavior": {"scaleUp": up}})));
    assert_eq!(given["scaleUp"], up);
    assert_eq!(given["scaleDown"], behavior(&ours)["scaleDown"]);
    let null = behavior(&scaled(&json!({"behavior": {"scaleUp": null}})));
    assert_eq!(null, behavior(&ours));
}

/// Fields that KEDA drops when it writes the object back are not sent (KEDA-3, KEDA-7).
#[test]
fn empty_and_false_values_are_not_sent() {
    let object = scaled(&json!({"advanced": {
        "formula": "",
        "target": "10",
        "activationTarget": "",
        "restoreToOriginalReplicaCount": false,
    }}));
    let advanced = object["spec"]["advanced"].as_object().unwrap();
    let keys: Vec<&String> = advanced.keys().collect();
    assert_eq!(keys, ["horizontalPodAutoscalerConfig"]);
    let object = scaled(&json!({"advanced": {"formula": "queueLength", "target": "10"}}));
    assert_eq!(
        object["spec"]["advanced"]["scalingModifiers"],
        json!({"formula": "queueLength", "target": "10", "metricType": "AverageValue"})
    );
}

/// KEDA-4
#[test]
fn sqs_queue_url_comes_from_the_broker_or_the_configuration() {
    let reported = "http://sqs.local:4566/000000000000/asya-foo";
    let aws = "https://sqs.us-west-2.amazonaws.com/1/asya-foo";
    let table = [
        (
            json!({"region": "eu-central-1", "accountId": "1"}),
            None,
            "https://sqs.eu-central-1.amazonaws.com/1/asya-foo",
        ),
        (
            json!({"region": "cn-north-1", "accountId": "1"}),
            None,
            "https://sqs.cn-north-1.amazonaws.com.cn/1/asya-foo",
        ),
        (
            json!({"region": "us-gov-west-1", "accountId": "1"}),
            None,
            "https://sqs.us-gov-west-1.amazonaws.com/1/asya-foo",
        ),
        (
            json!({"region": "us-isob-east-1", "accountId": "1"}),
            None,
            "https://sqs.us-isob-east-1.sc2s.sgov.gov/1/asya-foo",
        ),
        (
            json!({"region": "r", "accountId": "1", "endpoint": "http://sqs:4566/"}),
            Some(reported),
            "http://sqs:4566/1/asya-foo",
        ),
        (json!({"region": "r"}), Some(reported), reported),
        (json!({}), Some(aws), aws),
        (json!({"accountId": "1"}), Some(aws), aws),
    ];
    for (config, queue_url, expected) in table {
        let objects = build("sqs", &config, &json!({}), queue_url).unwrap();
        assert_eq!(metadata(&objects, "queueURL"), Some(expected), "{config}");
    }
}

/// KEDA-4
#[test]
fn missing_queue_url_or_region_is_a_distinct_error() {
    let unknown = |config: Value, url| build("sqs", &config, &json!({}), url).unwrap_err();
    let queue = "asya-foo".to_owned();
    assert_eq!(
        unknown(json!({"region": "eu-central-1"}), None),
        TriggerError::QueueUrlUnknown {
            queue: queue.clone()
        }
    );
    for local in [
        "http://127.0.0.1:4566/000000000000/asya-foo",
        "http://sqs.my-lan.example/000000000000/asya-foo",
    ] {
        let queue = queue.clone();
        assert_eq!(
            unknown(json!({}), Some(local)),
            TriggerError::RegionUnknown { queue }
        );
    }
}

/// KEDA-4
#[test]
fn region_and_endpoint_of_sqs_reach_keda() {
    let config = json!({"endpoint": "http://sqs:4566", "accountId": "1", "region": "eu-west-1"});
    let objects = build("sqs", &config, &json!({}), None).unwrap();
    assert_eq!(metadata(&objects, "awsEndpoint"), Some("http://sqs:4566"));
    assert_eq!(metadata(&objects, "awsRegion"), Some("eu-west-1"));
    assert_eq!(metadata(&objects, "scaleOnInFlight"), Some("true"));
    for (host, region) in [
        ("sqs.us-west-2.amazonaws.com", "us-west-2"),
        ("sqs.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"),
    ] {
        let url = format!("https://{host}/1/asya-foo");
        let objects = build("sqs", &json!({}), &json!({}), Some(&url)).unwrap();
        assert_eq!(metadata(&objects, "awsEndpoint"), None);
        assert_eq!(metadata(&objects, "awsRegion"), Some(region));
    }
}

/// KEDA-5
#[test]
fn without_keys_keda_uses_an_aws_identity() {
    let table = [
        (json!({}), json!({"provider": "aws"})),
        (
            json!({"identityOwner": "workload"}),
            json!({"provider": "aws", "identityOwner": "workload"}),
        ),
        (
            json!({"roleArn": "arn:aws:iam::1:role/keda"}),
            json!({"provider": "aws", "roleArn": "arn:aws:iam::1:role/keda"}),
        ),
    ];
    for (keda, identity) in table {
        let config = json!({"region": "eu-west-1", "accountId": "1", "keda": keda});
        let objects = build("sqs", &config, &json!({}), None).unwrap();
        assert_eq!(
            trigger(&objects)["authenticationRef"],
            json!({"name": "foo-trigger-auth"})
        );
        let authentication = objects.trigger_authentication.unwrap().object;
        assert_eq!(authentication["spec"], json!({"podIdentity": identity}));
        assert_eq!(objects.config_map, None);
    }
}

/// KEDA-6
#[test]
fn default_user_of_rabbitmq_needs_no_authentication() {
    let objects = rabbitmq(&json!({"management": {"host": "admin", "port": 8080}}));
    assert_eq!(
        metadata(&objects, "host"),
        Some("http://guest:guest@admin:8080/")
    );
    assert_eq!(trigger(&objects).get("authenticationRef"), None);
    assert_eq!(
        (objects.config_map, objects.trigger_authentication),
        (None, None)
    );
    let objects = rabbitmq(&json!({"username": "a/b@c"}));
    assert_eq!(
        metadata(&objects, "host"),
        Some("http://a%2Fb%40c:guest@broker:15672/")
    );
}

/// KEDA-6
#[test]
fn private_ca_reaches_keda_with_tls_enabled() {
    let config = json!({
        "management": {"scheme": "https", "caSecretRef": {"name": "ca", "key": "ca.crt"}},
    });
    let objects = rabbitmq(&config);
    let authentication = objects.trigger_authentication.unwrap().object;
    assert_eq!(
        authentication["spec"],
        json!({
            "configMapTargetRef": [{"parameter": "tls", "name": "asya-transport-t", "key": "tls"}],
            "secretTargetRef": [{"parameter": "ca", "name": "ca", "key": "ca.crt"}],
        })
    );
    assert_eq!(
        objects.config_map.unwrap().object["data"],
        json!({"tls": "enable"})
    );
    let plain = rabbitmq(&json!({"management": {"caSecretRef": {"name": "ca", "key": "k"}}}));
    assert_eq!(plain.trigger_authentication, None);
}

/// KEDA-6
#[test]
fn certificate_verification_is_disabled_only_on_request() {
    let of = |skip: bool| {
        rabbitmq(&json!({"management": {"scheme": "https", "insecureSkipVerify": skip}}))
    };
    assert_eq!(metadata(&of(true), "unsafeSsl"), Some("true"));
    assert_eq!(metadata(&of(false), "unsafeSsl"), Some("false"));
}

/// KEDA-6
#[test]
fn in_flight_messages_are_excluded_only_on_request() {
    let of = |count: bool| {
        let config = json!({"host": "broker"});
        build("rabbitmq", &config, &json!({"countInFlight": count}), None).unwrap()
    };
    assert_eq!(metadata(&of(true), "excludeUnacknowledged"), Some("false"));
    assert_eq!(metadata(&of(false), "excludeUnacknowledged"), Some("true"));
}

/// KEDA-6
#[test]
fn keda_uses_amqp_only_on_request() {
    let objects = rabbitmq(&json!({
        "tls": true,
        "passwordSecretRef": {"name": "s", "key": "k"},
        "management": {"caSecretRef": {"name": "ca", "key": "ca.crt"}, "insecureSkipVerify": true},
        "keda": {"protocol": "amqp"},
    }));
    assert_eq!(metadata(&objects, "protocol"), Some("amqp"));
    assert_eq!(metadata(&objects, "host"), Some("amqps://broker:5671/"));
    // KEDA rejects the first and does not need the second
    assert_eq!(metadata(&objects, "excludeUnacknowledged"), None);
    assert_eq!(metadata(&objects, "unsafeSsl"), None);
    let data = &objects.config_map.unwrap().object["data"];
    assert_eq!(data, &json!({"tls": "enable", "username": "guest"}));
}

/// KEDA-6: the CA is that of the server to which KEDA connects.
#[test]
fn keda_verifies_the_server_of_its_protocol() {
    let (broker, management) = (
        json!({"name": "mq", "key": "ca"}),
        json!({"name": "api", "key": "ca"}),
    );
    for (protocol, of_broker, of_management, expected) in [
        ("amqp", &broker, &management, Some("mq")),
        ("amqp", &broker, &Value::Null, Some("mq")),
        ("amqp", &Value::Null, &management, Some("api")),
        ("amqp", &Value::Null, &Value::Null, None),
        ("http", &broker, &management, Some("api")),
        ("http", &broker, &Value::Null, None),
    ] {
        let objects = rabbitmq(&json!({
            "tls": true, "caSecretRef": of_broker, "keda": {"protocol": protocol},
            "management": {"scheme": "https", "caSecretRef": of_management},
        }));
        let authentication = objects.trigger_authentication.map(|it| it.object);
        let secrets = authentication.map(|it| it["spec"]["secretTargetRef"].clone());
        let mut secrets = secrets.iter().filter_map(Value::as_array).flatten();
        let authority = secrets.find(|it| it["parameter"] == "ca");
        let name = authority.and_then(|it| it["name"].as_str());
        assert_eq!(name, expected, "{protocol} {of_broker} {of_management}");
    }
}

/// KEDA-6
#[test]
fn transport_config_map_has_a_legal_name() {
    assert_eq!(transport_config_map_name("sqs-eu"), "asya-transport-sqs-eu");
    for odd in ["My_MQ", "mq-", "", "a.b", "mq:1"] {
        let name = transport_config_map_name(odd);
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(legal) && !name.ends_with('-'), "{name}");
    }
    assert_ne!(
        transport_config_map_name("My_MQ"),
        transport_config_map_name("my_mq")
    );
}
