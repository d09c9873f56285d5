//! What a controller does.

use std::future::Future;
use std::time::Duration;

use super::{Hand, Kind};
use crate::error::Result;

/// A simulated controller's behavior in its namespace.
pub trait Rule: Send + Sync + 'static {
    /// The field manager of its writes.
    fn manager(&self) -> &'static str;

    /// The kinds whose events trigger a reconcile.
    fn watches(&self) -> Vec<Kind>;

    /// How often it reconciles without an event.
    fn tick(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Reconciles everything that it owns once, and writes what differs from the desired state.
    fn reconcile(&self, hand: &Hand) -> impl Future<Output = Result<()>> + Send;
}
