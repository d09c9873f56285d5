//! Classification of SQS errors.

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

use crate::broker::Refusal;

const CONTENT_TOO_LARGE: u16 = 413;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Not worth a retry.
    #[error("{0}")]
    Refused(Refusal),
    /// Throttling, server errors, connection or credential failures: retryable.
    #[error("{0}")]
    Transient(String),
}

pub(super) fn classify<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Failure {
    let raw = error.raw_response();
    // A plain-text response, without an error code.
    if raw.is_some_and(|response| response.status().as_u16() == CONTENT_TOO_LARGE) {
        return Failure::Refused(Refusal::TooLarge);
    }
    let SdkError::ServiceError(response) = error else {
        return Failure::Transient(describe(error));
    };
    let status = response.raw().status().as_u16();
    let (code, message) = (
        response.err().code().unwrap_or_default(),
        response.err().message().unwrap_or_default(),
    );
    match refusal(code, message) {
        Some(refusal) => Failure::Refused(refusal),
        None if status == 403 && !is_credential_error(code) && !is_throttled(code) => {
            Failure::Refused(Refusal::Forbidden(code.to_owned()))
        }
        None => Failure::Transient(describe(error)),
    }
}

/// Maps an error code to a refusal; `None` for transient errors.
pub(super) fn refusal(code: &str, message: &str) -> Option<Refusal> {
    if is_key_unusable(code) {
        return Some(Refusal::Forbidden(code.to_owned()));
    }
    // Codes of the query protocol are prefixed, those of the JSON protocol are not.
    let code = code.rsplit(['.', '#']).next().unwrap_or(code);
    match code {
        "QueueDoesNotExist" | "NonExistentQueue" => Some(Refusal::NoQueue),
        "BatchRequestTooLong" => Some(Refusal::TooLarge),
        "InvalidParameterValue" | "InvalidParameterValueException"
            if message.contains("shorter than") =>
        {
            Some(Refusal::TooLarge)
        }
        "InvalidMessageContents" | "UnsupportedOperation" => {
            Some(Refusal::Forbidden(code.to_owned()))
        }
        _ => None,
    }
}

/// Whether an encrypted queue's key is unusable until someone changes it or its policy. The code is
/// `KMS.AccessDeniedException` in the query protocol and `KmsAccessDenied` in the JSON protocol, for example.
fn is_key_unusable(code: &str) -> bool {
    let name = code.rsplit('#').next().unwrap_or(code);
    (name.starts_with("KMS.") || name.starts_with("Kms")) && !is_throttled(name)
}

/// Checked separately, because SQS answers some of these with 403.
fn is_throttled(code: &str) -> bool {
    code.contains("Throttl")
}

/// Whether AWS rejected the credentials as expired.
pub(super) fn is_expired<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error
        .code()
        .is_some_and(|code| code.contains("ExpiredToken"))
}

/// Whether a retry would fail, too: SQS refuses the request itself, or a permission is missing.
pub(super) fn is_final<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let SdkError::ServiceError(response) = error else {
        return false;
    };
    let status = response.raw().status().as_u16();
    let code = response.err().code().unwrap_or_default();
    let is_refused = (400..500).contains(&status) && !matches!(status, 408 | 429);
    is_refused && !is_throttled(code) && !is_credential_error(code)
}

/// Whether SQS may have done what a request asks for although it failed: there is no answer, or it is from a server
/// that does not know.
pub(super) fn may_be_done<E>(error: &SdkError<E, HttpResponse>) -> bool {
    match error.raw_response() {
        Some(response) => matches!(response.status().as_u16(), ..400 | 500 | 502 | 504),
        None => !matches!(error, SdkError::ConstructionFailure(_)),
    }
}

/// Credential errors are transient, since credentials expire and are rotated.
fn is_credential_error(code: &str) -> bool {
    [
        "ExpiredToken",
        "InvalidClientTokenId",
        "UnrecognizedClient",
        "SignatureDoesNotMatch",
        // After a clock step; the SDK corrects the next request.
        "InvalidSignature",
        "RequestExpired",
    ]
    .iter()
    .any(|known| code.contains(known))
}

/// Describes an error without quoting the request.
pub(super) fn describe<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    match error {
        SdkError::ServiceError(response) => {
            let code = response.err().code().unwrap_or("no code");
            format!("{} {code}", response.raw().status().as_u16())
        }
        SdkError::TimeoutError(_) => "request timed out".to_owned(),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            "connection timed out".to_owned()
        }
        SdkError::DispatchFailure(failure) if failure.is_io() => "connection failed".to_owned(),
        SdkError::DispatchFailure(_) => "connection failed, or no credentials available".to_owned(),
        SdkError::ResponseError(_) => "invalid response".to_owned(),
        _ => "the request could not be constructed".to_owned(),
    }
}
