//! Classifies the events and errors of kube's watcher.

use kube::runtime::watcher::{Error, Event};

/// Whether an event shows that the watch works. kube emits `Init` before it requests the list, and after an `InitApply`
/// the next page may still fail.
#[must_use]
pub fn works<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init | Event::InitApply(_))
}

/// Whether an event could not be decoded: it is lost, so everything must be listed again. kube reports a line that it
/// cannot decode as a `Status` without code and message.
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

/// Whether a watch was interrupted, which happens routinely; only repeated failures deserve a warning.
#[must_use]
pub fn was_cut(error: &Error) -> bool {
    matches!(error, Error::WatchFailed(_) | Error::WatchError(_))
}
