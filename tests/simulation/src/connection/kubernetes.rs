//! Connections from a process to the API server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::request::Parts;
use http::{Request as HttpRequest, Response, StatusCode};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tower::BoxError;

use crate::api_server::answer::Answer;
use crate::api_server::id::Id;
use crate::api_server::managed::Writer;
use crate::api_server::object::encode;
use crate::api_server::request::{Request, Verb};
use crate::api_server::resources::{self, Resource};
use crate::api_server::status::Failure;
use crate::api_server::store::owners;
use crate::api_server::watch::{self, Watch};
use crate::faults::Fault;
use crate::process::Process;
use crate::randomness::delay;
use crate::world::World;
use crate::world::targets::is_target;
use crate::world::workloads::report_denied;

type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// Creates the client of a process.
#[must_use]
pub fn client(world: &Arc<World>, process: &Arc<Process>) -> Client {
    let (world, process) = (Arc::clone(world), Arc::clone(process));
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        let call = Call {
            world: Arc::clone(&world),
            process: Arc::clone(&process),
        };
        async move { call.send(request).await }
    });
    Client::new(service, "default")
}

/// A call by a process.
struct Call {
    world: Arc<World>,
    process: Arc<Process>,
}

fn broken() -> BoxError {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "connection reset by the simulation",
    )
    .into()
}

fn response(code: u16, body: Bytes, retry_after: Option<u32>) -> Response<ResponseBody> {
    let body = Full::new(body).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

fn answered(answer: Result<Answer, Failure>) -> Response<ResponseBody> {
    match answer {
        Ok(answer) => response(200, answer.into_bytes(), None),
        Err(failure) => response(failure.code, encode(&failure.body()), failure.retry_after),
    }
}

impl Call {
    async fn send(self, request: HttpRequest<Body>) -> Result<Response<ResponseBody>, BoxError> {
        if !self.process.can_send().await {
            return Err(broken());
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let kind = format!("{} {} {}", self.process.name, parts.method, path(&parts));
        let call = self.world.faults.name(&kind);
        let world = Arc::clone(&self.world);
        let answer = self
            .answer(Request::parse(&parts, &body), call.clone())
            .await;
        world.seed.seed_jitter(&call);
        answer
    }

    async fn answer(
        self,
        request: Result<Request, Failure>,
        call: String,
    ) -> Result<Response<ResponseBody>, BoxError> {
        match request {
            Ok(request) if matches!(request.verb, Verb::Watch { .. }) => {
                self.watch(request, call).await
            }
            Ok(request) => self.round_trip(request, &call).await,
            Err(failure) => {
                self.world.trace.add(
                    &self.process.name,
                    format_args!("{call}: {}", failure.message),
                );
                Ok(answered(Err(failure)))
            }
        }
    }

    async fn round_trip(
        self,
        request: Request,
        call: &str,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let mut possible = vec![
            Fault::ServerError,
            Fault::TooManyRequests,
            Fault::Unreachable,
            Fault::Slow,
        ];
        if request.verb.writes() {
            possible.extend([
                Fault::ResponseLost,
                Fault::ResponseLost,
                Fault::ConcurrentWrite,
            ]);
        }
        let fault = self.world.faults.draw(call, &possible);
        let latency = self.world.faults.latency(call, fault);
        if let Some(fault) = fault {
            self.world
                .trace
                .add(&self.process.name, format_args!("{call}: {fault:?}"));
        }
        let failure = match fault {
            Some(Fault::ServerError) => Some(Failure::internal()),
            Some(Fault::TooManyRequests) => Some(Failure::too_many_requests(1)),
            _ => None,
        };
        if failure.is_some() || fault == Some(Fault::Unreachable) {
            sleep(latency.there + latency.back).await;
            return failure
                .map(|failure| answered(Err(failure)))
                .ok_or_else(broken);
        }
        let (send, receive) = oneshot::channel();
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        // A request that has been sent arrives even if the client gives up.
        tokio::spawn(async move {
            sleep(latency.there).await;
            let answer = act(&world, &process, request, fault);
            if process.count_call() {
                world.trace.add(&process.name, "crashes");
            }
            sleep(latency.back).await;
            let _ = send.send(answer);
        });
        let answer = receive.await.map_err(|_| broken())?;
        // Only a live process receives the response.
        let is_connected = self.process.can_send().await;
        if fault == Some(Fault::ResponseLost) || !is_connected {
            return Err(broken());
        }
        Ok(answered(answer))
    }

    async fn watch(
        self,
        request: Request,
        call: String,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let fault = self.world.faults.draw(
            &call,
            &[Fault::ServerError, Fault::Unreachable, Fault::Slow],
        );
        let latency = self.world.faults.latency(&call, fault);
        sleep(latency.there).await;
        let (metadata_only, verb) = (request.metadata_only, request.verb);
        let Verb::Watch {
            resource,
            filter,
            version,
            bookmarks,
            seconds,
        } = verb
        else {
            return Err(broken());
        };
        match fault {
            Some(Fault::ServerError) => return Ok(answered(Err(Failure::internal()))),
            Some(Fault::Unreachable) => return Err(broken()),
            _ => {}
        }
        if let Some(forbidden) = forbidden(&self.world, &self.process, resource) {
            return Ok(answered(Err(forbidden)));
        }
        let mut random = self.world.seed.rng_for(("cut", &call));
        let is_cut = self.world.faults.active() && random.u8(..4) == 0;
        let waker = self.world.server.lock().store.subscribe(Some(resource));
        let stream = WatchStream {
            watch: Watch {
                resource,
                filter,
                version,
                metadata_only,
            },
            world: self.world,
            process: self.process,
            call,
            waker,
            events: 0,
            bookmarks,
            end: Instant::now() + Duration::from_secs(seconds),
            cut: is_cut.then(|| Instant::now() + delay(&mut random, 0..20_000)),
            over: false,
        };
        let body = StreamBody::new(stream.into_frames());
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = StatusCode::OK;
        Ok(response)
    }
}

fn path(parts: &Parts) -> String {
    // The name identifies the list or watch, but not its version or page.
    let query = parts.uri.query().unwrap_or_default();
    let selectors = query
        .split('&')
        .filter(|it| it.starts_with("labelS") || it.starts_with("fieldS") || *it == "watch=true");
    let selectors: Vec<&str> = selectors.collect();
    format!("{}?{}", parts.uri.path(), selectors.join("&"))
}

/// Why the process lacks permission on the resource.
fn forbidden(world: &World, process: &Process, resource: &Resource) -> Option<Failure> {
    let is_forbidden =
        !process.is_target_controller && world.forbidden.lock().contains(resource.plural);
    is_forbidden.then(|| Failure::forbidden(resource))
}

/// Carries out a call on the server.
fn act(
    world: &World,
    process: &Process,
    request: Request,
    fault: Option<Fault>,
) -> Result<Answer, Failure> {
    let Request {
        mut verb,
        metadata_only,
        dry_run,
    } = request;
    if let Some(id) = verb
        .object()
        .filter(|_| fault == Some(Fault::ConcurrentWrite))
    {
        touch(world, id);
    }
    let resource = verb.object().map(|id| id.resource).or(verb.resource());
    if let Some(failure) = resource.and_then(|it| forbidden(world, process, it)) {
        let what = resource.map_or("", |it| it.plural);
        let text = format_args!("{} {what}: 403 {}", verb.name(), failure.message);
        world.trace.add(&process.name, text);
        return Err(failure);
    }
    let (name, object) = (verb.name(), verb.object().cloned());
    let writes = verb.writes() && !dry_run;
    let what = verb.resource().map_or("", |resource| resource.plural);
    let is_ours = !process.is_target_controller;
    if let Some(id) = object.as_ref().filter(|_| writes && is_ours) {
        world.check_writer(process, id);
        world.check_disruption(process, &verb);
        world.check_eviction(process, &verb);
    }
    if is_ours {
        world.note_read(process, &verb);
        if dry_run {
            world.note_dry_run(process, &verb);
        }
    }
    let creator = pod_creator(&verb).filter(|_| writes && !is_ours);
    let earlier = object.as_ref().filter(|_| writes);
    let earlier = earlier.and_then(|id| world.server.lock().store.get(id));
    let (before, answer, after) = {
        let mut server = world.server.lock();
        let before = server.store.version();
        let answer = world.admit_created(&server.store, &mut verb, dry_run);
        let answer = answer.and_then(|()| {
            if dry_run {
                server.dry_run(verb)
            } else {
                server.respond(verb, metadata_only)
            }
        });
        (before, answer, server.store.version())
    };
    if let (Some(creator), Err(failure)) = (&creator, &answer) {
        let store = &mut world.server.lock().store;
        let (api_version, kind, namespace, name) = creator;
        let creator = (&**api_version, &**kind, &**namespace, &**name);
        report_denied(store, creator, "FailedToCreateWorkerPod", &failure.message);
    }
    let mut result = match &answer {
        Ok(_) if dry_run => "would be ok".to_owned(),
        Ok(_) if writes && before == after => "unchanged".to_owned(),
        Ok(_) => "ok".to_owned(),
        Err(failure) => format!("{} {}", failure.code, failure.message),
    };
    match object {
        Some(id) => {
            if writes && before != after {
                if is_ours {
                    world.note_write(process, &id, name);
                }
                let live = world.server.lock().store.get(&id).unwrap_or_default();
                if let Some(earlier) = earlier {
                    if is_ours && is_target(&earlier) {
                        world.check_target(process, &id, (&earlier, &live));
                        world.check_rollout(process, &id, (&earlier, &live));
                    }
                    result.push_str(&changes(&earlier, &live));
                }
            }
            world.trace.add(
                &process.name,
                format_args!("{name} {}: {result}", shown(&id)),
            );
        }
        None => world
            .trace
            .add(&process.name, format_args!("{name} {what}: {result}")),
    }
    answer
}

/// The owner of a pod that a call creates: API version, kind, namespace and name.
fn pod_creator(verb: &Verb) -> Option<(String, String, String, String)> {
    let Verb::Create(id, pod, _) = verb else {
        return None;
    };
    let owner = owners(pod)
        .next()
        .filter(|_| id.resource == &resources::PODS)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    Some((
        text("apiVersion"),
        text("kind"),
        id.namespace.clone(),
        text("name"),
    ))
}

/// The changes that a write made, for the trace.
fn changes(earlier: &Value, live: &Value) -> String {
    let mut text = String::new();
    for field in ["data", "spec", "status"] {
        add_changes(field, &earlier[field], &live[field], &mut text);
    }
    text
}

fn add_changes(path: &str, earlier: &Value, live: &Value, text: &mut String) {
    if earlier == live {
        return;
    }
    // These contain or name keys and certificates, which do not depend on the seed.
    let is_random = ["data.facts.json", "data.ca.", "data.tls."];
    if is_random.iter().any(|it| path.starts_with(it)) {
        text.extend([", ", path]);
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (earlier, live) else {
        text.extend([", ", path, ": ", &live.to_string()]);
        return;
    };
    let added = after.keys().filter(|field| !before.contains_key(*field));
    for field in before.keys().chain(added) {
        let path = format!("{path}.{field}");
        add_changes(&path, &earlier[field], &live[field], text);
    }
}

/// An object as shown in the trace. Event names end with the time of the real clock.
fn shown(id: &Id) -> String {
    let text = id.to_string();
    match text.rsplit_once('.') {
        Some((subject, _)) if id.resource == &resources::EVENTS => subject.to_owned(),
        _ => text,
    }
}

/// Changes the object as another client.
fn touch(world: &World, id: &Id) {
    let mut server = world.server.lock();
    let Some(live) = server.store.get(id) else {
        return;
    };
    let mut object = live.to_value();
    let version = object["metadata"]["resourceVersion"].clone();
    object["metadata"]["annotations"]["example.com/touched"] = version;
    let writer = Writer {
        manager: "bystander".to_owned(),
        status: false,
    };
    let _ = server.store.update(id, object, &writer);
}

/// The response body of a watch.
struct WatchStream {
    watch: Watch,
    world: Arc<World>,
    process: Arc<Process>,
    call: String,
    waker: Arc<Notify>,
    events: u32,
    bookmarks: bool,
    end: Instant,
    cut: Option<Instant>,
    over: bool,
}

type Frame = Result<hyper::body::Frame<Bytes>, io::Error>;

impl WatchStream {
    fn into_frames(self) -> BoxStream<'static, Frame> {
        stream::unfold(self, async |mut stream| {
            let event = stream.next().await;
            stream.world.seed.seed_jitter((&stream.call, stream.events));
            let event = event?;
            Some((event.map(hyper::body::Frame::data), stream))
        })
        .boxed()
    }

    /// The line of the next event.
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if !self.process.can_send().await {
                return None;
            }
            if self.over {
                return None;
            }
            let next = self.watch.next(&self.world.server.lock().store);
            match next {
                Ok(Some(event)) => {
                    self.events += 1;
                    self.delay().await;
                    if self.process.can_send().await {
                        return Some(Ok(event.line()));
                    }
                    return None;
                }
                Ok(None) => {}
                Err(failure) => {
                    self.over = true;
                    return Some(Ok(watch::line("ERROR", &failure.body())));
                }
            }
            let end = self.cut.map_or(self.end, |cut| cut.min(self.end));
            tokio::select! {
                biased;
                () = self.waker.notified() => {}
                () = sleep_until(end) => {
                    self.over = true;
                    if self.cut.is_some_and(|cut| cut <= Instant::now()) {
                        return Some(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                    if self.bookmarks {
                        // Changes of other resources count as well.
                        let last = self.watch.next(&self.world.server.lock().store);
                        let last = last.ok().flatten();
                        let line = last.map_or_else(|| self.watch.bookmark(), |event| event.line());
                        return Some(Ok(line));
                    }
                }
            }
        }
    }

    /// Delays an event, occasionally for long.
    async fn delay(&self) {
        let mut random = self.world.seed.rng_for(("event", &self.call, self.events));
        let is_late = self.world.faults.active() && random.u8(..16) == 0;
        let range = if is_late { 500..6_000 } else { 1..150 };
        sleep(delay(&mut random, range)).await;
    }
}
