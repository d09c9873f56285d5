//! Checks the corpus against the CRD's rules and against those of webhook and controller: they agree on everything that
//! CEL can see (VAC-2).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use asya_crds::corpus::{Case, cases, former_actors};
use asya_crds::evaluable_schema;
use asya_shared::api::AsyncActor;
use asya_shared::config::TransportsConfig;
use asya_shared::validate::{Subject, Violation, Write, check};
use kube::core::cel::Validator;
use serde_json::Value;

const TRANSPORTS: &str = r#"{"transports": {
    "rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "rabbitmq.test"}},
    "sqs": {"type": "sqs", "enabled": true, "config": {"region": "eu-central-1"}}
}}"#;

/// VAL-1, VAL-2, VAL-12, VAL-13, VAL-14, BIND-10, BIND-11, BIND-12, BIND-13, BIND-14, BIND-15, BIND-16, BIND-17,
/// BIND-18, BIND-19, each with an accepted and a rejected object.
#[test]
fn the_crd_accepts_and_refuses_what_the_corpus_says() {
    let schema = evaluable_schema().unwrap();
    for case in cases().unwrap() {
        let found = Validator::new().validate(&schema, &case.new, case.old.as_ref());
        let found: Vec<(String, String)> = found.err().map_or_else(Vec::new, |errors| {
            errors
                .into_vec()
                .into_iter()
                .map(|it| (it.field_path, it.message))
                .collect()
        });
        let expected = case.refusal.as_ref().filter(|it| it.by_crd);
        match expected {
            None => assert!(found.is_empty(), "{}: {found:?}", named(&case)),
            Some(refusal) => assert!(
                found.contains(&(refusal.path.clone(), refusal.text.clone())),
                "{}: expected \"{}\", found {found:?}",
                named(&case),
                refusal.text,
            ),
        }
    }
}

/// VAL-1, VAL-2, VAL-3, VAL-4, VAL-5, VAL-6, VAL-7, VAL-8, VAL-9, VAL-10, VAL-11, VAL-12, VAL-13, VAL-14, VAL-15,
/// VAL-21, BIND-10, BIND-11, BIND-12, BIND-13, BIND-14, BIND-15, BIND-16, BIND-17, BIND-18, BIND-19, each with an
/// accepted and a rejected object.
#[test]
fn webhook_and_controller_accept_and_refuse_what_the_corpus_says() {
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    for case in cases().unwrap() {
        let found = violations(&case, &transports);
        match &case.refusal {
            None => assert!(found.is_empty(), "{}: {found:?}", named(&case)),
            Some(refusal) => assert!(
                found
                    .iter()
                    .any(|it| it.to_string() == format!("{}: {}", refusal.path, refusal.text)),
                "{}: expected \"{}: {}\", found {found:#?}",
                named(&case),
                refusal.path,
                refusal.text,
            ),
        }
    }
}

#[test]
fn actors_of_the_former_operator_break_no_rule() {
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    let schema = evaluable_schema().unwrap();
    let actors = former_actors().unwrap();
    assert_eq!(actors.len(), 3);
    for new in actors {
        let found = Validator::new().validate(&schema, &new, None);
        assert!(found.is_ok(), "{new}: {found:?}");
        let case = Case {
            rules: Vec::new(),
            old: None,
            new,
            refusal: None,
        };
        assert_eq!(violations(&case, &transports), []);
        let actor: AsyncActor = serde_json::from_value(case.new.clone()).unwrap();
        assert_eq!(serde_json::to_value(actor.spec).unwrap(), case.new["spec"]);
    }
}

#[test]
fn every_rule_of_the_crd_is_shown_by_a_refused_object() {
    let shown: Vec<String> = cases()
        .unwrap()
        .into_iter()
        .filter_map(|case| case.refusal.filter(|it| it.by_crd))
        .map(|it| format!("{}: {}", it.path, it.text))
        .collect();
    let mut rules = Vec::new();
    collect_rules(&schema(), "", &mut rules);
    assert!(rules.len() > 20, "{rules:?}");
    for rule in rules {
        assert!(
            shown.contains(&rule),
            "no row of tests/corpus/specs.yaml shows \"{rule}\""
        );
    }
}

fn schema() -> Value {
    let crd = asya_shared::api::crd().unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
        .clone()
}

fn violations(case: &Case, transports: &TransportsConfig) -> Vec<Violation> {
    let actor: AsyncActor = serde_json::from_value(case.new.clone()).unwrap();
    let old: Option<AsyncActor> = case
        .old
        .clone()
        .map(|it| serde_json::from_value(it).unwrap());
    let annotations = actor.metadata.annotations.unwrap_or_default();
    check(&Subject {
        name: actor.metadata.name.as_deref().unwrap(),
        namespace: actor.metadata.namespace.as_deref().unwrap(),
        spec: &actor.spec,
        role_arn: annotations
            .get("eks.amazonaws.com/role-arn")
            .map(String::as_str),
        write: old
            .as_ref()
            .map_or(Write::Create, |it| Write::Update { old: &it.spec }),
        transports,
        privileged_sidecars: false,
    })
}

fn named(case: &Case) -> String {
    format!("{} {}", case.rules.join(", "), case.new)
}

/// Every rule of a schema as `<path>: <message>`.
fn collect_rules(schema: &Value, path: &str, rules: &mut Vec<String>) {
    let own = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    for rule in own.into_iter().flatten() {
        let field = rule
            .get("fieldPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        rules.push(format!(
            "{path}{field}: {}",
            rule["message"].as_str().unwrap()
        ));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect_rules(property, &path, rules);
    }
}
