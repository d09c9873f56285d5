//! `examples/` at the top of the tree: every manifest is accepted, resolves, and stands in its page as it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use asya_shared::api::{AsyncActor, ModeSpec};
use asya_shared::config::TransportsConfig;
use asya_shared::resolve::{ANY, Resolver, resolver};
use asya_shared::validate::{Subject, Write, check};
use kube::core::cel::Validator;
use serde_json::Value;

const TRANSPORTS: &str = r#"{"transports": {"rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "rabbitmq.test"}}}}"#;

/// Files of a folder below the top, by name.
fn files(folder: &str) -> Vec<(String, PathBuf)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files: Vec<_> = fs::read_dir(top.join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    files.sort();
    files
}

fn examples() -> Vec<(String, String)> {
    let files = files("examples").into_iter();
    let files: Vec<_> = files
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    assert!(files.len() >= 10);
    files
}

/// BIND-1, VAC-2
#[test]
fn every_example_is_accepted_by_the_crd_and_by_webhook_and_controller() {
    let transports = TransportsConfig::parse(TRANSPORTS).unwrap();
    let crd = asya_shared::api::crd().unwrap();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
    // an optional oldSelf is an optional for the API server, but the plain value or null for kube's evaluator
    let schema = schema.unwrap().to_string();
    let schema = schema.replace("oldSelf.hasValue()", "oldSelf != null");
    let schema: Value =
        serde_json::from_str(&schema.replace("oldSelf.value()", "oldSelf")).unwrap();
    for (name, text) in examples() {
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let found = Validator::new().validate(&schema, &object, None);
        assert!(found.is_ok(), "{name}: {found:?}");
        let actor: AsyncActor = serde_json::from_value(object.clone()).unwrap();
        let broken = check(&Subject {
            name: actor.metadata.name.as_deref().unwrap(),
            namespace: actor.metadata.namespace.as_deref().unwrap(),
            spec: &actor.spec,
            role_arn: None,
            write: Write::Create,
            transports: &transports,
            privileged_sidecars: false,
        });
        assert_eq!(broken, [], "{name}");
        // nothing is misspelt: every field of it is one of the API
        assert_eq!(
            serde_json::to_value(&actor.spec).unwrap(),
            object["spec"],
            "{name}"
        );
    }
}

/// RES-10 to RES-23
#[test]
fn every_example_binds_a_kind_that_is_known() {
    for (name, text) in examples() {
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let actor: AsyncActor = serde_json::from_value(object).unwrap();
        let Ok(ModeSpec::Binding(binding)) = actor.spec.mode() else {
            panic!("{name} binds nothing");
        };
        let target = binding.target;
        let resolver: &dyn Resolver = resolver(target.group(), &target.kind);
        assert_ne!(resolver.group_kind(), ANY, "{name}");
    }
}

#[test]
fn every_example_is_in_its_page_and_every_page_has_one() {
    let pages = files("docs/integrations");
    let examples = examples();
    for (name, text) in &examples {
        let page = pages
            .iter()
            .filter(|(page, _)| name.starts_with(page.as_str()));
        let (_, page) = page.max_by_key(|(page, _)| page.len()).unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!("```yaml\n{text}```")), "{name}");
    }
    for (page, _) in pages.iter().filter(|(page, _)| page != "README") {
        assert!(examples.iter().any(|(name, _)| name == page), "{page}");
    }
}
