//! Meaning of SQS responses (SQS-8).

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use tracing::warn;

use crate::broker::BrokerError;
use crate::broker::error::retry_after;
use crate::broker::limiter::Labelled;

pub type SdkError<E> = aws_sdk_sqs::error::SdkError<E, HttpResponse>;

/// Bounds shared by the errors of all operations.
pub trait OperationError: ProvideErrorMetadata + Error + Send + Sync + 'static {}

impl<E: ProvideErrorMetadata + Error + Send + Sync + 'static> OperationError for E {}

/// A response that a reconcile can continue with.
#[derive(Debug, PartialEq, Eq)]
pub enum SqsResponse<T> {
    Done(T),
    /// The queue does not exist.
    NotFound,
    /// A queue of that name exists with other attributes.
    NameExists,
}

impl<T> SqsResponse<T> {
    /// The result, if the queue exists.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(output) => Some(output),
            Self::NotFound | Self::NameExists => None,
        }
    }
}

impl<T> Labelled for SqsResponse<T> {
    fn label(&self) -> String {
        let label = match self {
            Self::Done(_) => "ok",
            Self::NotFound => "QueueDoesNotExist",
            Self::NameExists => "QueueNameExists",
        };
        label.to_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    NotFound,
    NameExists,
    DeletedRecently,
    AuthFailed,
    Throttled,
    Invalid,
    /// Unknown error code.
    Unknown,
}

/// Interprets the result of a call about `queue`. `address` names SQS in messages.
pub fn interpret<T, E: OperationError>(
    address: &str,
    operation: &str,
    queue: &str,
    result: Result<T, SdkError<E>>,
) -> Result<SqsResponse<T>, BrokerError> {
    let error = match result {
        Ok(output) => return Ok(SqsResponse::Done(output)),
        Err(error) => error,
    };
    let service_error = match &error {
        SdkError::ServiceError(service_error) => service_error,
        other => return Err(failure(address, other)),
    };
    let code = service_error.err().code().unwrap_or_default();
    let text = service_error.err().message().unwrap_or_default();
    let status = service_error.raw().status().as_u16();
    Err(match classify(code, status) {
        ErrorClass::NotFound => return Ok(SqsResponse::NotFound),
        ErrorClass::NameExists => return Ok(SqsResponse::NameExists),
        ErrorClass::DeletedRecently => BrokerError::DeletedRecently(format!(
            "queue {queue} was deleted less than 60 seconds ago; until then SQS rejects the name"
        )),
        ErrorClass::AuthFailed => BrokerError::AuthFailed(format!(
            "SQS at {address} denies access ({}): the credentials must be valid and allow sqs:CreateQueue, \
             GetQueueUrl, GetQueueAttributes, SetQueueAttributes, ListQueueTags, TagQueue and DeleteQueue on queue \
             {queue}",
            or_status(code, status)
        )),
        ErrorClass::Throttled => {
            let wait = service_error.raw().headers().get("retry-after");
            let text = format!(
                "SQS at {address} is overloaded or failing ({})",
                or_status(code, status)
            );
            BrokerError::throttled(text, wait.and_then(retry_after))
        }
        // Includes transient errors: a dead letter queue that was just created is not a valid target yet, and no event
        // announces when it is.
        ErrorClass::Invalid => BrokerError::PrerequisiteMissing(format!(
            "SQS rejects queue {queue} ({}): {text}",
            or_status(code, status)
        )),
        ErrorClass::Unknown => {
            warn!(
                operation,
                queue, status, code, text, "SQS returned an unknown error"
            );
            BrokerError::Throttled(format!(
                "SQS at {address} returned an unknown error for queue {queue} ({})",
                or_status(code, status)
            ))
        }
    })
}

/// Maps an error without a response, or with one that the SDK cannot parse.
fn failure<E: OperationError>(address: &str, error: &SdkError<E>) -> BrokerError {
    let unreachable = |what: &str| BrokerError::Unreachable(format!("SQS at {address} {what}"));
    if let Some(error) = credentials(error) {
        return match error {
            CredentialsError::CredentialsNotLoaded(_) => {
                BrokerError::CredentialsMissing(
                    "no AWS credentials: set config.credentials of the transport, or give the operator's ServiceAccount a role"
                        .to_owned(),
                )
            }
            CredentialsError::ProviderTimedOut(_) => {
                unreachable("cannot be called: AWS credentials did not load in time")
            }
            _ => BrokerError::AuthFailed(
                "AWS credentials cannot be loaded: set config.credentials of the transport, or check the role of the \
                 operator's ServiceAccount".to_owned(),
            ),
        };
    }
    match error {
        SdkError::TimeoutError(_) => unreachable("did not respond in time"),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            unreachable("did not respond in time")
        }
        SdkError::DispatchFailure(failure) if failure.is_user() => BrokerError::ConfigInvalid(
            format!("SQS at {address} cannot be called with this configuration"),
        ),
        SdkError::ConstructionFailure(_) => BrokerError::ConfigInvalid(format!(
            "SQS at {address} cannot be called with this configuration"
        )),
        SdkError::ResponseError(_) => {
            BrokerError::Throttled(format!("the server at {address} is not SQS"))
        }
        _ => unreachable("cannot be reached, or closed the connection"),
    }
}

fn credentials<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e CredentialsError> {
    let cause = error.downcast_ref::<CredentialsError>();
    cause.or_else(|| credentials(error.source()?))
}

fn or_status(code: &str, status: u16) -> String {
    if code.is_empty() {
        format!("HTTP {status}")
    } else {
        without_prefix(code).to_owned()
    }
}

/// Strips the prefix of a code such as `com.amazonaws.sqs#QueueDoesNotExist` or
/// `AWS.SimpleQueueService.NonExistentQueue`.
fn without_prefix(code: &str) -> &str {
    let code = code.rsplit('#').next().unwrap_or(code);
    code.rsplit('.').next().unwrap_or(code)
}

/// Classifies by code first, because SQS also throttles with 403 and 400.
fn classify(code: &str, status: u16) -> ErrorClass {
    match without_prefix(code) {
        "QueueDoesNotExist" | "NonExistentQueue" => ErrorClass::NotFound,
        "QueueNameExists" | "QueueAlreadyExists" => ErrorClass::NameExists,
        "QueueDeletedRecently" => ErrorClass::DeletedRecently,
        "RequestThrottled"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "TooManyRequestsException"
        | "RequestLimitExceeded"
        | "OverLimit"
        | "KmsThrottled"
        | "SlowDown"
        | "ServiceUnavailable"
        | "InternalError"
        | "InternalFailure"
        | "PurgeQueueInProgress" => ErrorClass::Throttled,
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthFailure"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignatureException"
        | "KmsAccessDenied"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "RequestExpired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => ErrorClass::AuthFailed,
        "InvalidAddress"
        | "InvalidAttributeName"
        | "InvalidAttributeValue"
        | "InvalidParameterCombination"
        | "InvalidParameterValue"
        | "InvalidTagKey"
        | "InvalidTagValue"
        | "MissingParameter"
        | "TooManyTags"
        | "UnsupportedOperation"
        | "ValidationError"
        | "ValidationException" => ErrorClass::Invalid,
        _ => match status {
            401 | 403 => ErrorClass::AuthFailed,
            429 | 500.. => ErrorClass::Throttled,
            _ => ErrorClass::Unknown,
        },
    }
}

#[cfg(test)]
mod tests;
