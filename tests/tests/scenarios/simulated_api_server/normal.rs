//! Normalizes responses, so that those of both servers are equal unless there is a bug.
//!
//! Not compared, with the reason:
//! - 201 against 200: kube tells apart only success and failure.
//! - Times, and the order of `managedFields`, which follows from them: the clock of the simulation stands still.
//! - The version of a list: on the real cluster others write meanwhile.
//! - Versions that are too old (410), and bookmarks: the real server forgets versions after minutes, and sends
//!   bookmarks when it likes.
//! - Messages of failures, except those of field conflicts: the controller passes them on and does not read them.
//! - `null`, an empty spec or status: decoded, they are the same.
//! - Fields that the real server fills in, with their ownership ([`DEFAULTED`]): the simulated one fills in none, and
//!   the controller writes and reads none of them.

use asya_simulation::api_server::fields::{Fields, Step};
use serde_json::{Map, Value, json};

use super::calls::NAMES;
use super::kinds::Kind;
use super::servers::Answer;

const DEFAULTED: [&str; 17] = [
    "availableReplicas",
    "dnsPolicy",
    "imagePullPolicy",
    "persistentVolumeClaimRetentionPolicy",
    "podManagementPolicy",
    "progressDeadlineSeconds",
    "resources",
    "restartPolicy",
    "revisionHistoryLimit",
    "schedulerName",
    "securityContext",
    "strategy",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "type",
    "updateStrategy",
];

/// Kinds with fields that the real server fills in. In an `AsyncActor`, users set fields with these names.
const WITH_DEFAULTS: [&str; 3] = ["deployments", "secrets", "statefulsets"];

/// Normalized names of a server's uids and versions: numbers in their order of appearance.
#[derive(Default)]
pub struct Names {
    uids: Vec<String>,
    versions: Vec<String>,
}

fn number(known: &mut Vec<String>, text: &str) -> usize {
    known.iter().position(|it| it == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    })
}

impl Names {
    pub fn normal(&mut self, kind: &Kind, answer: &Answer) -> Value {
        let code = if answer.code == 201 { 200 } else { answer.code };
        let body = &answer.body;
        let list = |field: &str| body[field].as_array().into_iter().flatten();
        let shown = if body["events"].is_array() {
            let events = list("events").filter(|event| {
                is_ours(&event["object"]) || event["object"]["metadata"]["name"].is_null()
            });
            let events: Vec<Value> = events.map(|event| json!({"type": event["type"], "object": self.object(kind, &event["object"])})).collect();
            json!({"events": events})
        } else if body["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"))
        {
            let items: Vec<Value> = list("items")
                .filter(|item| is_ours(item))
                .map(|item| self.object(kind, item))
                .collect();
            let metadata = &body["metadata"];
            json!({
                "apiVersion": body["apiVersion"], "kind": body["kind"], "items": items,
                "continues": metadata["continue"].as_str().is_some_and(|token| !token.is_empty()), "remaining": metadata["remainingItemCount"],
            })
        } else if body["kind"] == "Status" {
            status(body)
        } else {
            self.object(kind, body)
        };
        let mut text = json!({"code": code, "body": shown}).to_string();
        for (number, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("uid {number}"));
        }
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn object(&mut self, kind: &Kind, object: &Value) -> Value {
        let mut object = object.clone();
        drop_nulls(&mut object);
        let has_defaults = WITH_DEFAULTS.contains(&kind.resource.plural);
        if has_defaults {
            for part in ["spec", "status"] {
                strip_defaults(&mut object[part]);
            }
            if kind.resource.plural == "secrets" {
                object["type"] = Value::Null;
            }
        }
        if has_defaults && object["status"]["replicas"] == 0 {
            object["status"]["replicas"] = Value::Null;
            drop_nulls(&mut object);
        }
        for part in ["spec", "status"] {
            if object[part].as_object().is_some_and(Map::is_empty) {
                object[part] = Value::Null;
            }
        }
        drop_nulls(&mut object);
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return object;
        };
        if let Some(uid) = metadata.get("uid").and_then(Value::as_str) {
            number(&mut self.uids, uid);
        }
        if let Some(version) = metadata.get_mut("resourceVersion") {
            let text = version.as_str().unwrap_or_default();
            *version = format!("version {}", number(&mut self.versions, text)).into();
        }
        for field in ["creationTimestamp", "deletionTimestamp"] {
            if let Some(time) = metadata.get_mut(field) {
                *time = "a time".into();
            }
        }
        metadata.remove("namespace");
        if let Some(entries) = metadata.get_mut("managedFields") {
            *entries = managed_fields(entries, has_defaults);
        }
        object
    }
}

fn is_ours(object: &Value) -> bool {
    NAMES.iter().any(|name| object["metadata"]["name"] == *name)
}

fn managed_fields(entries: &Value, has_defaults: bool) -> Value {
    let mut owners = Map::new();
    for entry in entries.as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let owner = [
            text("manager"),
            text("operation"),
            text("subresource"),
            text("apiVersion"),
        ]
        .join(" ");
        let is_defaulted = |path: &[Step]| {
            has_defaults
                && path.iter().any(|step| {
                    step.strip_prefix("f:")
                        .is_some_and(|name| DEFAULTED.contains(&name))
                })
        };
        let fields = Fields::from_json(&entry["fieldsV1"]);
        let fields = fields.0.iter().filter(|path| !is_defaulted(path));
        let fields: Map<String, Value> = fields.map(|path| (path.join("/"), true.into())).collect();
        if !fields.is_empty() {
            owners.insert(owner, fields.into());
        }
    }
    owners.into()
}

fn status(body: &Value) -> Value {
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let cause = |cause: &Value| {
        let is_conflict = cause["reason"] == "FieldManagerConflict";
        let message = cause["message"]
            .as_str()
            .filter(|_| is_conflict)
            .map(without_time);
        json!([cause["reason"], cause["field"], message])
    };
    let mut causes: Vec<Value> = causes.map(cause).collect();
    // The real server lists the managers in random order.
    causes.sort_by_key(Value::to_string);
    causes.dedup();
    json!({"status": body["status"], "reason": body["reason"], "causes": causes, "uid": body["details"]["uid"]})
}

/// Whether the response says that the spec is invalid. The simulated server does not validate specs: what the operator
/// writes is valid, and what users write is tested against the CRD.
pub fn refuses_spec(answer: &Value) -> bool {
    let causes = answer["body"]["causes"].as_array().into_iter().flatten();
    let fields = causes.filter_map(|cause| cause[1].as_str());
    answer["code"] == 422 && fields.into_iter().any(|field| field.starts_with("spec"))
}

fn without_time(message: &str) -> &str {
    message.split(" at ").next().unwrap_or(message)
}

fn strip_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The type of a condition is not a default.
            let is_default = |name: &str| DEFAULTED.contains(&name) && name != "type";
            fields.retain(|name, _| !is_default(name));
            fields.values_mut().for_each(strip_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_defaults),
        _ => {}
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Where two values differ, with both values.
pub fn differences(simulated: &Value, real: &Value, path: &str, found: &mut Vec<String>) {
    match (simulated, real) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<&String> =
                left.keys().chain(right.keys()).collect();
            for name in names {
                differences(
                    &simulated[name],
                    &real[name],
                    &format!("{path}.{name}"),
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(left, right, &format!("{path}[{index}]"), found);
            }
        }
        _ if simulated != real => found.push(format!("{path}: simulated {simulated}, real {real}")),
        _ => {}
    }
}
