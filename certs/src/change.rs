//! Carries out a step: computes the next content of the Secret.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::bundle::Bundle;
use crate::certificate::{Certificate, bundle_of};
use crate::data::{AUTHORITIES, AUTHORITY_KEY, Data, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::decide::{MOST_AUTHORITIES, Step, kept};
use crate::mint::{Authority, Error, Settings};

/// The next content of the Secret.
#[derive(Clone, Debug)]
pub struct Change {
    /// All its data.
    pub data: Data,
    /// Value of the annotation [`asya_shared::names::annotation::AUTHORITY_SINCE`]; `None` removes it.
    pub since: Option<Timestamp>,
}

/// Returns what the Secret should hold after this step, or `None` if the step writes nothing. `data` is what `bundle`
/// was parsed from. `applied` are the CAs that clients already trust; they stay trusted while their leaves may still be
/// served.
///
/// # Errors
/// When a certificate cannot be created.
pub fn change(
    step: &Step,
    data: &Data,
    bundle: &Bundle,
    applied: &[Certificate],
    settings: &Settings,
    now: Timestamp,
) -> Result<Option<Change>, Error> {
    let mut change = Change {
        data: data.clone(),
        since: bundle.since,
    };
    match step {
        Step::Keep | Step::Await => return Ok(None),
        Step::Mint(_) => {
            let new = Authority::new(settings, now)?;
            let before = bundle.authorities.iter().chain(applied);
            change.begin(&new, before, settings, now)?;
        }
        Step::Renew(_) => match &bundle.signer {
            Ok(signer) => change.issue(signer, settings, now)?,
            Err(_) => return Ok(None),
        },
        Step::Prepare(_) => {
            let next = Authority::new(settings, now)?;
            change.data.set(NEXT, &next.certificate.pem());
            change.data.set(NEXT_KEY, &next.key_pem());
        }
        Step::Widen => {
            let next = bundle.next.iter().flatten().map(|next| &next.certificate);
            change.trust(bundle.authorities.iter().chain(next));
        }
        Step::Switch => match &bundle.next {
            Some(Ok(next)) => change.begin(next, &bundle.authorities, settings, now)?,
            _ => return Ok(None),
        },
        Step::Retire => {
            let kept = kept(bundle, settings, now);
            if kept.len() <= 1 {
                change.since = None;
            }
            change.trust(kept);
            change.forget_next();
        }
    }
    Ok(Some(change))
}

impl Change {
    /// Makes `new` the signer; the newest of the CAs `before` it stay trusted.
    fn begin<'a>(
        &mut self,
        new: &Authority,
        before: impl IntoIterator<Item = &'a Certificate>,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut trusted: Vec<&Certificate> = Vec::new();
        for it in before {
            let is_good = it.is_authority && now < it.not_after && *it != new.certificate;
            if is_good && !trusted.contains(&it) {
                trusted.push(it);
            }
        }
        trusted.sort_by_key(|it| Reverse(it.not_before));
        trusted.truncate(MOST_AUTHORITIES - 1);
        trusted.reverse();
        self.trust(trusted.into_iter().chain([&new.certificate]));
        self.data.set(AUTHORITY_KEY, &new.key_pem());
        self.forget_next();
        self.since = Some(now);
        self.issue(new, settings, now)
    }

    fn issue(&mut self, by: &Authority, settings: &Settings, now: Timestamp) -> Result<(), Error> {
        let leaf = by.issue(settings, now)?;
        self.data.set(LEAF, &leaf.certificate.pem());
        self.data.set(LEAF_KEY, &leaf.key);
        Ok(())
    }

    fn trust<'a>(&mut self, authorities: impl IntoIterator<Item = &'a Certificate>) {
        self.data.set(AUTHORITIES, &bundle_of(authorities));
    }

    fn forget_next(&mut self) {
        self.data.remove(NEXT);
        self.data.remove(NEXT_KEY);
    }
}
