//! Applies a step: computes the next content of the Secret.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::certificate::{Certificate, to_pem_bundle};
use crate::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::decide::{MAX_TRUSTED_CAS, Step, needed_cas};
use crate::issuer::{Ca, Error, Settings};
use crate::parsed_secret::ParsedSecret;

/// The next content of the Secret.
#[derive(Clone, Debug)]
pub struct Change {
    /// All its data.
    pub data: Data,
    /// Value of the annotation [`asya_shared::names::annotation::AUTHORITY_SINCE`]; `None` removes it.
    pub since: Option<Timestamp>,
}

/// Returns the content of the Secret after this step, or `None` if the step writes nothing. `secret` was parsed from
/// `data`. `already_trusted` are the CAs that clients already trust; they stay trusted while their leaves may still be
/// served.
///
/// # Errors
/// If a certificate cannot be created.
pub fn apply_step(
    step: &Step,
    data: &Data,
    secret: &ParsedSecret,
    already_trusted: &[Certificate],
    settings: &Settings,
    now: Timestamp,
) -> Result<Option<Change>, Error> {
    let mut change = Change {
        data: data.clone(),
        since: secret.since,
    };
    match step {
        Step::Keep | Step::Await => return Ok(None),
        Step::Create(_) => {
            let new = Ca::new(settings, now)?;
            let previous = secret.cas.iter().chain(already_trusted);
            change.switch_ca(&new, previous, settings, now)?;
        }
        Step::Renew(_) => match &secret.current_ca {
            Ok(ca) => change.issue(ca, settings, now)?,
            Err(_) => return Ok(None),
        },
        Step::Prepare(_) => {
            let next = Ca::new(settings, now)?;
            change.data.set(NEXT_CA, &next.certificate.pem());
            change.data.set(NEXT_CA_KEY, &next.key_pem());
        }
        Step::TrustNext => {
            let next = secret.next.iter().flatten().map(|next| &next.certificate);
            change.trust(secret.cas.iter().chain(next));
        }
        Step::Switch => match &secret.next {
            Some(Ok(next)) => change.switch_ca(next, &secret.cas, settings, now)?,
            _ => return Ok(None),
        },
        Step::RemoveOldCas => {
            let needed = needed_cas(secret, settings, now);
            if needed.len() <= 1 {
                change.since = None;
            }
            change.trust(needed);
            change.forget_next();
        }
    }
    Ok(Some(change))
}

impl Change {
    /// Makes `new` the current CA; the newest of the `previous` CAs stay trusted.
    fn switch_ca<'a>(
        &mut self,
        new: &Ca,
        previous: impl IntoIterator<Item = &'a Certificate>,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut trusted: Vec<&Certificate> = Vec::new();
        for certificate in previous {
            let is_usable =
                certificate.is_ca && now < certificate.not_after && *certificate != new.certificate;
            if is_usable && !trusted.contains(&certificate) {
                trusted.push(certificate);
            }
        }
        trusted.sort_by_key(|certificate| Reverse(certificate.not_before));
        trusted.truncate(MAX_TRUSTED_CAS - 1);
        trusted.reverse();
        self.trust(trusted.into_iter().chain([&new.certificate]));
        self.data.set(CA_KEY, &new.key_pem());
        self.forget_next();
        self.since = Some(now);
        self.issue(new, settings, now)
    }

    fn issue(&mut self, issuer: &Ca, settings: &Settings, now: Timestamp) -> Result<(), Error> {
        let leaf = issuer.issue(settings, now)?;
        self.data.set(LEAF, &leaf.certificate.pem());
        self.data.set(LEAF_KEY, &leaf.key);
        Ok(())
    }

    fn trust<'a>(&mut self, cas: impl IntoIterator<Item = &'a Certificate>) {
        self.data.set(CA_BUNDLE, &to_pem_bundle(cas));
    }

    fn forget_next(&mut self) {
        self.data.remove(NEXT_CA);
        self.data.remove(NEXT_CA_KEY);
    }
}
