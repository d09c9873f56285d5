//! Transport configurations as anybody could write them (OPS-3).

use std::collections::BTreeSet;

use asya_fuzz::input::{damaged, json};
use asya_fuzz::proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof};
use asya_fuzz::proptest::sample::select;
use asya_fuzz::{check, fail};
use serde_json::{Value, json};

use super::{TransportsConfig, values_of_the_former_chart};

fn valid() -> Value {
    let mut transports = values_of_the_former_chart();
    transports["templated"] = json!({"type": "rabbitmq", "enabled": true, "config": {
        "host": "[::1]", "vhost": "a/b", "tls": true, "caSecretRef": {"name": "ca", "key": "ca.crt"},
        "queues": {"nameTemplate": "asya-{namespace}-{actor}", "dlq": {"enabled": true, "retentionDays": 3}},
        "management": {"scheme": "https", "port": 15671}}});
    json!({"transports": transports})
}

/// Every place in a value, as a pointer.
fn places(value: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, it)| (key.clone(), it)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, it)| (at.to_string(), it))
            .collect(),
        _ => Vec::new(),
    };
    let within = children.into_iter().flat_map(|(key, it)| {
        places(it)
            .into_iter()
            .map(move |rest| format!("/{key}{rest}"))
    });
    std::iter::once(String::new()).chain(within).collect()
}

/// The configuration with another value at one place, or with a few bytes changed.
fn configurations() -> impl Strategy<Value = String> {
    let changed = (select(places(&valid())), json()).prop_map(|(place, value)| {
        let mut all = valid();
        if let Some(it) = all.pointer_mut(&place) {
            *it = value;
        }
        all.to_string()
    });
    let bytes = damaged(vec![valid().to_string().into_bytes()]);
    prop_oneof![
        changed,
        bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ]
}

/// OPS-3, POD-3, POD-4, QUE-1, SC-10
#[test]
fn any_configuration_is_refused_in_words_or_makes_a_usable_environment() {
    assert!(TransportsConfig::parse(&valid().to_string()).is_ok());
    check(&configurations(), |text| {
        let config = match TransportsConfig::parse(&text) {
            Ok(config) => config,
            Err(error) => {
                let told = error.to_string();
                prop_assert!(told.starts_with("ASYA_TRANSPORT_CONFIG: "), "{told}");
                return Ok(());
            }
        };
        prop_assert_eq!(
            TransportsConfig::parse(&text).map_err(fail)?,
            config.clone()
        );
        for transport in config.iter() {
            let broker = transport.broker();
            let env = [broker.sidecar_env(), broker.own_sidecar_env()].concat();
            let names: BTreeSet<&str> = env.iter().map(|it| it.name.as_str()).collect();
            prop_assert_eq!(names.len(), env.len(), "a variable twice");
            prop_assert!(names.contains("ASYA_TRANSPORT"));
            let names = transport.names_of("team-a", "foo");
            prop_assert!(names.queue.starts_with("asya-"), "{names:?}");
        }
        Ok(())
    });
}
