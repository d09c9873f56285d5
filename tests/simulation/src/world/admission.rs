//! Admission: the API server calls the webhook as its configurations specify.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::{Context, Program};
use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{World, quotas};
use crate::api_server::id::Id;
use crate::api_server::resources::{self, Resource};
use crate::api_server::status::Failure;
use crate::api_server::store::Store;
use crate::faults::Fault;

/// The change under review.
pub struct Review<'a> {
    /// The object's resource, namespace and name.
    pub id: &'a Id,
    /// CREATE, UPDATE or DELETE.
    pub operation: &'static str,
    /// The stored object.
    pub old: Option<&'a Value>,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl World {
    /// Reviews an object before it is stored; mutating webhooks change it.
    ///
    /// # Errors
    /// If a webhook denies it, or fails with failure policy Fail, or if a quota rejects it.
    pub fn admit(
        &self,
        store: &Store,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), Failure> {
        for resource in [
            &resources::MUTATING_WEBHOOKS,
            &resources::VALIDATING_WEBHOOKS,
        ] {
            for entry in entries(store, resource) {
                if !matches(store, &entry, review, object) {
                    continue;
                }
                match self.call(&entry, review, object) {
                    Ok(response) => apply(&entry, &response, object)?,
                    Err(why) if entry["failurePolicy"] == "Fail" => {
                        let name = entry["name"].as_str().unwrap_or_default();
                        return Err(Failure::webhook_failed(name, why));
                    }
                    Err(_) => {}
                }
            }
        }
        if review.id.resource == &resources::PODS && review.operation == "CREATE" {
            quotas::check(store, review.id, object)?;
        }
        Ok(())
    }

    /// Calls a webhook and returns its response.
    fn call(
        &self,
        entry: &Value,
        review: &Review<'_>,
        object: &Value,
    ) -> Result<Value, &'static str> {
        let service = &entry["clientConfig"]["service"];
        let path = service["path"].as_str().unwrap_or_default();
        let subject = format!("apiserver {path} {}", review.id);
        let call = self.faults.name(&subject);
        let fault = self.faults.draw(&call, &[Fault::Unreachable]);
        let result = match (fault, self.webhooks.endpoint(self.seed, &call)) {
            (Some(_), _) => Err("connection refused"),
            (None, None) => Err("no endpoints available"),
            (None, Some(routes)) => send(routes, path, review, object),
        };
        if result.is_err() {
            self.webhooks.record_failure();
        }
        let outcome = match &result {
            Ok(response) => format!("allowed: {}", response["allowed"]),
            Err(why) => (*why).to_owned(),
        };
        self.trace
            .add("apiserver", format_args!("{call}: {outcome}"));
        result
    }
}

/// All entries of the configurations of a kind, sorted by name.
fn entries(store: &Store, resource: &'static Resource) -> Vec<Value> {
    let all = store.all(resource).map(|(_, configuration)| configuration);
    let entries = all.filter_map(|configuration| configuration["webhooks"].as_array());
    entries.flatten().cloned().collect()
}

fn matches(store: &Store, entry: &Value, review: &Review<'_>, object: &Value) -> bool {
    let resource = review.id.resource;
    let contains = |list: &Value, wanted: &str| {
        let mut all = list.as_array().into_iter().flatten();
        all.any(|it| it == wanted || it == "*")
    };
    let mut rules = entry["rules"].as_array().into_iter().flatten();
    let is_ruled = rules.any(|rule| {
        contains(&rule["apiGroups"], resource.group)
            && contains(&rule["resources"], resource.plural)
            && contains(&rule["operations"], review.operation)
    });
    if !is_ruled {
        return false;
    }
    let namespace = Id::new(&resources::NAMESPACES, "", &review.id.namespace);
    let namespace = store.get(&namespace);
    let labels = |object: Option<&Value>| object.map(|it| it["metadata"]["labels"].clone());
    let (in_namespace, of_object) = (
        labels(namespace.as_deref().map(|it| &**it)),
        labels(Some(object)),
    );
    selects(
        &entry["namespaceSelector"],
        &in_namespace.unwrap_or_default(),
    ) && selects(&entry["objectSelector"], &of_object.unwrap_or_default())
        && conditions_hold(entry, review, object)
}

/// Whether a label selector matches these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    equal
        .into_iter()
        .all(|(key, value)| labels[key.as_str()] == *value)
        && expressions.all(|it| {
            let value = &labels[it["key"].as_str().unwrap_or_default()];
            let mut values = it["values"].as_array().into_iter().flatten();
            match it["operator"].as_str() {
                Some("In") => values.any(|wanted| wanted == value),
                Some("NotIn") => values.all(|other| other != value),
                Some("Exists") => value.is_string(),
                _ => value.is_null(),
            }
        })
}

thread_local! {
    /// Compiled once per thread, because compiling takes longer than a review.
    static COMPILED: RefCell<HashMap<String, Option<Rc<Program>>>> = RefCell::default();
}

/// The compiled CEL expression; `None` if it does not compile.
fn program(expression: &str) -> Option<Rc<Program>> {
    COMPILED.with_borrow_mut(|all| {
        let compiled = all.entry(expression.to_owned());
        let compile = || Program::compile(expression).ok().map(Rc::new);
        compiled.or_insert_with(compile).clone()
    })
}

/// Whether all match conditions hold. One that cannot be evaluated counts as true, so that the webhook's response
/// reveals the mistake.
fn conditions_hold(entry: &Value, review: &Review<'_>, object: &Value) -> bool {
    let mut conditions = entry["matchConditions"].as_array().into_iter().flatten();
    conditions.all(|condition| {
        let expression = condition["expression"].as_str().unwrap_or_default();
        let mut context = Context::default();
        let request = json!({"namespace": review.id.namespace, "operation": review.operation});
        let old = review.old.cloned().unwrap_or_default();
        let variables = [
            ("object", object),
            ("oldObject", &old),
            ("request", &request),
        ];
        for (name, value) in variables {
            if context.add_variable(name, value).is_err() {
                return true;
            }
        }
        let result = program(expression).map(|program| program.execute(&context));
        !matches!(result, Some(Ok(cel::Value::Bool(false))))
    })
}

fn send(
    routes: Router,
    path: &str,
    review: &Review<'_>,
    object: &Value,
) -> Result<Value, &'static str> {
    let resource = review.id.resource;
    let kind = |name: &str, value: &str| {
        let mut kind = json!({"group": resource.group, "version": resource.version});
        kind[name] = value.into();
        kind
    };
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "simulation", "operation": review.operation, "namespace": review.id.namespace,
            "name": review.id.name, "object": object, "oldObject": review.old, "dryRun": review.dry_run,
            "kind": kind("kind", resource.kind), "resource": kind("resource", resource.plural),
        },
    });
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .map_err(|_| "a malformed request")?;
    let answer = async {
        let response = routes.oneshot(request).await.ok()?;
        let body = response.into_body().collect().await.ok()?;
        serde_json::from_slice::<Value>(&body.to_bytes()).ok()
    };
    // A review never waits (ADM-7).
    let review = answer.now_or_never().flatten();
    let mut review = review.ok_or("the webhook answered with an error, or not at once")?;
    Ok(review["response"].take())
}

fn apply(entry: &Value, response: &Value, object: &mut Value) -> Result<(), Failure> {
    if response["allowed"] != true {
        let name = entry["name"].as_str().unwrap_or_default();
        return Err(Failure::denied(name, &response["status"]));
    }
    let Some(patch) = response["patch"].as_str() else {
        return Ok(());
    };
    let patch = STANDARD.decode(patch).ok();
    let patch = patch.and_then(|text| serde_json::from_slice::<json_patch::Patch>(&text).ok());
    let patched = patch.map(|patch| json_patch::patch(object, &patch));
    match patched {
        Some(Ok(())) => Ok(()),
        _ => Err(Failure::bad_request("the webhook's patch does not apply")),
    }
}
