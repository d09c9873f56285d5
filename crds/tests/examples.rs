//! Checks `examples/`: every file says what it is for, and every actor is accepted and names a transport of the values
//! beside it. Actors that bind another system's kind appear unchanged on the page of that system.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use asya_shared::api::{AsyncActor, ModeSpec};
use asya_shared::config::TransportsConfig;
use asya_shared::resolve::{ANY, Resolver, resolver};
use asya_shared::validate::{Subject, Write, check};
use kube::core::cel::Validator;
use serde_json::{Value, json};

/// A file below `examples/`.
struct Example {
    /// Its path below `examples/`, without the extension.
    name: String,
    text: String,
}

impl Example {
    fn documents(&self) -> Vec<Value> {
        serde_saphyr::from_multiple(&self.text).expect(&self.name)
    }

    fn actors(&self) -> Vec<Value> {
        let mut documents = self.documents();
        documents.retain(|it| it["kind"] == "AsyncActor");
        documents
    }

    fn is_values(&self) -> bool {
        self.name.ends_with("values")
    }

    /// Whether it is for a kind that has a page in `docs/integrations`.
    fn has_page(&self) -> bool {
        !self.name.contains('/') && self.name != "namespace"
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files with this extension in a folder and its subfolders.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn examples() -> Vec<Example> {
    let folder = top().join("examples");
    let example = |path: PathBuf| {
        let name = path.strip_prefix(&folder).unwrap().with_extension("");
        Example {
            name: name.to_str().unwrap().to_owned(),
            text: fs::read_to_string(&path).unwrap(),
        }
    };
    let all: Vec<_> = files(&folder, "yaml").into_iter().map(example).collect();
    assert!(all.len() >= 40);
    all
}

/// The actor that README shows.
fn readme() -> Example {
    let text = fs::read_to_string(top().join("README.md")).unwrap();
    let (_, rest) = text.split_once("```yaml\n").unwrap();
    Example {
        name: "README".to_owned(),
        text: rest.split_once("```").unwrap().0.to_owned(),
    }
}

/// The transports of all values files.
fn transports(examples: &[Example]) -> TransportsConfig {
    let mut all = BTreeMap::new();
    for example in examples.iter().filter(|it| it.is_values()) {
        let values: Value = serde_saphyr::from_str(&example.text).unwrap();
        // Other settings of the chart have a file of their own.
        all.extend(
            values["transports"]
                .as_object()
                .cloned()
                .unwrap_or_default(),
        );
    }
    TransportsConfig::parse(&json!({"transports": all}).to_string()).unwrap()
}

#[test]
fn every_example_begins_with_what_it_shows_and_is_listed() {
    let list = fs::read_to_string(top().join("examples/README.md")).unwrap();
    for Example { name, text } in examples() {
        let comment: Vec<_> = text.lines().take_while(|it| it.starts_with('#')).collect();
        assert!((1..=3).contains(&comment.len()), "{name}: {comment:?}");
        assert!(comment.concat().contains("Needs"), "{name}: {comment:?}");
        let listed = name.starts_with("quickstart/") || list.contains(&format!("{name}.yaml"));
        assert!(listed, "examples/README.md does not list {name}");
    }
}

/// VAL-16
#[test]
fn no_two_actors_of_the_examples_share_a_queue() {
    let examples = examples().into_iter();
    let mut names: Vec<_> = examples
        .filter(|it| !it.name.starts_with("quickstart/"))
        .flat_map(|it| it.actors())
        .map(|actor| actor["metadata"]["name"].to_string())
        .collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// BIND-1, VAC-2, VAL-20
#[test]
fn every_actor_is_accepted_by_the_crd_and_by_webhook_and_controller() {
    let examples = examples();
    let transports = transports(&examples);
    let crd = asya_shared::api::crd().unwrap();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
    // An optional `oldSelf` is an optional for the API server, but the plain value or null for kube's evaluator.
    let schema = schema.unwrap().to_string();
    let schema = schema.replace("oldSelf.hasValue()", "oldSelf != null");
    let schema: Value =
        serde_json::from_str(&schema.replace("oldSelf.value()", "oldSelf")).unwrap();
    for example in examples.iter().chain([&readme()]) {
        for object in example.actors() {
            let name = &example.name;
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
            assert!(transports.usable(&actor.spec.transport).is_ok(), "{name}");
            // No misspelt fields: every field is part of the API.
            let spec = serde_json::to_value(&actor.spec).unwrap();
            assert_eq!(spec, object["spec"], "{name}");
        }
    }
}

/// RES-10 to RES-23
#[test]
fn every_example_with_a_page_binds_its_target_whose_kind_is_known() {
    for example in examples().iter().filter(|it| it.has_page()) {
        let (name, documents) = (&example.name, example.documents());
        let [.., target, object] = &documents[..] else {
            panic!("{name} has no target")
        };
        let actor: AsyncActor = serde_json::from_value(object.clone()).unwrap();
        let Ok(ModeSpec::Binding(binding)) = actor.spec.mode() else {
            panic!("{name} binds nothing");
        };
        let bound = binding.target;
        let resolver: &dyn Resolver = resolver(bound.group(), &bound.kind);
        assert_ne!(resolver.group_kind(), ANY, "{name}");
        let of_target = [
            &target["apiVersion"],
            &target["kind"],
            &target["metadata"]["name"],
        ];
        assert_eq!(
            of_target,
            [&bound.api_version, &bound.kind, &bound.name],
            "{name}"
        );
    }
}

#[test]
fn every_example_with_a_page_is_in_it_and_every_page_has_one() {
    let pages = files(&top().join("docs/integrations"), "md").into_iter();
    let pages: Vec<_> = pages
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .filter(|(name, _)| name != "README")
        .collect();
    let examples: Vec<_> = examples().into_iter().filter(Example::has_page).collect();
    for Example { name, text } in &examples {
        let of_it = pages
            .iter()
            .filter(|(page, _)| name.starts_with(page.as_str()));
        let (_, page) = of_it.max_by_key(|(page, _)| page.len()).unwrap();
        let (_, actor) = text.rsplit_once("---\n").unwrap();
        assert!(page.contains(&format!("```yaml\n{actor}```")), "{name}");
    }
    for (page, _) in &pages {
        assert!(examples.iter().any(|it| it.name == *page), "{page}");
    }
}
