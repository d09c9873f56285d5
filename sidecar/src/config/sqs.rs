//! Settings of SQS.

use std::time::Duration;

use asya_wire::env;

use super::reader::Reader;
use super::url;

/// Lower bound of the default visibility timeout (SC-37).
const MIN_DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);
/// Upper bound of the default visibility timeout.
const MAX_DEFAULT_VISIBILITY: Duration = Duration::from_secs(90);

#[derive(Clone, Debug)]
pub struct SqsConfig {
    pub region: String,
    /// Endpoint URL to use instead of AWS.
    pub endpoint: Option<String>,
    pub visibility: Duration,
    /// Wait time of a long poll.
    pub wait: Duration,
}

impl SqsConfig {
    pub(super) fn read(reader: &mut Reader<'_>, timeout: Duration) -> Self {
        let most = u64::from(env::MAX_SQS_VISIBILITY_TIMEOUT);
        if timeout.as_secs() > most {
            reader.invalid(
                env::RUNTIME_TIMEOUT,
                "exceeds the maximum visibility timeout of SQS; write at most 12h",
            );
        }
        let seconds = reader.number(env::SQS_VISIBILITY_TIMEOUT, 0..=most, 0);
        let by_timeout = timeout
            .saturating_mul(2)
            .clamp(MIN_DEFAULT_VISIBILITY, MAX_DEFAULT_VISIBILITY);
        let wait = u64::from(env::DEFAULT_SQS_WAIT_TIME_SECONDS);
        let wait = match reader.number(env::SQS_WAIT_TIME_SECONDS, 0..=wait, 0) {
            0 => wait,
            seconds => seconds,
        };
        Self {
            region: region(reader),
            endpoint: url::http(reader, env::SQS_ENDPOINT),
            visibility: if seconds == 0 {
                by_timeout
            } else {
                Duration::from_secs(seconds)
            },
            wait: Duration::from_secs(wait),
        }
    }
}

fn region(reader: &mut Reader<'_>) -> String {
    let names = [env::AWS_REGION, "AWS_REGION", "AWS_DEFAULT_REGION"];
    if let Some(region) = names.into_iter().find_map(|name| reader.get(name)) {
        return region.trim().to_owned();
    }
    let default = env::DEFAULT_AWS_REGION;
    reader.warn(
        env::AWS_REGION,
        &format!("not set, and neither is AWS_REGION; using {default}"),
    );
    default.to_owned()
}
