//! What events and failures of a watch mean.

use kube::runtime::watcher::{Error, Event};

/// Whether a watch works that tells this. kube tells of the beginning of a list before it asks for it, and the next page
/// of one that began may fail.
#[must_use]
pub fn works<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init | Event::InitApply(_))
}

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
