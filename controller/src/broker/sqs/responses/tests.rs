use super::*;

/// SQS-8
#[test]
fn sqs_error_codes_are_classified() {
    use ErrorClass::{
        AuthFailed, DeletedRecently, Invalid, NameExists, NotFound, Throttled, Unknown,
    };
    for (code, status, expected) in [
        ("com.amazonaws.sqs#QueueDoesNotExist", 400, NotFound),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, NotFound),
        ("QueueNameExists", 400, NameExists),
        ("QueueAlreadyExists", 400, NameExists),
        (
            "com.amazonaws.sqs#QueueDeletedRecently",
            400,
            DeletedRecently,
        ),
        (
            "AWS.SimpleQueueService.QueueDeletedRecently",
            400,
            DeletedRecently,
        ),
        ("AccessDenied", 403, AuthFailed),
        ("AccessDeniedException", 400, AuthFailed),
        ("InvalidClientTokenId", 403, AuthFailed),
        ("SignatureDoesNotMatch", 403, AuthFailed),
        ("ExpiredTokenException", 400, AuthFailed),
        (
            "com.amazon.coral.service#UnrecognizedClientException",
            400,
            AuthFailed,
        ),
        ("InvalidSecurity", 403, AuthFailed),
        ("", 403, AuthFailed),
        ("SomethingNew", 403, AuthFailed),
        ("RequestThrottled", 403, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("OverLimit", 403, Throttled),
        ("", 429, Throttled),
        ("InternalFailure", 500, Throttled),
        ("", 503, Throttled),
        ("InvalidAttributeValue", 400, Invalid),
        ("InvalidAttributeName", 400, Invalid),
        ("InvalidParameterValue", 400, Invalid),
        ("ValidationException", 400, Invalid),
        ("SomethingNew", 400, Unknown),
        ("", 404, Unknown),
    ] {
        assert_eq!(classify(code, status), expected, "{code:?} with {status}");
    }
}
