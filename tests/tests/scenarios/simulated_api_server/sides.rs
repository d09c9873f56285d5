//! The two servers. Each receives the same calls, completed with its own earlier responses.

use std::collections::BTreeMap;
use std::time::Duration;

use asya_tests::{Error, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::calls::{Action, Call, NAMES, Step, UID_OF, Uid, Version};
use super::kinds::Kind;
use super::servers::{Answer, HttpRequest, Server};

/// Who makes the calls.
pub const USER: &str = "scenario";

const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A uid that no object has.
const NO_UID: &str = "00000000-1111-2222-3333-444444444444";

/// A server, and what a client has read from it.
pub struct Side {
    pub server: Server,
    kind: &'static Kind,
    namespace: String,
    /// Versions of each object by name, in the order in which they were read.
    seen: BTreeMap<String, Vec<Value>>,
    /// Versions of lists and objects, in the order in which they were read.
    versions: Vec<String>,
    /// The query of the last list, with its continue token.
    token: Option<Vec<(&'static str, String)>>,
    watches: u32,
}

impl Side {
    pub fn new(server: Server, kind: &'static Kind, namespace: &str) -> Self {
        Self {
            server,
            kind,
            namespace: namespace.to_owned(),
            seen: BTreeMap::new(),
            versions: Vec::new(),
            token: None,
            watches: 0,
        }
    }

    /// Sends a call.
    pub async fn call(&mut self, call: &Call) -> Result<Answer> {
        let request = self.request(call);
        let answer = if matches!(call.action, Action::Watch(_)) {
            self.watch(call, request).await?
        } else {
            self.server.send(request).await?
        };
        self.learn(call, &answer.body);
        Ok(answer)
    }

    fn last(&self, name: &str) -> Option<&Value> {
        self.seen.get(name)?.last()
    }

    fn learn(&mut self, call: &Call, body: &Value) {
        let metadata = &body["metadata"];
        if let Some(version) = metadata["resourceVersion"].as_str() {
            self.versions.push(version.to_owned());
        }
        if let (Action::List(_) | Action::Continue, Some(token)) = (
            &call.action,
            metadata["continue"]
                .as_str()
                .filter(|token| !token.is_empty()),
        ) {
            let mut query = match call.action {
                Action::Continue => self.token.take().unwrap_or_default(),
                _ => list_query(call),
            };
            query.retain(|(key, _)| *key != "continue");
            query.push(("continue", token.to_owned()));
            self.token = Some(query);
        }
        let Some(name) = metadata["name"]
            .as_str()
            .filter(|_| metadata["uid"].is_string())
        else {
            return;
        };
        let mut object = body.clone();
        if body["kind"] == "PartialObjectMetadata" {
            object = self.last(name).cloned().unwrap_or_default();
            object["metadata"] = metadata.clone();
        }
        self.seen.entry(name.to_owned()).or_default().push(object);
    }

    fn version(&self, name: &str, version: Version) -> Option<String> {
        let of = |object: &Value| {
            object["metadata"]["resourceVersion"]
                .as_str()
                .map(str::to_owned)
        };
        match version {
            Version::Absent => None,
            Version::Nonexistent => Some("1".to_owned()),
            Version::Seen => of(self.last(name)?),
            Version::Stale => {
                let latest = of(self.last(name)?);
                let mut versions = self.seen.get(name)?.iter().rev().map(of);
                versions.find(|version| *version != latest).flatten()
            }
        }
    }

    fn uid(&self, name: &str, uid: Uid) -> Option<String> {
        match uid {
            Uid::Absent => None,
            Uid::Wrong => Some(NO_UID.to_owned()),
            Uid::Seen => self.last(name)?["metadata"]["uid"]
                .as_str()
                .map(str::to_owned),
        }
    }

    fn body(&self, call: &Call, content: &Value) -> Value {
        let resource = self.kind.resource;
        let mut body = content.clone();
        self.fill_in(&mut body);
        body["apiVersion"] = resource.api_version().into();
        body["kind"] = resource.kind.into();
        body["metadata"]["name"] = call.name.into();
        body["metadata"]["namespace"] = self.namespace.clone().into();
        body
    }

    fn fill_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(name) = text.strip_prefix(UID_OF) {
                    *text = self
                        .uid(name, Uid::Seen)
                        .unwrap_or_else(|| NO_UID.to_owned());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill_in(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.fill_in(field)),
            _ => {}
        }
    }

    fn request(&self, call: &Call) -> HttpRequest {
        let mut query: Vec<(&str, String)> = Vec::new();
        if let Some(manager) = call.manager {
            query.push(("fieldManager", manager.to_owned()));
        }
        let name = Some(call.name);
        let (method, name, content_type, body) = match &call.action {
            Action::Get => (Method::GET, name, "", Value::Null),
            Action::Create(content) => (
                Method::POST,
                None,
                "application/json",
                self.body(call, content),
            ),
            Action::Update(change, version) => (
                Method::PUT,
                name,
                "application/json",
                self.update(call, change, *version),
            ),
            Action::Apply(content, version, uid, force) => {
                query.push(("force", force.to_string()));
                let mut body = self.body(call, content);
                set(
                    &mut body,
                    "resourceVersion",
                    self.version(call.name, *version),
                );
                set(&mut body, "uid", self.uid(call.name, *uid));
                (Method::PATCH, name, "application/apply-patch+yaml", body)
            }
            Action::Merge(change, version) => {
                let mut change = change.clone();
                self.fill_in(&mut change);
                if let Some(version) = self.version(call.name, *version) {
                    set(&mut change, "resourceVersion", Some(version));
                }
                (Method::PATCH, name, "application/merge-patch+json", change)
            }
            Action::Json(steps) => {
                let steps = steps
                    .iter()
                    .flat_map(|step| self.steps(call.name, step))
                    .collect();
                (Method::PATCH, name, "application/json-patch+json", steps)
            }
            Action::Delete(uid, version, propagation) => {
                let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
                if let Some(uid) = self.uid(call.name, *uid) {
                    options["preconditions"]["uid"] = uid.into();
                }
                if let Some(version) = self.version(call.name, *version) {
                    options["preconditions"]["resourceVersion"] = version.into();
                }
                (Method::DELETE, name, "application/json", options)
            }
            Action::List(_) => {
                query.extend(list_query(call));
                (Method::GET, None, "", Value::Null)
            }
            Action::Continue => {
                query.extend(self.token.clone().unwrap_or_default());
                (Method::GET, None, "", Value::Null)
            }
            Action::Watch(back) => {
                query.extend(selectors(call));
                query.push(("watch", "true".to_owned()));
                query.push(("timeoutSeconds", "60".to_owned()));
                let first = self.versions.len().saturating_sub(back.saturating_add(1));
                query.extend(
                    self.versions
                        .get(first)
                        .map(|version| ("resourceVersion", version.clone())),
                );
                (Method::GET, None, "", Value::Null)
            }
        };
        let place = [name, call.status.then_some("status")];
        self.http(
            method,
            &place,
            &query,
            (call.metadata_only, content_type),
            &body,
        )
    }

    fn http(
        &self,
        method: Method,
        place: &[Option<&str>],
        query: &[(&str, String)],
        (metadata_only, content_type): (bool, &str),
        body: &Value,
    ) -> HttpRequest {
        let resource = self.kind.resource;
        let root = if resource.group.is_empty() {
            "/api/"
        } else {
            "/apis/"
        };
        let mut path = format!(
            "{root}{}/namespaces/{}/{}",
            resource.api_version(),
            self.namespace,
            resource.plural
        );
        for part in place.iter().flatten() {
            path = format!("{path}/{part}");
        }
        let url = reqwest::Url::parse_with_params(&format!("http://server{path}"), query);
        let query = url
            .ok()
            .and_then(|url| url.query().map(|query| format!("?{query}")))
            .unwrap_or_default();
        let is_list = method == Method::GET
            && place.iter().flatten().next().is_none()
            && !query.contains("watch=");
        let shown = if is_list {
            "PartialObjectMetadataList"
        } else {
            "PartialObjectMetadata"
        };
        let accept = if metadata_only {
            format!("application/json;as={shown};g=meta.k8s.io;v=v1")
        } else {
            "application/json".to_owned()
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{path}{query}"))
            .header("accept", accept)
            .header("user-agent", "scenario/1")
            // The only user who may write in the namespace: KEDA uses the administrator's account.
            .header("impersonate-user", USER)
            .header("impersonate-group", "system:masters");
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        request.body(body).expect("a valid request")
    }

    fn update(&self, call: &Call, change: &Value, version: Version) -> Value {
        let mut object = self
            .last(call.name)
            .cloned()
            .unwrap_or_else(|| json!({"metadata": {}}));
        let mut change = change.clone();
        self.fill_in(&mut change);
        json_patch::merge(&mut object, &change);
        let mut object = self.body(call, &object);
        set(
            &mut object,
            "resourceVersion",
            self.version(call.name, version),
        );
        object
    }

    fn steps(&self, name: &str, step: &Step) -> Vec<Value> {
        let test = |path: &str, value: &Value| json!({"op": "test", "path": path, "value": value});
        let metadata = self
            .last(name)
            .map_or(&Value::Null, |object| &object["metadata"]);
        let first = |field: &str| {
            let list = &metadata[field];
            let remove = json!({"op": "remove", "path": format!("/metadata/{field}/0")});
            if list.is_null() {
                Vec::new()
            } else {
                vec![test(&format!("/metadata/{field}"), list), remove]
            }
        };
        match step {
            Step::Plain(step) => vec![step.clone()],
            Step::TestUid(uid) => {
                let uid = self.uid(name, *uid);
                uid.map(|uid| test("/metadata/uid", &uid.into()))
                    .into_iter()
                    .collect()
            }
            Step::AddFinalizer(finalizer) => {
                let path = "/metadata/finalizers";
                let mut present = metadata["finalizers"].as_array().into_iter().flatten();
                // Finalizers are not added twice.
                if present.any(|it| it == finalizer) {
                    return Vec::new();
                }
                let add = if metadata["finalizers"].is_null() {
                    json!({"op": "add", "path": path, "value": [finalizer]})
                } else {
                    json!({"op": "add", "path": format!("{path}/-"), "value": finalizer})
                };
                vec![test(path, &metadata["finalizers"]), add]
            }
            Step::RemoveFinalizer => first("finalizers"),
            Step::RemoveOwner => first("ownerReferences"),
            Step::TakeOver(from, to) => {
                let entries = metadata["managedFields"].as_array().into_iter().flatten();
                let is_meant = |entry: &Value| {
                    entry["manager"] == *from
                        && entry["operation"] == "Update"
                        && entry["subresource"].is_null()
                };
                let Some(index) = entries.map(is_meant).position(|it| it) else {
                    return Vec::new();
                };
                let path = |field: &str| format!("/metadata/managedFields/{index}/{field}");
                let replace = |field: &str, value: &str| json!({"op": "replace", "path": path(field), "value": value});
                vec![
                    test(&path("manager"), &(*from).into()),
                    replace("manager", to),
                    replace("operation", "Apply"),
                ]
            }
        }
    }

    /// Watches until an object created for this purpose appears.
    async fn watch(&mut self, call: &Call, request: HttpRequest) -> Result<Answer> {
        self.watches += 1;
        let name = format!("end-{}", self.watches);
        let mut end = self.kind.content(&mut fastrand::Rng::with_seed(1), true);
        end["apiVersion"] = self.kind.resource.api_version().into();
        end["kind"] = self.kind.resource.kind.into();
        end["metadata"] = json!({"name": name, "labels": labels_for(call.selectors.0)});
        let create = self.http(Method::POST, &[], &[], (false, "application/json"), &end);
        let created = self.server.send(create).await?;
        if created.code >= 300 {
            return Err(Error::Other(format!("{name}: {}", created.body)));
        }
        let events = self.server.events(request, &name).await;
        let delete = self.http(
            Method::DELETE,
            &[Some(&name)],
            &[],
            (false, ""),
            &Value::Null,
        );
        self.server.send(delete).await?;
        let (code, events) = events?;
        Ok(Answer {
            code,
            body: json!({"events": events}),
        })
    }

    /// Removes what a sequence has left behind.
    pub async fn clean(&mut self) -> Result<()> {
        for name in NAMES {
            let none = json!({"metadata": {"finalizers": null}});
            let place = [Some(name)];
            let release = self.http(
                Method::PATCH,
                &place,
                &[],
                (false, "application/merge-patch+json"),
                &none,
            );
            let delete = self.http(Method::DELETE, &place, &[], (false, ""), &Value::Null);
            // An object that is being deleted is removed with its finalizers.
            if self.server.send(release).await?.code == 200 {
                self.server.send(delete).await?;
            }
        }
        Ok(())
    }

    /// Lists the objects that existed before.
    pub async fn names(&mut self) -> Result<Vec<String>> {
        // On the first request for a kind, the real server may still have to load its objects.
        for _ in 0..ATTEMPTS {
            let list = self.http(Method::GET, &[], &[], (true, ""), &Value::Null);
            let list = self.server.send(list).await?;
            if list.code == 200 {
                let items = list.body["items"].as_array().into_iter().flatten();
                let name = |item: &Value| item["metadata"]["name"].as_str().map(str::to_owned);
                return Ok(items.filter_map(name).collect());
            }
            sleep(PAUSE).await;
        }
        Err(Error::other("the kind cannot be listed"))
    }
}

fn set(object: &mut Value, field: &str, value: Option<String>) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove(field);
        metadata.extend(value.map(|value| (field.to_owned(), value.into())));
    } else if let Some(value) = value {
        object["metadata"] = json!({field: value});
    }
}

fn selectors(call: &Call) -> Vec<(&'static str, String)> {
    let (labels, fields) = call.selectors;
    let labels = labels.map(|text| ("labelSelector", text.to_owned()));
    // The object that ends a watch has another name.
    let is_watch = matches!(call.action, Action::Watch(_));
    let fields = fields.filter(|text| !is_watch || text.contains("!="));
    let fields = fields.map(|text| ("fieldSelector", text.to_owned()));
    labels.into_iter().chain(fields).collect()
}

fn list_query(call: &Call) -> Vec<(&'static str, String)> {
    let limit = match call.action {
        Action::List(Some(limit)) => Some(("limit", limit.to_string())),
        _ => None,
    };
    selectors(call).into_iter().chain(limit).collect()
}

/// Labels that match the selector.
fn labels_for(selector: Option<&str>) -> Value {
    match selector {
        None | Some("team!=one") => json!({}),
        Some("!team,app=x") => json!({"app": "x"}),
        Some(_) => json!({"team": "one"}),
    }
}
