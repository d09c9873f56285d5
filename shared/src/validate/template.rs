//! The pod template as unvalidated JSON: the CRD has no schema for it (API-5), so every part may have any shape.

use serde_json::{Map, Value};

use super::Subject;
use super::violation::Violations;
use crate::names::RUNTIME_CONTAINER;

const TEMPLATE: &str = "spec.workload.template";

/// A part of the template and its path.
#[derive(Clone)]
pub(super) struct TemplateNode<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> TemplateNode<'a> {
    /// A member; `None` if absent or null.
    pub(super) fn get(&self, key: &str) -> Option<TemplateNode<'a>> {
        let value = self.value.get(key).filter(|it| !it.is_null())?;
        Some(TemplateNode {
            path: format!("{}.{key}", self.path),
            value,
        })
    }

    /// The items of a list member; none if absent or not a list.
    pub(super) fn items(&self, key: &str) -> Vec<TemplateNode<'a>> {
        let Some(list) = self.get(key) else {
            return Vec::new();
        };
        let items = list.value.as_array().into_iter().flatten().enumerate();
        items
            .map(|(index, value)| TemplateNode {
                path: format!("{}[{index}]", list.path),
                value,
            })
            .collect()
    }

    /// A string member; `None` if absent or not a string.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }
}

/// The pod template of a standalone actor.
pub(super) fn template<'a>(subject: &Subject<'a>) -> Option<TemplateNode<'a>> {
    let workload = subject.spec.workload.as_ref()?;
    Some(TemplateNode {
        path: TEMPLATE.to_owned(),
        value: &workload.template,
    })
}

/// The template's pod spec.
pub(super) fn pod_spec<'a>(subject: &Subject<'a>) -> Option<TemplateNode<'a>> {
    template(subject)?.get("spec")
}

/// Containers with the runtime's name; there may be any number of them.
pub(super) fn runtime_containers<'a>(subject: &Subject<'a>) -> Vec<TemplateNode<'a>> {
    let containers = pod_spec(subject)
        .map(|it| it.items("containers"))
        .unwrap_or_default();
    containers
        .into_iter()
        .filter(|it| it.text("name") == Some(RUNTIME_CONTAINER))
        .collect()
}

/// The template's labels.
pub(super) fn labels<'a>(subject: &Subject<'a>) -> Option<(String, &'a Map<String, Value>)> {
    let labels = template(subject)?.get("metadata")?.get("labels")?;
    Some((labels.path, labels.value.as_object()?))
}

/// Reports parts that the other rules read but that have another type. Without this rule a list in place of an object
/// would pass here and fail at the API server, or nowhere.
pub(super) fn shape(subject: &Subject<'_>, found: &mut Violations) {
    let Some(template) = template(subject) else {
        return;
    };
    if !expect(&template, Shape::Object, found) {
        return;
    }
    if let Some(metadata) = member(&template, "metadata", Shape::Object, found) {
        member(&metadata, "labels", Shape::Object, found);
        member(&metadata, "annotations", Shape::Object, found);
    }
    let Some(spec) = member(&template, "spec", Shape::Object, found) else {
        return;
    };
    for key in ["containers", "initContainers"] {
        for container in objects(&spec, key, found) {
            member(&container, "name", Shape::Text, found);
            member(&container, "image", Shape::Text, found);
            member(&container, "command", Shape::List, found);
            for var in objects(&container, "env", found) {
                member(&var, "name", Shape::Text, found);
            }
            for mount in objects(&container, "volumeMounts", found) {
                member(&mount, "mountPath", Shape::Text, found);
            }
        }
    }
    for volume in objects(&spec, "volumes", found) {
        member(&volume, "name", Shape::Text, found);
    }
}

#[derive(Clone, Copy)]
enum Shape {
    Object,
    List,
    Text,
}

fn expect(node: &TemplateNode<'_>, shape: Shape, found: &mut Violations) -> bool {
    let (fits, text) = match shape {
        Shape::Object => (node.value.is_object(), "must be an object"),
        Shape::List => (node.value.is_array(), "must be a list"),
        Shape::Text => (node.value.is_string(), "must be text"),
    };
    if !fits {
        found.add(node.path.clone(), text);
    }
    fits
}

fn member<'a>(
    node: &TemplateNode<'a>,
    key: &str,
    shape: Shape,
    found: &mut Violations,
) -> Option<TemplateNode<'a>> {
    node.get(key).filter(|it| expect(it, shape, found))
}

fn objects<'a>(
    node: &TemplateNode<'a>,
    key: &str,
    found: &mut Violations,
) -> Vec<TemplateNode<'a>> {
    if member(node, key, Shape::List, found).is_none() {
        return Vec::new();
    }
    node.items(key)
        .into_iter()
        .filter(|it| expect(it, Shape::Object, found))
        .collect()
}
