//! In-memory RabbitMQ brokers, as seen through the management API.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, Url};
use serde_json::{Value, json};

/// A RabbitMQ broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rabbitmq {
    name: String,
    exchanges: BTreeSet<String>,
    /// The queues by name.
    pub queues: BTreeMap<String, Queue>,
    bindings: BTreeMap<Route, Value>,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    declaration: Value,
    /// Number of waiting messages.
    pub messages: u64,
}

/// Exchange, queue and properties key.
type Route = (String, String, String);

/// Status and body of a response.
pub type Response = (u16, Value);

fn absent() -> Response {
    (
        404,
        json!({"error": "Object Not Found", "reason": "Not Found"}),
    )
}

fn done(is_new: bool) -> Response {
    (if is_new { 201 } else { 204 }, Value::Null)
}

impl Rabbitmq {
    /// An empty broker whose cluster has this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Answers a request to the management API.
    pub fn answer(&mut self, method: &Method, url: &Url, body: Option<&Value>) -> Response {
        let path: Vec<String> = url
            .path_segments()
            .into_iter()
            .flatten()
            .skip(1)
            .map(decoded)
            .collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let empty = Value::Null;
        let body = body.unwrap_or(&empty);
        match (method.as_str(), &*path) {
            ("GET", ["overview"]) => (200, json!({"cluster_name": self.name})),
            ("GET", ["queues", _]) => self.list(),
            ("GET", ["queues", _, name]) => match self.queues.get(*name) {
                Some(queue) => (200, queue.shown(name)),
                None => absent(),
            },
            ("PUT", ["queues", _, name]) => self.declare(name, body),
            ("DELETE", ["queues", _, name]) => self.delete(name, url.query().unwrap_or_default()),
            ("GET", ["queues", _, name, "bindings"]) => self.bindings_of(name),
            ("POST", ["queues", _, name, "get"]) => match self.queues.get(*name) {
                Some(queue) if queue.messages > 0 => (200, json!([{"payload": ""}])),
                Some(_) => (200, json!([])),
                None => absent(),
            },
            ("PUT", ["exchanges", _, name]) => done(self.exchanges.insert((*name).to_owned())),
            ("GET", ["exchanges", _, name, "bindings", "source"]) => self.bindings_from(name),
            ("POST", ["bindings", _, "e", exchange, "q", queue]) => {
                self.bind(exchange, queue, body)
            }
            ("DELETE", ["bindings", _, "e", exchange, "q", queue, key]) => {
                let route = (
                    (*exchange).to_owned(),
                    (*queue).to_owned(),
                    (*key).to_owned(),
                );
                self.bindings
                    .remove(&route)
                    .map_or_else(absent, |_| done(false))
            }
            _ => absent(),
        }
    }

    fn list(&self) -> Response {
        let items: Vec<Value> = self
            .queues
            .iter()
            .map(|(name, queue)| queue.shown(name))
            .collect();
        (200, json!({"page_count": 1, "items": items}))
    }

    fn declare(&mut self, name: &str, declaration: &Value) -> Response {
        if let Some(queue) = self.queues.get(name) {
            if queue.declaration == *declaration {
                return done(false);
            }
            let reason = format!("inequivalent arg for queue '{name}'");
            return (400, json!({"error": "bad_request", "reason": reason}));
        }
        let queue = Queue {
            declaration: declaration.clone(),
            messages: 0,
        };
        self.queues.insert(name.to_owned(), queue);
        done(true)
    }

    fn delete(&mut self, name: &str, conditions: &str) -> Response {
        let Some(queue) = self.queues.get(name) else {
            return absent();
        };
        if conditions.contains("if-empty") && queue.messages > 0 {
            let reason = format!("queue '{name}' in vhost '/' not empty");
            return (400, json!({"error": "bad_request", "reason": reason}));
        }
        self.remove(name);
        done(false)
    }

    /// Removes a queue with its messages and bindings.
    pub fn remove(&mut self, name: &str) {
        self.queues.remove(name);
        self.bindings.retain(|(_, queue, _), _| queue != name);
    }

    fn bind(&mut self, exchange: &str, queue: &str, body: &Value) -> Response {
        if !self.exchanges.contains(exchange) || !self.queues.contains_key(queue) {
            return absent();
        }
        let key = body["routing_key"].as_str().unwrap_or_default();
        let properties = match body.get("arguments") {
            Some(arguments) => format!("{key}~{arguments}"),
            None => key.to_owned(),
        };
        let binding = json!({
            "source": exchange,
            "destination": queue,
            "destination_type": "queue",
            "routing_key": key,
            "arguments": body.get("arguments").cloned().unwrap_or_else(|| json!({})),
            "properties_key": properties,
        });
        let route = (exchange.to_owned(), queue.to_owned(), properties);
        self.bindings.insert(route, binding);
        done(true)
    }

    fn bindings_of(&self, name: &str) -> Response {
        if !self.queues.contains_key(name) {
            return absent();
        }
        let bound = self
            .bindings
            .values()
            .filter(|it| it["destination"] == name);
        let default = json!({
            "source": "", "destination": name, "destination_type": "queue", "routing_key": name, "arguments": {},
            "properties_key": name,
        });
        (200, bound.cloned().chain([default]).collect())
    }

    fn bindings_from(&self, exchange: &str) -> Response {
        if !self.exchanges.contains(exchange) {
            return absent();
        }
        let bound = self.bindings.values().filter(|it| it["source"] == exchange);
        (200, bound.cloned().collect())
    }

    /// Namespace and name of the actor that owns the queue, by its owner tag.
    #[must_use]
    pub fn owner_of(&self, name: &str) -> Option<(String, String)> {
        let mut bound = self
            .bindings
            .values()
            .filter(|it| it["destination"] == name);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        bound.find_map(|it| {
            let arguments = &it["arguments"];
            Some((
                text(&arguments["asya.sh/namespace"])?,
                text(&arguments["asya.sh/actor"])?,
            ))
        })
    }

    /// The routing keys with which an exchange is bound to a queue.
    #[must_use]
    pub fn routes_to(&self, name: &str) -> BTreeSet<String> {
        let bound = self
            .bindings
            .values()
            .filter(|it| it["destination"] == name);
        bound
            .filter_map(|it| it["routing_key"].as_str().map(str::to_owned))
            .collect()
    }
}

impl Queue {
    fn shown(&self, name: &str) -> Value {
        let mut shown = self.declaration.clone();
        shown["name"] = name.into();
        shown["node"] = "rabbit@localhost".into();
        shown["type"] = "classic".into();
        shown["messages_ready"] = self.messages.into();
        shown["messages_unacknowledged"] = 0.into();
        shown["consumers"] = 0.into();
        shown
    }
}

fn decoded(segment: &str) -> String {
    // The only name in a simulation that needs encoding is the default virtual host.
    segment
        .replace("%2F", "/")
        .replace("%7E", "~")
        .replace("%7B", "{")
        .replace("%7D", "}")
        .replace("%22", "\"")
}
