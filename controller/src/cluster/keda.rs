//! Whether KEDA is installed, according to its CRDs rather than to discovery.

use std::sync::Arc;

use tokio::sync::watch;

use super::store::Store;
use crate::record::CrdRecord;

/// The CRDs that scaling needs, each with a field selector that matches no other.
pub const CRDS: [(&str, &str); 2] = [
    (
        "scaledobjects.keda.sh",
        "metadata.name=scaledobjects.keda.sh",
    ),
    (
        "triggerauthentications.keda.sh",
        "metadata.name=triggerauthentications.keda.sh",
    ),
];

/// KEDA's CRDs, and whether they are served.
pub struct Keda {
    /// The watched CRDs, in the order of [`CRDS`].
    pub crds: [Arc<Store<CrdRecord>>; 2],
    installed: watch::Sender<bool>,
}

impl Default for Keda {
    fn default() -> Self {
        Self {
            crds: Default::default(),
            installed: watch::Sender::new(false),
        }
    }
}

impl Keda {
    /// Whether the API server serves KEDA's kinds.
    pub fn is_installed(&self) -> bool {
        *self.installed.borrow()
    }

    /// Notified when KEDA is installed or removed.
    pub fn installed(&self) -> watch::Receiver<bool> {
        self.installed.subscribe()
    }

    /// Re-evaluates the CRDs. Returns whether KEDA was installed or removed.
    pub fn refresh(&self) -> bool {
        let installed = self.crds.iter().all(|crd| {
            let mut established = false;
            crd.each(|record| established = record.established);
            established
        });
        let previous = self.installed.send_replace(installed);
        previous != installed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CRDS, Keda};
    use crate::record::Projected;

    /// KEDA-9
    #[test]
    fn keda_is_installed_once_both_kinds_are_served() {
        let keda = Keda::default();
        let apply = |index: usize, version: u32, established: &str| {
            let crd = json!({
                "metadata": {"name": CRDS[index].0, "uid": CRDS[index].0, "resourceVersion": version.to_string()},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            });
            let projected: Projected<_> = serde_json::from_str(&crd.to_string()).unwrap();
            keda.crds[index].apply(&None, &projected);
            (keda.refresh(), keda.is_installed(), projected)
        };
        assert!(!keda.is_installed());
        assert!(!apply(0, 1, "True").1, "only one of two CRDs");
        assert!(!apply(1, 1, "False").1, "not served yet");
        let (changed, installed, projected) = apply(1, 2, "True");
        assert_eq!((changed, installed), (true, true));
        assert!(!apply(0, 2, "True").0, "unchanged");
        keda.crds[1].delete(&None, &projected);
        assert_eq!((keda.refresh(), keda.is_installed()), (true, false));
    }
}
