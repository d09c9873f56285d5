//! Connections from a process to the brokers.

use std::sync::Arc;
use std::time::Duration;

use asya_controller::http_client::{
    BuildHttpClient, BuildHttpClients, HttpClient, HttpRequest, HttpResponse, NoResponse,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::connection::sqs;
use crate::faults::Fault;
use crate::process::Process;
use crate::world::World;

/// Longer than any slow call in a simulation.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the clients of a process.
#[must_use]
pub fn clients(world: &Arc<World>, process: &Arc<Process>) -> BuildHttpClients {
    BuildHttpClients {
        management_api: management_apis(world, process),
        sqs: sqs::clients(world, process),
    }
}

fn management_apis(world: &Arc<World>, process: &Arc<Process>) -> BuildHttpClient {
    let (world, process) = (Arc::clone(world), Arc::clone(process));
    Arc::new(move |_| {
        Ok(Arc::new(BrokerLink {
            world: Arc::clone(&world),
            process: Arc::clone(&process),
        }))
    })
}

struct BrokerLink {
    world: Arc<World>,
    process: Arc<Process>,
}

impl HttpClient for BrokerLink {
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>> {
        async move {
            let subject = format!("{} {} {}", self.process.name, request.method, request.url);
            let call = self.world.faults.name(&subject);
            let response = timeout(CALL_TIMEOUT, self.round_trip(request, &call)).await;
            self.world.seed.seed_jitter(&call);
            response.unwrap_or(Err(NoResponse::TimedOut))
        }
        .boxed()
    }
}

impl BrokerLink {
    async fn round_trip(
        &self,
        request: HttpRequest<'_>,
        call: &str,
    ) -> Result<HttpResponse, NoResponse> {
        let HttpRequest {
            method, url, body, ..
        } = request;
        if !self.process.can_send().await {
            return Err(NoResponse::Closed);
        }
        let (world, process) = (&self.world, &self.process);
        let writes = method != reqwest::Method::GET;
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut possible = vec![
            Fault::ServerError,
            Fault::TooManyRequests,
            Fault::Unreachable,
            Fault::Slow,
        ];
        if writes {
            possible.extend([Fault::ResponseLost, Fault::ResponseLost]);
        }
        let fault = world.faults.draw(call, &possible);
        if let Some(fault) = fault {
            world
                .trace
                .add(&process.name, format_args!("{call}: {fault:?}"));
        }
        let latency = world.faults.latency(call, fault);
        match fault {
            Some(Fault::Unreachable) => {
                sleep(latency.there).await;
                return Err(NoResponse::NotConnected);
            }
            Some(Fault::ServerError | Fault::TooManyRequests) => {
                sleep(latency.there).await;
                let (status, retry_after) = if fault == Some(Fault::ServerError) {
                    (StatusCode::SERVICE_UNAVAILABLE, None)
                } else {
                    (StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(1)))
                };
                return Ok(HttpResponse {
                    status,
                    body: Vec::new(),
                    retry_after,
                });
            }
            _ => {}
        }
        let (send, receive) = oneshot::channel();
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        let body: Option<Value> = body.cloned();
        tokio::spawn(async move {
            sleep(latency.there).await;
            let answer = world.act_on_broker(&process, &host, (&method, &url, body.as_ref()));
            if process.count_call() {
                world.trace.add(&process.name, "crashes");
            }
            sleep(latency.back).await;
            let _ = send.send(answer);
        });
        let (status, body) = receive.await.map_err(|_| NoResponse::Closed)?;
        if !self.process.can_send().await || fault == Some(Fault::ResponseLost) {
            return Err(NoResponse::Closed);
        }
        Ok(HttpResponse {
            status: StatusCode::from_u16(status).unwrap_or_default(),
            body: body.to_string().into_bytes(),
            retry_after: None,
        })
    }
}
