//! What SQS' errors mean.

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

use crate::broker::Refusal;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt makes no sense now.
    Refused(Refusal),
    /// Throttling, a server's error, no connection, or no credentials: tried again.
    Transient(String),
}

pub(super) fn classify<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Failure {
    let SdkError::ServiceError(answer) = error else {
        return Failure::Transient(text(error));
    };
    let status = answer.raw().status().as_u16();
    let (code, message) = (
        answer.err().code().unwrap_or_default(),
        answer.err().message().unwrap_or_default(),
    );
    match refusal(code, message) {
        Some(refusal) => Failure::Refused(refusal),
        None if status == 403 && !is_about_credentials(code) => {
            Failure::Refused(Refusal::Forbidden(code.to_owned()))
        }
        None => Failure::Transient(text(error)),
    }
}

/// What an error code means for a message; `None`: nothing that lasts.
pub(super) fn refusal(code: &str, message: &str) -> Option<Refusal> {
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
        "InvalidMessageContents" | "UnsupportedOperation" | "KmsAccessDenied" => {
            Some(Refusal::Forbidden(code.to_owned()))
        }
        _ => None,
    }
}

/// They expire and are rotated.
fn is_about_credentials(code: &str) -> bool {
    [
        "ExpiredToken",
        "InvalidClientTokenId",
        "UnrecognizedClient",
        "SignatureDoesNotMatch",
        "RequestExpired",
    ]
    .iter()
    .any(|known| code.contains(known))
}

/// An error's own words, without what was asked for.
pub(super) fn text<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    match error {
        SdkError::ServiceError(answer) => {
            let code = answer.err().code().unwrap_or("no code");
            format!("{} {code}", answer.raw().status().as_u16())
        }
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            "no connection in time".to_owned()
        }
        SdkError::DispatchFailure(failure) if failure.is_io() => "no connection".to_owned(),
        SdkError::DispatchFailure(_) => "no connection, or no credentials".to_owned(),
        SdkError::ResponseError(_) => "an answer that is not SQS'".to_owned(),
        _ => "the request could not be made".to_owned(),
    }
}
