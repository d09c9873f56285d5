//! Injection into the pod template of a workload instead of into pods at creation (BIND-50): the same fields that the
//! webhook would add to a pod of that template.

use serde_json::{Map, Value, json};

use super::decide::check_supported;
use super::existing::{ContainerList, ExistingItems};
use super::names::volume_names;
use super::plan::BoundPlan;
use super::pod_properties::PodProperties;
use super::{InjectionReason, NotInjectable, PodView};
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, label};

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

impl BoundPlan {
    /// Renders our fields of a pod template, and only those. Ignores those that an earlier apply for this actor has put
    /// into the template.
    ///
    /// # Errors
    /// The reason why pods of this template cannot get the sidecar, and how to fix it.
    pub fn render_for_template(&self, template: &Value) -> Result<Value, NotInjectable> {
        let mut original = template.clone();
        let by = template.pointer("/metadata/annotations");
        let by = by.and_then(|it| it.get(annotation::INJECTED_BY)?.as_str());
        if by == Some(&*self.uid) {
            strip_injected(&mut original);
        }
        if !original["metadata"].is_object() {
            original["metadata"] = json!({});
        }
        let raw = original.to_string();
        let pod = PodView::decode(&raw).map_err(|_| NotInjectable::unreadable())?;
        check_supported(&pod)?;
        let existing = ExistingItems::of(&pod).map_err(|_| NotInjectable::unreadable())?;
        let conflict = |text| NotInjectable::new(InjectionReason::SpecConflict, text);
        if let Some(reserved_item) = existing.describe_first() {
            return Err(conflict(format!(
                "its {reserved_item} has a name that is reserved by Asya; rename it"
            )));
        }
        if let Some(text) = self.foreign_label(|key| pod.label(key)) {
            return Err(conflict(text));
        }
        let properties = PodProperties::from_pod(&pod, self, None);
        let properties = properties.ok_or_else(NotInjectable::target_url_unknown)?;
        let [runtime, sidecar] = self.containers(&properties);
        let mut spec = match self.sidecar_list {
            ContainerList::Containers => json!({"containers": [runtime, sidecar]}),
            ContainerList::InitContainers => {
                json!({"containers": [runtime], "initContainers": [sidecar]})
            }
        };
        spec["volumes"] = json!(self.volumes);
        let labels: Map<String, Value> = self
            .labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let annotations = json!({
            annotation::INJECTED_BY: self.uid,
            annotation::INJECTED_HASH: self.hash.to_string(),
        });
        Ok(json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}))
    }
}

/// Removes everything with our names from a pod template, and the lists and maps that are empty afterwards.
pub fn strip_injected(template: &mut Value) {
    let is_container = |name: &str| [RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&name);
    let is_volume = |name: &str| volume_names().any(|it| it == name);
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        for list in CONTAINERS {
            remove_items(spec, list, is_container);
        }
        remove_items(spec, "volumes", is_volume);
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        remove_keys(metadata, "labels", &[label::ASYA, label::ACTOR]);
        let annotations = [annotation::INJECTED_BY, annotation::INJECTED_HASH];
        remove_keys(metadata, "annotations", &annotations);
    }
}

fn remove_items(object: &mut Map<String, Value>, list: &str, is_injected: impl Fn(&str) -> bool) {
    let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    items.retain(|it| !it["name"].as_str().is_some_and(&is_injected));
    if items.is_empty() {
        object.remove(list);
    }
}

fn remove_keys(object: &mut Map<String, Value>, map: &str, keys: &[&str]) {
    let Some(entries) = object.get_mut(map).and_then(Value::as_object_mut) else {
        return;
    };
    entries.retain(|key, _| !keys.contains(&&**key));
    if entries.is_empty() {
        object.remove(map);
    }
}
