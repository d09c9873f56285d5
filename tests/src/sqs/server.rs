//! The SQS server, which listens on a single address.

use std::path::Path;
use std::time::Duration;

use crate::error::{Context, Result};
use crate::eventually::{NotYet, eventually};
use crate::ports;
use crate::process::{Process, Spec};

/// Names service and account; the server checks no signature.
const CREDENTIAL: &str = "AWS4-HMAC-SHA256 Credential=000000000000/20260101/eu-central-1/sqs/aws4_request, SignedHeaders=host, Signature=0";

/// Starts the server, which listens on `host`, and returns its URL.
pub(crate) async fn start(bin: &Path, folder: &Path, host: &str) -> Result<(String, Process)> {
    let home = folder.join("sqs");
    std::fs::create_dir_all(&home).context(format_args!("make {}", home.display()))?;
    let address = format!("{host}:{}", ports::free()?);
    let server = Spec::new("sqs", bin.join("python3"))
        .log(folder.join("sqs.log"))
        .args(["-m", "localstack.runtime.main"])
        .env("HOME", home.display())
        // Of the two gateway servers, only this one listens on loopback only.
        .env("GATEWAY_SERVER", "hypercorn")
        .env("GATEWAY_LISTEN", &address)
        .env("LOCALSTACK_HOST", &address)
        .env("SERVICES", "sqs")
        .env("STRICT_SERVICE_LOADING", "1")
        .env("EAGER_SERVICE_LOADING", "0")
        // Enforces the 60 s before a deleted queue can be recreated, like AWS.
        .env("SQS_DELAY_RECENTLY_DELETED", "1")
        // Queue URLs in the three-part form that KEDA's trigger accepts.
        .env("SQS_ENDPOINT_STRATEGY", "off")
        .env("DISABLE_EVENTS", "1")
        .env("SKIP_SSL_CERT_DOWNLOAD", "1")
        .env("DNS_ADDRESS", "0")
        .env("FILESYSTEM_ROOT", home.join("root").display());
    let server = Process::start(server).await?;
    let url = format!("http://{address}");
    let health = format!("{url}/_localstack/health");
    let client = crate::http_client()?;
    let ready = eventually(
        "the SQS server answers",
        Duration::from_mins(2),
        async || {
            let status = client.get(&health).send().await?.status();
            if !status.is_success() {
                return Err(NotYet::new(status));
            }
            // Loads the service, which takes half a minute on a busy machine, longer than clients wait for a response.
            let list = client
                .post(&url)
                .header("x-amz-target", "AmazonSQS.ListQueues")
                .header("content-type", "application/x-amz-json-1.0")
                .header("authorization", CREDENTIAL)
                .body("{}");
            let status = list.send().await?.status();
            if status.is_success() {
                Ok(())
            } else {
                Err(NotYet::new(status))
            }
        },
    );
    server.alive_while(ready).await?;
    Ok((url, server))
}
