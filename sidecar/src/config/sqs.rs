//! How to reach SQS.

use std::time::Duration;

use asya_wire::env;

use super::reader::Reader;
use super::url;

/// The shortest visibility that is asked for by itself (SC-37).
const SHORTEST: Duration = Duration::from_secs(30);
/// The longest visibility that is asked for by itself.
const LONGEST: Duration = Duration::from_secs(90);

/// How to reach SQS.
#[derive(Clone, Debug)]
pub struct Sqs {
    /// The region.
    pub region: String,
    /// URL of an endpoint that stands for AWS.
    pub endpoint: Option<String>,
    /// How long a received message stays hidden before it must be extended.
    pub visibility: Duration,
    /// How long a poll waits.
    pub wait: Duration,
}

impl Sqs {
    pub(super) fn read(reader: &mut Reader<'_>, timeout: Duration) -> Self {
        let most = u64::from(env::MAX_SQS_VISIBILITY_TIMEOUT);
        if timeout.as_secs() > most {
            reader.wrong(
                env::RUNTIME_TIMEOUT,
                "SQS gives a message to another after 12h; write at most 12h",
            );
        }
        let seconds = reader.number(env::SQS_VISIBILITY_TIMEOUT, 0..=most, 0);
        let by_timeout = timeout.saturating_mul(2).clamp(SHORTEST, LONGEST);
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
        &format!("not set, and neither is AWS_REGION; {default} is used"),
    );
    default.to_owned()
}
