use asya_crds::corpus::cases;
use asya_shared::validate::MAX_SPEC_BYTES;
use serde_json::json;

use super::*;

const TRANSPORTS: &str = r#"{"transports": {
    "rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "rabbitmq.test"}},
    "sqs": {"type": "sqs", "enabled": true, "config": {"region": "eu-central-1"}}
}}"#;

fn installation() -> Installation {
    Installation {
        transports: TransportsConfig::parse(TRANSPORTS).unwrap(),
        settings: asya_shared::config::Settings::parse(None, None, None).unwrap(),
        facts: WebhookFacts::default(),
    }
}

fn lint_objects(
    objects: impl IntoIterator<Item = Value>,
    installation: Option<&Installation>,
) -> Linted {
    let objects = objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| Manifest {
            file: "actors.yaml".to_owned(),
            line: index + 1,
            text: "".into(),
            object,
        });
    let manifests = Manifests {
        objects: objects.collect(),
        unreadable: Vec::new(),
    };
    let schema = asya_crds::evaluable_schema().unwrap();
    let rules = Rules {
        schema: &schema,
        installation,
        namespace: "models",
        operator_namespace: "asya-system",
    };
    lint(&manifests, &rules)
}

fn binding(name: &str, target: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "AsyncActor", "metadata": {"name": name},
        "spec": {
            "transport": "rabbitmq",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "binding": {"rollout": "OnRestart"},
            "scaling": {"enabled": false},
        },
    })
}

/// VAC-2: offline, every object of the corpus is judged as by the API server and the webhook together.
#[test]
fn corpus_is_judged_as_by_the_webhook() {
    let installation = installation();
    for case in cases().unwrap().into_iter().filter(|it| it.old.is_none()) {
        let linted = lint_objects([case.new.clone()], Some(&installation));
        let errors: Vec<String> = linted
            .findings
            .iter()
            .filter(|it| it.severity == Severity::Error)
            .map(|it| {
                if it.fix.is_empty() {
                    it.message()
                } else {
                    format!("{}; {}", it.message(), it.fix)
                }
            })
            .collect();
        match &case.refusal {
            None => assert!(errors.is_empty(), "{}: {errors:?}", case.new),
            Some(refusal) => {
                let expected = format!("{}: {}", refusal.path, refusal.text);
                assert!(
                    errors.iter().any(|it| it.starts_with(&expected)),
                    "expected {expected:?}, found {errors:?}"
                );
            }
        }
    }
}

/// VAL-16, BIND-45
#[test]
fn actors_that_would_share_a_queue_or_a_target_are_found() {
    let mut other = binding("embed", "other");
    other["metadata"]["namespace"] = json!("team-b");
    let linted = lint_objects(
        [binding("embed", "phi"), binding("chat", "phi"), other],
        Some(&installation()),
    );
    let found: Vec<_> = linted
        .findings
        .iter()
        .map(|it| (&*it.source.actor, &*it.id, it.message()))
        .collect();
    assert_eq!(
        found,
        [
            (
                "models/chat",
                "ASYA-BIND-45",
                "spec.workloadRef: Deployment/phi is already bound by models/embed".to_owned()
            ),
            (
                "team-b/embed",
                "ASYA-VAL-16",
                "spec.transport: queue asya-embed already belongs to models/embed".to_owned()
            ),
        ]
    );
}

/// VAC-6
#[test]
fn fix_of_a_restart_names_the_field_to_set() {
    let mut actor = binding("embed", "phi");
    actor["spec"]["binding"] = json!({});
    let linted = lint_objects([actor], Some(&installation()));
    let found = linted.findings.iter().find(|it| it.id == "ASYA-VAC-6");
    let fix = found.map(|it| &*it.fix);
    assert_eq!(fix, Some("spec.binding.rollout: OnRestart avoids it"));
}

/// VAL-22
#[test]
fn large_spec_is_an_error() {
    let mut actor = binding("embed", "phi");
    actor["spec"]["runtime"]["env"] =
        json!([{"name": "LARGE", "value": "x".repeat(MAX_SPEC_BYTES)}]);
    let linted = lint_objects([actor], Some(&installation()));
    let found = linted.findings.iter().find(|it| it.id == "ASYA-VAL-22");
    let fix = found.map(|it| &*it.fix).unwrap();
    assert!(fix.contains("ConfigMap"), "{fix}");
}

#[test]
fn transports_are_checked_only_if_they_are_known() {
    let mut actor = binding("embed", "phi");
    actor["spec"]["transport"] = json!("kafka");
    assert_eq!(lint_objects([actor.clone()], None).findings, []);
    let linted = lint_objects([actor], Some(&installation()));
    let found: Vec<_> = linted
        .findings
        .iter()
        .map(|it| (it.severity, &*it.id, it.message()))
        .collect();
    let problem = "spec.transport: transport \"kafka\" is not configured".to_owned();
    assert_eq!(found, [(Severity::Warning, "ASYA-VAL-17", problem)]);
}

#[test]
fn misspelled_field_is_an_error_and_other_kinds_are_ignored() {
    let mut actor = binding("embed", "phi");
    actor["spec"]["scalling"] = json!({});
    let linted = lint_objects(
        [actor, json!({"apiVersion": "v1", "kind": "ConfigMap"})],
        None,
    );
    assert_eq!(linted.actors.len(), 1);
    let found: Vec<_> = linted
        .findings
        .iter()
        .map(|it| (&*it.id, it.message()))
        .collect();
    let problem = "spec.scalling: unknown field; did you mean scaling?".to_owned();
    assert_eq!(found, [("ASYA-SchemaViolation", problem)]);
}

#[test]
fn reports_for_ci_name_file_line_and_id() {
    let mut actor = binding("embed", "phi");
    actor["spec"]["scalling"] = json!({});
    let linted = lint_objects([actor], None);
    let log = super::super::sarif::log(&linted);
    let result = &log["runs"][0]["results"][0];
    assert_eq!(
        (&result["ruleId"], &result["level"]),
        (&json!("ASYA-SchemaViolation"), &json!("error"))
    );
    let location = &result["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "actors.yaml");
    assert_eq!(location["region"]["startLine"], 1);
    let xml = super::super::junit::write(&linted);
    assert!(xml.contains("tests=\"1\" failures=\"1\""), "{xml}");
    assert!(
        xml.contains("<failure type=\"ASYA-SchemaViolation\""),
        "{xml}"
    );
}
