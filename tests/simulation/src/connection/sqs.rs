//! Connections from a process to SQS: the HTTP client of the AWS SDK.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_controller::http_client::BuildSqsHttpClient;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use reqwest::Url;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::broker::sqs::{Failure, LAG, transport};
use crate::faults::Fault;
use crate::process::Process;
use crate::randomness::{Seed, delay};
use crate::world::World;
use crate::world::sqs::Call;

/// Creates the clients of a process.
#[must_use]
pub fn clients(world: &Arc<World>, process: &Arc<Process>) -> BuildSqsHttpClient {
    let (world, process) = (Arc::clone(world), Arc::clone(process));
    Arc::new(move |_| {
        let link = SqsLink {
            world: Arc::clone(&world),
            process: Arc::clone(&process),
        };
        let connector = SharedHttpConnector::new(link);
        Some(http_client_fn(move |_, _| connector.clone()))
    })
}

#[derive(Clone)]
struct SqsLink {
    world: Arc<World>,
    process: Arc<Process>,
}

impl fmt::Debug for SqsLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqsLink")
    }
}

impl HttpConnector for SqsLink {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let link = self.clone();
        HttpConnectorFuture::new(async move {
            let call = parse(&request).ok_or_else(|| broken("no request to SQS"))?;
            let subject = format!("{} {call}", link.process.name);
            let name = link.world.faults.name(&subject);
            let _jitter = Jitter {
                seed: link.world.seed,
                call: name.clone(),
            };
            link.round_trip(call, &name).await
        })
    }
}

/// Seeds the jitter once a call is over, even if the SDK abandons it.
struct Jitter {
    seed: Seed,
    call: String,
}

impl Drop for Jitter {
    fn drop(&mut self) {
        self.seed.seed_jitter(&self.call);
    }
}

fn broken(why: &'static str) -> ConnectorError {
    ConnectorError::io(why.into())
}

fn parse(request: &HttpRequest) -> Option<Call> {
    let url: Url = request.uri().parse().ok()?;
    let region = url.host_str()?.split('.').nth(1)?;
    let signature = request.headers().get("authorization")?;
    let (_, key) = signature.split_once("Credential=")?;
    let key = key.split('/').next()?;
    let target = request.headers().get("x-amz-target")?;
    let input = serde_json::from_slice(request.body().bytes()?).ok()?;
    Some(Call {
        transport: transport(region, key),
        operation: target.strip_prefix("AmazonSQS.")?.to_owned(),
        input,
    })
}

fn response(answer: Result<Value, Failure>) -> Result<HttpResponse, ConnectorError> {
    let (status, body, query_code) = match answer {
        Ok(body) => (200, body, None),
        Err(failure) => (failure.status, failure.body(), Some(failure.query_code)),
    };
    let status = StatusCode::try_from(status).map_err(|_| broken("no status"))?;
    let mut response = HttpResponse::new(status, body.to_string().into());
    let headers = response.headers_mut();
    headers.insert("content-type", "application/x-amz-json-1.0");
    if let Some(code) = query_code {
        headers.insert("x-amzn-query-error", format!("{code};Sender"));
    }
    Ok(response)
}

impl SqsLink {
    async fn round_trip(&self, call: Call, name: &str) -> Result<HttpResponse, ConnectorError> {
        if !self.process.can_send().await {
            return Err(broken("closed"));
        }
        let (world, process) = (&self.world, &self.process);
        let mut possible = vec![
            Fault::ServerError,
            Fault::TooManyRequests,
            Fault::Unreachable,
            Fault::Slow,
        ];
        if call.writes() {
            possible.extend([Fault::ResponseLost, Fault::ResponseLost]);
        }
        let fault = world.faults.draw(name, &possible);
        if let Some(fault) = fault {
            world
                .trace
                .add(&process.name, format_args!("{name}: {fault:?}"));
        }
        let latency = world.faults.latency(name, fault);
        let refused = match fault {
            Some(Fault::Unreachable) => Some(Err(broken("connection refused"))),
            Some(Fault::ServerError) => Some(response(Err(Failure::internal()))),
            Some(Fault::TooManyRequests) => Some(response(Err(Failure::throttled()))),
            _ => None,
        };
        if let Some(refused) = refused {
            sleep(latency.there).await;
            return refused;
        }
        let age = self.age(name);
        let (send, receive) = oneshot::channel();
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        tokio::spawn(async move {
            sleep(latency.there).await;
            let answer = world.act_on_sqs(&process, &call, age);
            if process.count_call() {
                world.trace.add(&process.name, "crashes");
            }
            sleep(latency.back).await;
            let _ = send.send(answer);
        });
        let answer = receive.await.map_err(|_| broken("closed"))?;
        if !self.process.can_send().await || fault == Some(Fault::ResponseLost) {
            return Err(broken("closed"));
        }
        response(answer)
    }

    /// The age of the state that a read shows: usually short, sometimes up to the maximum lag.
    fn age(&self, name: &str) -> Duration {
        let mut random = self.world.seed.rng_for(("age", name));
        if random.u8(..4) == 0 {
            delay(&mut random, 0..60_000).min(LAG)
        } else {
            delay(&mut random, 0..2_000)
        }
    }
}
