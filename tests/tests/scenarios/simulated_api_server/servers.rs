//! How requests reach the two servers.

use asya_simulation::api_server::ApiServer;
use asya_simulation::api_server::id::Id;
use asya_simulation::api_server::managed::Writer;
use asya_simulation::api_server::request::{Request, Verb};
use asya_simulation::api_server::resources;
use asya_simulation::api_server::status::Failure;
use asya_simulation::api_server::watch::Watch;
use asya_tests::{Error, Result};
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::kinds::Kind;

/// A request with its body.
pub type HttpRequest = http::Request<Vec<u8>>;

/// A status code and a body; for a watch, `{"events": […]}`.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

/// A server.
pub enum Server {
    Simulated(Box<ApiServer>),
    Real(Client),
}

impl Server {
    /// A simulated server that has these objects of the kind.
    pub fn simulated(kind: &Kind, namespace: &str, names: &[String]) -> Self {
        let mut server = ApiServer::default();
        server.store.install_crd(kind.resource);
        let writer = Writer {
            manager: "cluster".to_owned(),
            status: false,
        };
        let place = Id::new(&resources::NAMESPACES, "", namespace);
        let _ = server
            .store
            .create(&place, json!({"metadata": {}}), &writer);
        for name in names {
            let id = Id::new(kind.resource, namespace, name);
            let _ = server.store.create(&id, json!({"metadata": {}}), &writer);
        }
        Self::Simulated(Box::new(server))
    }

    pub async fn send(&mut self, request: HttpRequest) -> Result<Answer> {
        match self {
            Self::Simulated(server) => Ok(simulated(server, request)),
            Self::Real(client) => {
                let response = client.send(request.map(Body::from)).await?;
                let code = response.status().as_u16();
                let body = response.into_body().collect_bytes().await?;
                let text = || json!({"text": String::from_utf8_lossy(&body)});
                Ok(Answer {
                    code,
                    body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
                })
            }
        }
    }

    /// The events of a watch, up to one about the object with this name.
    pub async fn events(&mut self, request: HttpRequest, end: &str) -> Result<(u16, Vec<Value>)> {
        let mut events = Vec::new();
        match self {
            Self::Simulated(server) => {
                let (parts, body) = request.into_parts();
                let request = Request::parse(&parts, &body).ok();
                let Some(Request {
                    verb:
                        Verb::Watch {
                            resource,
                            filter,
                            version,
                            ..
                        },
                    metadata_only,
                    ..
                }) = request
                else {
                    return Err(Error::other("this is no watch"));
                };
                let mut watch = Watch {
                    resource,
                    filter,
                    version,
                    metadata_only,
                };
                while let Ok(Some(event)) = watch.next(&server.store) {
                    let event = event.value();
                    if is_about(&event, end) {
                        return Ok((200, events));
                    }
                    events.push(event);
                }
            }
            Self::Real(client) => {
                let mut lines = match client.request_stream(request).await {
                    Ok(lines) => lines.lines(),
                    Err(kube::Error::Api(status)) => {
                        return Ok((status.code, vec![serde_json::to_value(&status)?]));
                    }
                    Err(error) => return Err(error.into()),
                };
                // The API server ends the watch after its `timeoutSeconds`.
                while let Some(line) = lines.next().await {
                    let event: Value = serde_json::from_str(&line.map_err(Error::other)?)?;
                    if is_about(&event, end) {
                        return Ok((200, events));
                    }
                    events.push(event);
                }
            }
        }
        events.push(json!({"type": "no more events"}));
        Ok((200, events))
    }
}

fn is_about(event: &Value, name: &str) -> bool {
    event["object"]["metadata"]["name"] == name
}

fn simulated(server: &mut ApiServer, request: HttpRequest) -> Answer {
    let (parts, body) = request.into_parts();
    let answer = Request::parse(&parts, &body)
        .and_then(|request| server.answer(request.verb, request.metadata_only));
    match answer {
        Ok(body) => Answer { code: 200, body },
        Err(failure) => Answer {
            code: failure.code,
            body: Failure::body(&failure),
        },
    }
}
