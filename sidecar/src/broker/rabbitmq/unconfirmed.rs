//! Bookkeeping of unconfirmed publications, without I/O (SC-23, SC-28, SC-30).

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::broker::Refusal;

/// The properties by which `basic.return` is matched to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) message_id: Option<String>,
}

/// A publication that awaits its confirm.
#[derive(Debug)]
struct Sent<T> {
    request: T,
    address: Address,
    at: Instant,
    returned: bool,
}

/// Publications to be sent, and those awaiting confirms.
#[derive(Debug)]
pub(super) struct Unconfirmed<T> {
    waiting: VecDeque<T>,
    sent: BTreeMap<u64, Sent<T>>,
    last: u64,
    /// When the broker last confirmed anything.
    last_confirm: Option<Instant>,
    /// How many publications to send one at a time, because one of them made the broker close the channel.
    resend_singly: usize,
}

impl<T> Default for Unconfirmed<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            last: 0,
            last_confirm: None,
            resend_singly: 0,
        }
    }
}

impl<T> Unconfirmed<T> {
    pub(super) fn push(&mut self, request: T) {
        self.waiting.push_back(request);
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// The next publication that may be sent now.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.resend_singly > 0 && !self.sent.is_empty() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Records a sent publication under the next delivery tag of the channel.
    pub(super) fn sent(&mut self, request: T, address: Address) {
        self.last += 1;
        self.sent.insert(
            self.last,
            Sent {
                request,
                address,
                at: Instant::now(),
                returned: false,
            },
        );
    }

    /// Skips a publication whose source delivery is lost.
    pub(super) fn skipped(&mut self) {
        self.resend_singly = self.resend_singly.saturating_sub(1);
    }

    /// Marks a publication as returned. `basic.return` precedes the confirm, and the broker processes publications in
    /// order, so it is the first match that has not been returned yet.
    pub(super) fn returned(&mut self, address: &Address) {
        let mut all = self.sent.values_mut();
        if let Some(sent) = all.find(|sent| sent.address == *address && !sent.returned) {
            sent.returned = true;
        }
    }

    /// Removes the confirmed publications and returns their results.
    pub(super) fn confirmed(
        &mut self,
        number: u64,
        multiple: bool,
        stored: bool,
    ) -> Vec<(T, Result<(), Refusal>)> {
        self.last_confirm = Some(Instant::now());
        let settled = if multiple {
            let rest = self.sent.split_off(&(number + 1));
            std::mem::replace(&mut self.sent, rest)
        } else {
            self.sent.remove_entry(&number).into_iter().collect()
        };
        self.resend_singly = self.resend_singly.saturating_sub(settled.len());
        let result = |sent: &Sent<T>| match (stored, sent.returned) {
            (_, true) => Err(Refusal::NoQueue),
            (true, false) => Ok(()),
            (false, false) => Err(Refusal::Nacked),
        };
        settled
            .into_values()
            .map(|sent| (result(&sent), sent))
            .map(|(result, sent)| (sent.request, result))
            .collect()
    }

    /// The destinations of the unconfirmed publications.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.sent.values().map(|sent| &sent.address)
    }

    /// Requeues all unconfirmed publications in order after the connection or channel is lost. Delivery tags restart on
    /// a new channel.
    pub(super) fn resend_all(&mut self) {
        self.last = 0;
        let sent = std::mem::take(&mut self.sent);
        for (_, sent) in sent.into_iter().rev() {
            self.waiting.push_front(sent.request);
        }
    }

    /// Called when the broker closed the channel because of a publication. Returns the culprit if only one was
    /// unconfirmed; otherwise all are sent again one at a time until it is identified.
    pub(super) fn find_rejected(&mut self) -> Option<T> {
        self.resend_singly = self.sent.len();
        self.resend_all();
        if self.resend_singly != 1 {
            return None;
        }
        self.resend_singly = 0;
        self.waiting.pop_front()
    }

    /// Since when the broker has owed a confirm without sending any. A broker that works through many publications is
    /// slow, not silent.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let (_, oldest) = self.sent.first_key_value()?;
        Some(
            self.last_confirm
                .map_or(oldest.at, |confirm| confirm.max(oldest.at)),
        )
    }

    /// Restarts the confirm timeouts, which do not run while the connection is blocked.
    pub(super) fn restart_clocks(&mut self) {
        let now = Instant::now();
        self.sent.values_mut().for_each(|sent| sent.at = now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::{Address, Unconfirmed};
    use crate::broker::Refusal;

    fn to(key: &str) -> Address {
        Address {
            exchange: String::new(),
            key: key.to_owned(),
            message_id: Some("1".to_owned()),
        }
    }

    fn with(keys: &[&'static str]) -> Unconfirmed<&'static str> {
        let mut all = Unconfirmed::default();
        for key in keys {
            all.push(*key);
        }
        send(&mut all);
        all
    }

    fn send(all: &mut Unconfirmed<&'static str>) -> usize {
        let mut count = 0;
        while let Some(request) = all.next() {
            all.sent(request, to(request));
            count += 1;
        }
        count
    }

    /// SC-23
    #[tokio::test]
    async fn publication_is_stored_if_confirmed_and_not_returned() {
        let mut all = with(&["a", "b", "a", "c"]);
        all.returned(&to("a"));
        all.returned(&to("nobody's"));
        assert_eq!(
            all.confirmed(2, true, true),
            [("a", Err(Refusal::NoQueue)), ("b", Ok(()))]
        );
        assert_eq!(
            all.confirmed(4, false, false),
            [("c", Err(Refusal::Nacked))]
        );
        assert_eq!(all.confirmed(4, false, true), []);
        assert_eq!(all.confirmed(3, false, true), [("a", Ok(()))]);
        assert!(all.is_empty());
    }

    /// SC-23
    #[tokio::test]
    async fn two_returns_of_the_same_address_are_two_publications() {
        let mut all = with(&["a", "a"]);
        all.returned(&to("a"));
        all.returned(&to("a"));
        let settled = all.confirmed(2, true, true);
        assert!(
            settled
                .iter()
                .all(|(_, result)| *result == Err(Refusal::NoQueue)),
            "{settled:?}"
        );
    }

    /// SC-28
    #[tokio::test]
    async fn unconfirmed_publications_are_resent_in_order_after_a_reconnect() {
        let mut all = with(&["a", "b", "c"]);
        all.confirmed(1, false, true);
        all.push("d");
        all.resend_all();
        assert_eq!(send(&mut all), 3);
        let order: Vec<&str> = all
            .confirmed(3, true, true)
            .into_iter()
            .map(|(request, _)| request)
            .collect();
        assert_eq!(order, ["b", "c", "d"]);
    }

    /// SC-28
    #[tokio::test(start_paused = true)]
    async fn confirm_is_late_only_if_the_broker_has_confirmed_nothing_meanwhile() {
        let second = Duration::from_secs(1);
        let mut all = with(&["a", "b"]);
        assert_eq!(all.silent_since(), Some(Instant::now()));
        advance(20 * second).await;
        all.push("c");
        send(&mut all);
        assert_eq!(all.silent_since(), Some(Instant::now() - 20 * second));
        all.confirmed(1, false, true);
        advance(20 * second).await;
        assert_eq!(
            all.silent_since(),
            Some(Instant::now() - 20 * second),
            "b was sent 40 s ago, but a was confirmed 20 s ago"
        );
        all.confirmed(3, true, true);
        assert_eq!(all.silent_since(), None);
        advance(60 * second).await;
        all.push("d");
        send(&mut all);
        assert_eq!(all.silent_since(), Some(Instant::now()));
    }

    /// SC-30
    #[tokio::test]
    async fn publication_that_closes_the_channel_is_isolated() {
        let mut all = with(&["a", "large", "c"]);
        all.push("d");
        assert_eq!(all.find_rejected(), None);
        assert_eq!(send(&mut all), 1);
        assert_eq!(all.confirmed(1, false, true), [("a", Ok(()))]);
        assert_eq!(send(&mut all), 1);
        assert_eq!(all.find_rejected(), Some("large"));
        assert_eq!(send(&mut all), 2);
    }

    /// SC-30
    #[tokio::test]
    async fn publication_that_was_not_sent_is_not_blamed_for_a_closed_channel() {
        let mut all = with(&["a"]);
        all.confirmed(1, false, true);
        all.push("b");
        assert_eq!(all.find_rejected(), None);
        assert_eq!(send(&mut all), 1);
    }
}
