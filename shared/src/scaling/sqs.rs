//! KEDA's `aws-sqs-queue` trigger (KEDA-4, KEDA-5).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Authentication, Trigger, TriggerError, TriggerRequest};
use crate::config::{IdentityOwner, SqsConfig};

pub(crate) fn trigger(
    config: &SqsConfig,
    request: &TriggerRequest<'_>,
) -> Result<Trigger, TriggerError> {
    let queue = || request.queue.to_owned();
    let url = queue_url(config, request.queue)
        .or_else(|| request.queue_url.map(str::to_owned))
        .ok_or_else(|| TriggerError::QueueUrlUnknown { queue: queue() })?;
    let region = config.region.as_deref().or_else(|| region_of(&url));
    let region = region.ok_or_else(|| TriggerError::RegionUnknown { queue: queue() })?;
    let mut metadata = BTreeMap::from([
        ("awsRegion", region.to_owned()),
        ("queueLength", request.queue_length.to_string()),
        (
            "activationQueueLength",
            request.activation_queue_length.to_string(),
        ),
        ("scaleOnInFlight", request.count_in_flight.to_string()),
    ]);
    if let Some(endpoint) = &config.endpoint {
        metadata.insert("awsEndpoint", endpoint.clone());
    }
    metadata.insert("queueURL", url);
    Ok(Trigger {
        kind: "aws-sqs-queue",
        metadata,
        authentication: Some(authentication(config)),
    })
}

/// Builds the URL from the configuration, if that suffices.
fn queue_url(config: &SqsConfig, queue: &str) -> Option<String> {
    let account = config.account_id.as_deref()?;
    if let Some(endpoint) = &config.endpoint {
        return Some(format!("{endpoint}/{account}/{queue}"));
    }
    let region = config.region.as_deref()?;
    let suffix = partition_suffix(region);
    Some(format!("https://sqs.{region}.{suffix}/{account}/{queue}"))
}

/// The DNS suffix of a region's endpoints.
fn partition_suffix(region: &str) -> &'static str {
    const SUFFIXES: [(&str, &str); 6] = [
        ("cn-", "amazonaws.com.cn"),
        ("us-isob-", "sc2s.sgov.gov"),
        ("us-isof-", "csp.hci.ic.gov"),
        ("us-iso-", "c2s.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk"),
        ("eusc-", "amazonaws.eu"),
    ];
    let found = SUFFIXES
        .into_iter()
        .find(|(prefix, _)| region.starts_with(prefix));
    found.map_or("amazonaws.com", |(_, suffix)| suffix)
}

/// Extracts the region from a URL of AWS or of a server with the same host names: `https://sqs.REGION.…`.
fn region_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split(['/', ':']).next()?;
    let mut labels = host.split('.');
    labels.next().filter(|label| label.starts_with("sqs"))?;
    let region = labels.next()?;
    let is_one = region.matches('-').count() > 1 && region.ends_with(|c: char| c.is_ascii_digit());
    is_one.then_some(region)
}

fn authentication(config: &SqsConfig) -> Authentication {
    if let Some(keys) = &config.credentials {
        return Authentication {
            secrets: vec![
                ("awsAccessKeyID", keys.access_key_id.clone()),
                ("awsSecretAccessKey", keys.secret_access_key.clone()),
            ],
            ..Authentication::default()
        };
    }
    let owner = config.keda.identity_owner.map(|owner| match owner {
        IdentityOwner::Keda => "keda",
        IdentityOwner::Workload => "workload",
    });
    let settings = [
        ("provider", Some("aws")),
        ("identityOwner", owner),
        ("roleArn", config.keda.role_arn.as_deref()),
    ];
    Authentication {
        pod_identity: settings
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), Value::from(value?))))
            .collect::<Map<_, _>>(),
        ..Authentication::default()
    }
}
