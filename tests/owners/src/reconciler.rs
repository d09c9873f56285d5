//! The reconcile logic of a simulated controller.

use std::future::Future;
use std::time::Duration;

use super::{Kind, RecordingClient};
use crate::error::Result;

/// The reconcile logic of a simulated controller, which writes by the rules of its system.
pub trait Reconciler: Send + Sync + 'static {
    /// The field manager of its writes.
    fn manager(&self) -> &'static str;

    /// The kinds whose events trigger a reconcile.
    fn watches(&self) -> Vec<Kind>;

    /// How often it reconciles without an event.
    fn tick(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Reconciles everything that it owns once, and writes what differs from the desired state.
    fn reconcile(&self, client: &RecordingClient) -> impl Future<Output = Result<()>> + Send;
}
