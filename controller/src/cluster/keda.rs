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
    /// Whether the API server serves KEDA's kinds. Those of a CRD that is being deleted no longer count: Kubernetes
    /// 1.33 and older still create objects of it by server-side apply, and wait until there are none (KEDA-9).
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
            let mut served = false;
            crd.each(|record| served = record.established && !record.metadata.deleting);
            served
        });
        let previous = self.installed.send_replace(installed);
        previous != installed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CRDS, Keda};
    use crate::cluster::watch_scope::WatchScope;
    use crate::record::{CrdRecord, Projected};

    /// KEDA-9
    #[test]
    fn keda_is_installed_while_both_kinds_are_served() {
        let keda = Keda::default();
        let crd = |index: usize, version: u32, established: &str| {
            json!({
                "metadata": {"name": CRDS[index].0, "uid": CRDS[index].0, "resourceVersion": version.to_string()},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
        };
        let projected = |crd: &Value| -> Projected<CrdRecord> {
            serde_json::from_str(&crd.to_string()).unwrap()
        };
        let apply_crd = |index: usize, crd: &Value| {
            keda.crds[index].apply(&WatchScope::Cluster, &projected(crd));
            (keda.refresh(), keda.is_installed())
        };
        let apply =
            |index, version, established| apply_crd(index, &crd(index, version, established));
        assert!(!keda.is_installed());
        assert!(!apply(0, 1, "True").1, "only one of two CRDs");
        assert!(!apply(1, 1, "False").1, "not served yet");
        assert_eq!(apply(1, 2, "True"), (true, true));
        assert!(!apply(0, 2, "True").0, "unchanged");
        let mut deleting = crd(1, 3, "True");
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(apply_crd(1, &deleting), (true, false), "is being deleted");
        assert_eq!(apply_crd(1, &crd(1, 4, "True")), (true, true));
        keda.crds[1].delete(&WatchScope::Cluster, &projected(&crd(1, 5, "True")));
        assert_eq!((keda.refresh(), keda.is_installed()), (true, false));
    }
}
