//! What failures of a watch mean.

use kube::runtime::watcher::Error;

/// Whether an event could not be decoded: it is lost, and everything must be listed again. kube takes a line that it
/// cannot decode for a `Status` without code and text.
#[must_use]
pub fn is_undecodable(error: &Error) -> bool {
    match error {
        Error::WatchError(status) | Error::WatchFailed(kube::Error::Api(status)) => {
            status.code == 0
        }
        Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        _ => false,
    }
}

/// Whether a watch was cut, as happens now and then; only what lasts is worth a look.
#[must_use]
pub fn was_cut(error: &Error) -> bool {
    matches!(error, Error::WatchFailed(_) | Error::WatchError(_))
}
