//! Connects the task that decides which CAs to trust with the one that writes the webhook configurations (CERT-4,
//! CERT-7): the bundle that every `caBundle` must hold goes one way, what was read back the other.

use std::sync::Arc;
use std::time::Duration;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::certificate::Certificate;
use asya_shared::admission::Anchor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

/// Both directions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    wanted: Arc<watch::Sender<Option<CaBundle>>>,
    /// Since when `wanted` has its value; `None` before that.
    wanted_since: Arc<Mutex<Option<Instant>>>,
    found: Arc<watch::Sender<Option<Found>>>,
    /// The owner of the configurations and of the Secret; `None` until it is known.
    anchor: Arc<watch::Sender<Option<Anchored>>>,
}

/// What is known of the anchor (CFG-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchored {
    /// It exists.
    To(Anchor),
    /// It does not exist: nothing would garbage-collect what is created now.
    Nowhere,
}

/// What the live webhook configurations trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Held by every `caBundle`; `None` if there is no `caBundle` at all.
    everywhere: Option<Vec<Certificate>>,
    /// Held by at least one.
    anywhere: Vec<Certificate>,
    since: Instant,
}

impl Anchored {
    /// The anchor as an owner reference.
    pub(super) fn owner(&self) -> Option<OwnerReference> {
        let Self::To(anchor) = self else {
            return None;
        };
        Some(OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: anchor.name.clone(),
            uid: anchor.uid.clone(),
            ..OwnerReference::default()
        })
    }
}

impl Found {
    /// The authorities in these `caBundle`s.
    fn of<'a>(bundles: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut everywhere, mut anywhere) = (None::<Vec<Certificate>>, Vec::new());
        for bundle in bundles {
            let here = CaBundle::read(bundle);
            let here = here.authorities();
            match &mut everywhere {
                None => everywhere = Some(here.to_vec()),
                Some(everywhere) => everywhere.retain(|it| here.contains(it)),
            }
            for it in here {
                if !anywhere.contains(it) {
                    anywhere.push(it.clone());
                }
            }
        }
        Self {
            everywhere,
            anywhere,
            since: Instant::now(),
        }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.everywhere == other.everywhere && self.anywhere == other.anywhere
    }
}

/// For the task that writes the webhook configurations.
impl Trust {
    /// The bundle that every `caBundle` must hold; `None` until it is known, and then nothing must be applied.
    #[must_use]
    pub fn wanted(&self) -> watch::Receiver<Option<CaBundle>> {
        self.wanted.subscribe()
    }

    /// Sets the owner of everything that is created for the webhook.
    pub fn goes_with(&self, anchor: Option<Anchor>) {
        let anchored = anchor.map_or(Anchored::Nowhere, Anchored::To);
        self.anchor.send_if_modified(|before| {
            let is_new = before.as_ref() != Some(&anchored);
            if is_new {
                *before = Some(anchored);
            }
            is_new
        });
    }

    /// Reports the live `caBundle`s of all our configurations: at the start, and after each change that was read back.
    /// Empty when there is none.
    pub fn found<'a>(&self, bundles: impl IntoIterator<Item = &'a [u8]>) {
        let found = Found::of(bundles);
        self.found.send_if_modified(|before| {
            let is_new = !before.as_ref().is_some_and(|it| it.says_the_same(&found));
            if is_new {
                *before = Some(found);
            }
            is_new
        });
    }
}

/// For the task that keeps the certificates.
impl Trust {
    /// Requires every `caBundle` to hold this bundle.
    pub(crate) fn want(&self, bundle: CaBundle) {
        self.wanted.send_if_modified(|before| {
            let is_new = before.as_ref() != Some(&bundle);
            if is_new {
                *before = Some(bundle);
                *lock(&self.wanted_since) = Some(Instant::now());
            }
            is_new
        });
    }

    /// The owner of the Secret; `None` until it is reported.
    pub(super) fn anchored(&self) -> watch::Receiver<Option<Anchored>> {
        self.anchor.subscribe()
    }

    /// Notifies of changes in what the configurations trust.
    pub(super) fn changes(&self) -> watch::Receiver<Option<Found>> {
        self.found.subscribe()
    }

    /// Whether it is known what the configurations trust.
    pub(super) fn is_known(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// How long every `caBundle` has held all of these; `None` if one does not, or this is unknown. Not longer than the
    /// bundle has been wanted, because a configuration may be created at any time.
    pub(super) fn trusted_for(&self, authorities: &[Certificate]) -> Option<Duration> {
        let found = self.found.borrow();
        let found = found.as_ref()?;
        let everywhere = found.everywhere.as_ref();
        let trusted = everywhere.is_none_or(|all| authorities.iter().all(|it| all.contains(it)));
        let since = lock(&self.wanted_since).map_or(found.since, |since| since.max(found.since));
        trusted.then(|| since.elapsed())
    }

    /// Whether no configuration has a `caBundle`, as far as is known.
    pub(super) fn is_empty(&self) -> bool {
        let found = self.found.borrow();
        found.as_ref().is_none_or(|it| it.everywhere.is_none())
    }

    /// The authorities in at least one `caBundle`.
    pub(super) fn present(&self) -> Vec<Certificate> {
        let found = self.found.borrow();
        found
            .as_ref()
            .map(|it| it.anywhere.clone())
            .unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_certs::certificate::Certificate;
    use asya_certs::mint::{Authority, Settings};
    use jiff::Timestamp;
    use tokio::time::advance;

    use super::Trust;

    /// CERT-4
    #[tokio::test(start_paused = true)]
    async fn trust_requires_every_configuration_and_lasts_since_the_last_change() {
        let make = || Authority::new(&Settings::of(Vec::new()), Timestamp::now());
        let [a, b, c] = [(); 3].map(|()| make().unwrap().certificate);
        let text = |these: &[&Certificate]| these.iter().map(|it| it.pem()).collect::<String>();
        let (one, both) = (text(&[&a]), text(&[&b, &a]));
        let second = Duration::from_secs(1);
        let trust = Trust::default();
        let told =
            |trust: &Trust| [[&a], [&b], [&c]].map(|it| trust.trusted_for(&it.map(Clone::clone)));
        assert_eq!(told(&trust), [None; 3]);
        assert!(!trust.is_known());

        trust.found([]);
        advance(second).await;
        assert!(trust.is_known());
        assert_eq!(
            told(&trust),
            [Some(second); 3],
            "there is nobody to trust it"
        );

        trust.found([one.as_bytes(), both.as_bytes()]);
        advance(second).await;
        assert_eq!(told(&trust), [Some(second), None, None]);
        assert_eq!(trust.present(), [a.clone(), b.clone()]);

        // The same content, reported differently.
        trust.found([one.as_bytes(), both.as_bytes(), one.as_bytes()]);
        advance(second).await;
        assert_eq!(told(&trust), [Some(2 * second), None, None]);

        trust.found([both.as_bytes(), both.as_bytes()]);
        assert_eq!(
            told(&trust),
            [Some(Duration::ZERO), Some(Duration::ZERO), None]
        );
        advance(second).await;
        trust.want([a.clone(), b.clone()].into_iter().collect());
        advance(second).await;
        assert_eq!(told(&trust), [Some(second), Some(second), None]);
        trust.want([a.clone(), b.clone()].into_iter().collect());
        assert_eq!(
            told(&trust),
            [Some(second), Some(second), None],
            "wanted before"
        );
        trust.found([both.as_bytes(), &b""[..]]);
        assert_eq!(told(&trust), [None; 3], "an empty one trusts nothing");
    }
}
