//! Parses requests.

use std::collections::BTreeMap;

use http::Method;
use http::request::Parts;
use serde_json::Value;

use super::deletion::Deletion;
use super::id::Id;
use super::managed::Writer;
use super::resources::{self, Resource};
use super::selector::{Filter, Selector};
use super::status::Failure;

/// A request for one resource.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation.
    pub verb: Verb,
    /// Whether the client wants only metadata.
    pub metadata_only: bool,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

/// The operation of a request.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Discovers the version of a group, or the resources of that version.
    Discover {
        /// The group.
        group: String,
        /// Whether to list its resources.
        resources: bool,
    },
    /// Reads an object.
    Get(Id),
    /// Lists objects, one page at a time.
    List {
        /// The resource.
        resource: &'static Resource,
        /// Which objects to return.
        filter: Filter,
        /// Page size; 0 means no limit.
        limit: usize,
        /// Token of the list to continue.
        token: Option<String>,
    },
    /// Watches for changes.
    Watch {
        /// The resource.
        resource: &'static Resource,
        /// Which objects to watch.
        filter: Filter,
        /// The version from which to watch.
        version: u64,
        /// Whether the client wants bookmarks.
        bookmarks: bool,
        /// Timeout of the watch, in seconds.
        seconds: u64,
    },
    /// Creates an object.
    Create(Id, Value, Writer),
    /// Replaces an object.
    Update(Id, Value, Writer),
    /// Applies a configuration, with or without force.
    Apply(Id, Value, Writer, bool),
    /// Applies a JSON merge patch.
    MergePatch(Id, Value, Writer),
    /// Applies a strategic merge patch.
    StrategicPatch(Id, Value, Writer),
    /// Applies a JSON patch.
    JsonPatch(Id, Value, Writer),
    /// Deletes an object.
    Delete(Id, Deletion),
    /// Evicts a pod.
    Evict(Id, Deletion),
    /// Reads the `scale` subresource of an object.
    GetScale(Id),
    /// Applies a JSON merge patch to the `scale` subresource of an object.
    PatchScale(Id, Value, Writer),
}

impl Verb {
    /// Whether it is a write.
    #[must_use]
    pub fn writes(&self) -> bool {
        !matches!(
            self,
            Self::Discover { .. }
                | Self::Get(_)
                | Self::GetScale(_)
                | Self::List { .. }
                | Self::Watch { .. }
        )
    }

    /// The object, unless it concerns a collection.
    #[must_use]
    pub fn object(&self) -> Option<&Id> {
        match self {
            Self::Get(id)
            | Self::Create(id, ..)
            | Self::Update(id, ..)
            | Self::Apply(id, ..)
            | Self::MergePatch(id, ..)
            | Self::StrategicPatch(id, ..)
            | Self::JsonPatch(id, ..)
            | Self::Delete(id, _)
            | Self::Evict(id, _)
            | Self::GetScale(id)
            | Self::PatchScale(id, ..) => Some(id),
            Self::Discover { .. } | Self::List { .. } | Self::Watch { .. } => None,
        }
    }

    /// The resource, if it concerns a collection.
    #[must_use]
    pub fn resource(&self) -> Option<&'static Resource> {
        match self {
            Self::List { resource, .. } | Self::Watch { resource, .. } => Some(resource),
            _ => None,
        }
    }

    /// Its name in a trace.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Discover { .. } => "discover",
            Self::Get(_) => "get",
            Self::List { .. } => "list",
            Self::Watch { .. } => "watch",
            Self::Create(..) => "create",
            Self::Update(..) => "update",
            Self::Apply(_, _, writer, _) if writer.status => "apply status",
            Self::Apply(..) => "apply",
            Self::MergePatch(_, _, writer) if writer.status => "merge patch status",
            Self::MergePatch(..) => "merge patch",
            Self::StrategicPatch(..) => "strategic merge patch",
            Self::JsonPatch(..) => "JSON patch",
            Self::Delete(..) => "delete",
            Self::Evict(..) => "evict",
            Self::GetScale(..) => "get scale of",
            Self::PatchScale(..) => "scale",
        }
    }
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// If its path or body is invalid.
    pub fn parse(parts: &Parts, body: &[u8]) -> Result<Self, Failure> {
        let path: Vec<&str> = parts
            .uri
            .path()
            .split('/')
            .filter(|it| !it.is_empty())
            .collect();
        if let ["apis", group, version @ ..] = &*path
            && version.len() < 2
        {
            return Ok(Self {
                verb: Verb::Discover {
                    group: (*group).to_owned(),
                    resources: !version.is_empty(),
                },
                metadata_only: false,
                dry_run: false,
            });
        }
        let (resource, namespace, rest) = locate(&path).ok_or_else(Failure::no_such_path)?;
        let query = query(parts.uri.query().unwrap_or_default());
        let accept = parts.headers.get("accept").and_then(|it| it.to_str().ok());
        let verb = match (&parts.method, rest) {
            (&Method::GET, []) => collection(resource, namespace, &query),
            (&Method::GET, [name]) => Verb::Get(Id::new(resource, namespace, name)),
            (&Method::POST, []) => {
                let object = json(body)?;
                let id = Id::new(resource, namespace, &name_of(&object));
                Verb::Create(id, object, writer(parts, &query, false))
            }
            (&Method::POST, [name, "eviction"]) => {
                let options = json(body)?["deleteOptions"].take();
                Verb::Evict(Id::new(resource, namespace, name), deletion(&options))
            }
            (&Method::GET, [name, "scale"]) => Verb::GetScale(Id::new(resource, namespace, name)),
            (&Method::PATCH, [name, "scale"]) => {
                let id = Id::new(resource, namespace, name);
                Verb::PatchScale(id, json(body)?, writer(parts, &query, false))
            }
            (method, [name, rest @ ..]) if rest.is_empty() || *rest == ["status"] => {
                let id = Id::new(resource, namespace, name);
                write(method, id, body, parts, (&query, !rest.is_empty()))?
            }
            _ => return Err(Failure::no_such_path()),
        };
        Ok(Self {
            verb,
            metadata_only: accept.is_some_and(|accept| accept.contains("PartialObjectMetadata")),
            dry_run: query.get("dryRun").is_some_and(|value| value == "All"),
        })
    }
}

/// The name of a new object. A generated one is unique only among dry runs; a stored object gets another name.
fn name_of(object: &Value) -> String {
    let generated = || generated(object).map(|prefix| format!("{prefix}x4k2d"));
    let name = object["metadata"]["name"].as_str().map(str::to_owned);
    name.or_else(generated).unwrap_or_default()
}

/// The prefix of the name that the server must generate.
#[must_use]
pub fn generated(object: &Value) -> Option<&str> {
    let text = |field: &str| object["metadata"][field].as_str();
    text("generateName").filter(|_| text("name").is_none())
}

fn deletion(options: &Value) -> Deletion {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let preconditions = &options["preconditions"];
    Deletion {
        uid: text(&preconditions["uid"]),
        version: text(&preconditions["resourceVersion"]),
        propagation: text(&options["propagationPolicy"]),
    }
}

fn write(
    method: &Method,
    id: Id,
    body: &[u8],
    parts: &Parts,
    (query, status): (&BTreeMap<String, String>, bool),
) -> Result<Verb, Failure> {
    let writer = writer(parts, query, status);
    let kind = parts
        .headers
        .get("content-type")
        .and_then(|it| it.to_str().ok());
    Ok(match (method, kind) {
        (&Method::PUT, _) => Verb::Update(id, json(body)?, writer),
        (&Method::DELETE, _) => {
            let options = if body.is_empty() {
                Value::Null
            } else {
                json(body)?
            };
            Verb::Delete(id, deletion(&options))
        }
        (&Method::PATCH, Some("application/apply-patch+yaml")) => {
            let force = query.get("force").is_some_and(|force| force == "true");
            Verb::Apply(id, json(body)?, writer, force)
        }
        (&Method::PATCH, Some("application/merge-patch+json")) => {
            Verb::MergePatch(id, json(body)?, writer)
        }
        (&Method::PATCH, Some("application/strategic-merge-patch+json")) => {
            Verb::StrategicPatch(id, json(body)?, writer)
        }
        (&Method::PATCH, Some("application/json-patch+json")) => {
            Verb::JsonPatch(id, json(body)?, writer)
        }
        _ => return Err(Failure::bad_request("unsupported method or media type")),
    })
}

fn collection(
    resource: &'static Resource,
    namespace: &str,
    query: &BTreeMap<String, String>,
) -> Verb {
    let text = |name: &str| query.get(name).map_or("", String::as_str);
    let number = |name: &str| text(name).parse().unwrap_or_default();
    let filter = Filter {
        namespace: Some(namespace.to_owned()).filter(|name| !name.is_empty()),
        labels: Selector::parse(text("labelSelector")),
        fields: Selector::parse(text("fieldSelector")),
    };
    if text("watch") == "true" {
        return Verb::Watch {
            resource,
            filter,
            version: number("resourceVersion"),
            bookmarks: text("allowWatchBookmarks") == "true",
            seconds: number("timeoutSeconds"),
        };
    }
    Verb::List {
        resource,
        filter,
        limit: text("limit").parse().unwrap_or_default(),
        token: query.get("continue").cloned(),
    }
}

fn writer(parts: &Parts, query: &BTreeMap<String, String>, status: bool) -> Writer {
    let agent = parts
        .headers
        .get("user-agent")
        .and_then(|it| it.to_str().ok());
    let agent = agent.and_then(|agent| agent.split('/').next());
    let manager = query.get("fieldManager").map(String::as_str).or(agent);
    Writer {
        manager: manager.unwrap_or("unknown").to_owned(),
        status,
    }
}

/// The resource, the namespace, and the rest of the path.
fn locate<'a>(path: &'a [&'a str]) -> Option<(&'static Resource, &'a str, &'a [&'a str])> {
    let (group, version, rest) = match path {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => {
            Some((resources::find(group, version, plural)?, namespace, rest))
        }
        [plural, rest @ ..] => Some((resources::find(group, version, plural)?, "", rest)),
        [] => None,
    }
}

fn query(text: &str) -> BTreeMap<String, String> {
    // A valid base for any query.
    let Ok(mut url) = reqwest::Url::parse("http://simulation/") else {
        return BTreeMap::new();
    };
    url.set_query(Some(text));
    url.query_pairs().into_owned().collect()
}

fn json(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(&error.to_string()))
}
