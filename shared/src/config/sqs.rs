//! Settings of SQS (SQS-1).

use std::collections::BTreeMap;
use std::fmt;

use asya_wire::queue::Naming;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::queues::{QueueConstraints, RawQueues};
use super::{ConfigError, KeyPath, QueuesConfig, SecretKeyRef, non_empty};

const CONSTRAINTS: QueueConstraints = QueueConstraints {
    dlq_name: "asya-dlq",
    dlq_retention_days: Some(14),
    max_retention_days: Some(14),
    has_types: false,
    naming: Naming::Sqs,
};

/// Amazon SQS, or a server with a compatible API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsConfig {
    /// AWS region.
    pub region: Option<String>,
    /// AWS account that owns the queues, 12 digits.
    pub account_id: Option<String>,
    /// URL of the server to call in place of AWS, without a trailing slash.
    pub endpoint: Option<String>,
    /// PEM bundle to verify the endpoint's certificate, in addition to the system's CAs.
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// IAM role of the actors' pods (SA-1).
    pub actor_role_arn: Option<String>,
    /// Seconds for which a received message stays invisible.
    pub visibility_timeout: Option<u32>,
    /// Seconds for which a receive call waits for a message.
    pub wait_time_seconds: Option<u32>,
    /// Access key of the sidecars and the operator; `None`: the default chain of AWS.
    pub credentials: Option<SqsCredentials>,
    /// Tags for every queue, in addition to the operator's own.
    pub tags: BTreeMap<String, String>,
    /// KEDA's identity if there is no access key (KEDA-5).
    pub keda: SqsKeda,
    /// Queue settings.
    pub queues: QueuesConfig,
}

/// An AWS access key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsCredentials {
    /// Access key id.
    pub access_key_id: SecretKeyRef,
    /// Secret access key.
    pub secret_access_key: SecretKeyRef,
}

/// KEDA's identity at AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqsKeda {
    /// Owner of the identity.
    pub identity_owner: Option<IdentityOwner>,
    /// IAM role that KEDA assumes.
    pub role_arn: Option<String>,
}

/// The identity that KEDA uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityOwner {
    /// KEDA's own.
    Keda,
    /// The workload's.
    Workload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    region: Option<String>,
    #[serde(default, deserialize_with = "account_id")]
    account_id: Option<String>,
    endpoint: Option<String>,
    ca_secret_ref: Option<SecretKeyRef>,
    actor_role_arn: Option<String>,
    visibility_timeout: Option<u32>,
    wait_time_seconds: Option<u32>,
    credentials: Option<RawCredentials>,
    tags: Option<BTreeMap<String, String>>,
    keda: Option<RawKeda>,
    queues: Option<RawQueues>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCredentials {
    access_key_id_secret_ref: Option<SecretKeyRef>,
    secret_access_key_secret_ref: Option<SecretKeyRef>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawKeda {
    identity_owner: Option<IdentityOwner>,
    role_arn: Option<String>,
}

impl SqsConfig {
    pub(super) fn read(settings: Value, at: &KeyPath) -> Result<Self, ConfigError> {
        let raw: Raw = at.decode(settings)?;
        let endpoint = match non_empty(raw.endpoint) {
            Some(endpoint) => Some(check_endpoint(&endpoint, &at.key("endpoint"))?),
            None => None,
        };
        Ok(Self {
            region: non_empty(raw.region),
            account_id: non_empty(raw.account_id),
            endpoint,
            ca_secret_ref: at.secret("caSecretRef", raw.ca_secret_ref)?,
            actor_role_arn: non_empty(raw.actor_role_arn),
            visibility_timeout: raw.visibility_timeout.filter(|seconds| *seconds > 0),
            wait_time_seconds: raw.wait_time_seconds.filter(|seconds| *seconds > 0),
            credentials: check_credentials(raw.credentials, &at.key("credentials"))?,
            tags: raw.tags.unwrap_or_default(),
            keda: check_keda(raw.keda.unwrap_or_default(), &at.key("keda"))?,
            queues: raw
                .queues
                .unwrap_or_default()
                .build(&at.key("queues"), &CONSTRAINTS)?,
        })
    }
}

fn check_endpoint(endpoint: &str, at: &KeyPath) -> Result<String, ConfigError> {
    let rest = endpoint
        .strip_prefix("http://")
        .or_else(|| endpoint.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.trim_start_matches('/').is_empty() => {
            Ok(endpoint.trim_end_matches('/').to_owned())
        }
        _ => Err(at.error(format!(
            "\"{endpoint}\" must be a URL, for example http://localstack:4566"
        ))),
    }
}

/// Rejects an access key that is only half set, which would otherwise fail at the first call.
fn check_credentials(
    raw: Option<RawCredentials>,
    at: &KeyPath,
) -> Result<Option<SqsCredentials>, ConfigError> {
    const ID: &str = "accessKeyIdSecretRef";
    const SECRET: &str = "secretAccessKeySecretRef";
    let Some(raw) = raw else { return Ok(None) };
    let id = at.secret(ID, raw.access_key_id_secret_ref)?;
    let secret = at.secret(SECRET, raw.secret_access_key_secret_ref)?;
    match (id, secret) {
        (Some(access_key_id), Some(secret_access_key)) => Ok(Some(SqsCredentials {
            access_key_id,
            secret_access_key,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(at
            .key(SECRET)
            .error(format!("must be set together with {ID}"))),
        (None, Some(_)) => Err(at
            .key(ID)
            .error(format!("must be set together with {SECRET}"))),
    }
}

fn check_keda(raw: RawKeda, at: &KeyPath) -> Result<SqsKeda, ConfigError> {
    let role_arn = non_empty(raw.role_arn);
    if role_arn.is_some() && raw.identity_owner == Some(IdentityOwner::Workload) {
        return Err(at
            .key("roleArn")
            .error("KEDA rejects it together with identityOwner workload; remove one"));
    }
    Ok(SqsKeda {
        identity_owner: raw.identity_owner,
        role_arn,
    })
}

/// An account id is easily written without quotes in a chart's values, where it loses its leading zeros.
fn account_id<'de, D: Deserializer<'de>>(json: D) -> Result<Option<String>, D::Error> {
    struct Account;
    impl Visitor<'_> for Account {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the 12 digits of an AWS account")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            Ok(Some(format!("{number:012}")))
        }
    }
    json.deserialize_any(Account)
}

#[cfg(test)]
mod tests;
