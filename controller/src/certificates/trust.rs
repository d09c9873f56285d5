//! Connects the task that decides which CAs to trust with the one that writes the webhook configurations (CERT-4,
//! CERT-7): one requests the bundle that every `caBundle` must hold, the other reports the current `caBundle`s.

use std::sync::Arc;
use std::time::Duration;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::certificate::Certificate;
use asya_shared::admission::OwnerRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shared by both tasks: clones refer to the same state.
#[derive(Clone, Debug, Default)]
pub struct SharedTrust {
    desired: Arc<watch::Sender<Option<CaBundle>>>,
    /// When `desired` last changed; `None` before the first time.
    desired_since: Arc<Mutex<Option<Instant>>>,
    observed: Arc<watch::Sender<Option<ObservedTrust>>>,
    /// The owner of the configurations and of the Secret; `None` until it is known.
    owner_role: Arc<watch::Sender<Option<OwnerRoleState>>>,
}

/// Whether the owner `ClusterRole` exists (CFG-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerRoleState {
    Present(OwnerRole),
    /// Without the owner `ClusterRole`, nothing would garbage-collect what is created now.
    Missing,
}

/// The CAs that the existing webhook configurations trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTrust {
    /// In every `caBundle`; `None` if there is no `caBundle` at all.
    everywhere: Option<Vec<Certificate>>,
    /// In at least one `caBundle`.
    anywhere: Vec<Certificate>,
    /// When the configurations were first observed in this state.
    since: Instant,
}

impl OwnerRoleState {
    /// The owner `ClusterRole` as an owner reference.
    pub(super) fn owner(&self) -> Option<OwnerReference> {
        let Self::Present(owner_role) = self else {
            return None;
        };
        Some(OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: owner_role.name.clone(),
            uid: owner_role.uid.clone(),
            ..OwnerReference::default()
        })
    }
}

impl ObservedTrust {
    /// The CAs in these `caBundle`s.
    fn from_bundles<'a>(bundles: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut everywhere = None::<Vec<Certificate>>;
        let mut anywhere = Vec::new();
        for bundle in bundles {
            let bundle = CaBundle::read(bundle);
            let cas = bundle.certificates();
            match &mut everywhere {
                None => everywhere = Some(cas.to_vec()),
                Some(everywhere) => everywhere.retain(|ca| cas.contains(ca)),
            }
            for ca in cas {
                if !anywhere.contains(ca) {
                    anywhere.push(ca.clone());
                }
            }
        }
        Self {
            everywhere,
            anywhere,
            since: Instant::now(),
        }
    }

    fn has_same_cas(&self, other: &Self) -> bool {
        self.everywhere == other.everywhere && self.anywhere == other.anywhere
    }
}

/// For the task that writes the webhook configurations.
impl SharedTrust {
    /// The bundle that every `caBundle` must hold; `None` while unknown, when nothing must be applied.
    #[must_use]
    pub fn desired(&self) -> watch::Receiver<Option<CaBundle>> {
        self.desired.subscribe()
    }

    /// Sets the owner of everything that is created for the webhook.
    pub fn set_owner_role(&self, owner_role: Option<OwnerRole>) {
        let state = owner_role.map_or(OwnerRoleState::Missing, OwnerRoleState::Present);
        self.owner_role.send_if_modified(|previous| {
            let is_new = previous.as_ref() != Some(&state);
            if is_new {
                *previous = Some(state);
            }
            is_new
        });
    }

    /// Reports the current `caBundle`s of all our configurations, at the start and after each observed change; empty if
    /// there are none.
    pub fn report_bundles<'a>(&self, bundles: impl IntoIterator<Item = &'a [u8]>) {
        let observed = ObservedTrust::from_bundles(bundles);
        self.observed.send_if_modified(|previous| {
            let is_new = !previous
                .as_ref()
                .is_some_and(|it| it.has_same_cas(&observed));
            if is_new {
                *previous = Some(observed);
            }
            is_new
        });
    }
}

/// For the task that manages the certificates.
impl SharedTrust {
    /// Requires every `caBundle` to hold this bundle.
    pub(crate) fn set_desired(&self, bundle: CaBundle) {
        self.desired.send_if_modified(|previous| {
            let is_new = previous.as_ref() != Some(&bundle);
            if is_new {
                *previous = Some(bundle);
                *self.desired_since.lock() = Some(Instant::now());
            }
            is_new
        });
    }

    /// The owner of the Secret; `None` until it is reported.
    pub(super) fn owner_role(&self) -> watch::Receiver<Option<OwnerRoleState>> {
        self.owner_role.subscribe()
    }

    /// Notifies of changes in what the configurations trust.
    pub(super) fn subscribe_observed(&self) -> watch::Receiver<Option<ObservedTrust>> {
        self.observed.subscribe()
    }

    /// Whether it is known what the configurations trust.
    pub(super) fn is_known(&self) -> bool {
        self.observed.borrow().is_some()
    }

    /// How long every `caBundle` has held all of these; `None` if one does not, or this is unknown. Counted from the
    /// request of the bundle at the earliest, because a configuration may be created at any time.
    pub(super) fn trusted_for(&self, cas: &[Certificate]) -> Option<Duration> {
        let observed = self.observed.borrow();
        let observed = observed.as_ref()?;
        let everywhere = observed.everywhere.as_ref();
        let trusted = everywhere.is_none_or(|all| cas.iter().all(|it| all.contains(it)));
        let since = self
            .desired_since
            .lock()
            .map_or(observed.since, |since| since.max(observed.since));
        trusted.then(|| since.elapsed())
    }

    /// Whether no configuration has a `caBundle`, as far as is known.
    pub(super) fn has_no_bundles(&self) -> bool {
        let observed = self.observed.borrow();
        observed.as_ref().is_none_or(|it| it.everywhere.is_none())
    }

    /// The CAs in at least one `caBundle`.
    pub(super) fn trusted_anywhere(&self) -> Vec<Certificate> {
        let observed = self.observed.borrow();
        observed
            .as_ref()
            .map(|it| it.anywhere.clone())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_certs::certificate::Certificate;
    use asya_certs::issuer::{Ca, Settings};
    use jiff::Timestamp;
    use tokio::time::advance;

    use super::SharedTrust;

    /// CERT-4
    #[tokio::test(start_paused = true)]
    async fn trust_requires_every_configuration_and_counts_from_the_last_change() {
        let new_ca = || Ca::new(&Settings::with_defaults(Vec::new()), Timestamp::now());
        let [a, b, c] = [(); 3].map(|()| new_ca().unwrap().certificate);
        let text = |certificates: &[&Certificate]| {
            certificates
                .iter()
                .map(|certificate| certificate.pem())
                .collect::<String>()
        };
        let one = text(&[&a]);
        let both = text(&[&b, &a]);
        let second = Duration::from_secs(1);
        let trust = SharedTrust::default();
        let trusted_for = |trust: &SharedTrust| {
            [[&a], [&b], [&c]].map(|cas| trust.trusted_for(&cas.map(Clone::clone)))
        };
        assert_eq!(trusted_for(&trust), [None; 3]);
        assert!(!trust.is_known());

        trust.report_bundles([]);
        advance(second).await;
        assert!(trust.is_known());
        assert_eq!(
            trusted_for(&trust),
            [Some(second); 3],
            "no configuration has to trust it"
        );

        trust.report_bundles([one.as_bytes(), both.as_bytes()]);
        advance(second).await;
        assert_eq!(trusted_for(&trust), [Some(second), None, None]);
        assert_eq!(trust.trusted_anywhere(), [a.clone(), b.clone()]);

        // The same content, reported differently.
        trust.report_bundles([one.as_bytes(), both.as_bytes(), one.as_bytes()]);
        advance(second).await;
        assert_eq!(trusted_for(&trust), [Some(2 * second), None, None]);

        trust.report_bundles([both.as_bytes(), both.as_bytes()]);
        assert_eq!(
            trusted_for(&trust),
            [Some(Duration::ZERO), Some(Duration::ZERO), None]
        );
        advance(second).await;
        trust.set_desired([a.clone(), b.clone()].into_iter().collect());
        advance(second).await;
        assert_eq!(trusted_for(&trust), [Some(second), Some(second), None]);
        trust.set_desired([a.clone(), b.clone()].into_iter().collect());
        assert_eq!(
            trusted_for(&trust),
            [Some(second), Some(second), None],
            "requested before"
        );
        trust.report_bundles([both.as_bytes(), &b""[..]]);
        assert_eq!(
            trusted_for(&trust),
            [None; 3],
            "an empty caBundle trusts nothing"
        );
    }
}
