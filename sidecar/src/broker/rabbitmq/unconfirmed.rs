//! Publications that the broker has not confirmed: pure bookkeeping (SC-23, SC-28, SC-30).

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::broker::Refusal;

/// Where a publication went; by these a return is matched to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) message_id: Option<String>,
}

/// A publication on its way.
#[derive(Debug)]
struct Sent<T> {
    request: T,
    address: Address,
    at: Instant,
    returned: bool,
}

/// Publications that wait to be sent, and those that wait to be confirmed.
#[derive(Debug)]
pub(super) struct Unconfirmed<T> {
    waiting: VecDeque<T>,
    sent: BTreeMap<u64, Sent<T>>,
    last: u64,
    /// So many of the first are sent one at a time, since one of them makes the broker close the channel.
    suspects: usize,
}

impl<T> Default for Unconfirmed<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            last: 0,
            suspects: 0,
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

    /// The next one to send, if there is one and it may be sent now.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.suspects > 0 && !self.sent.is_empty() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Notes that a publication is being sent; the broker numbers them in this order.
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

    /// Skips one that nobody waits for any more.
    pub(super) fn skipped(&mut self) {
        self.suspects = self.suspects.saturating_sub(1);
    }

    /// A return precedes the confirmation of its publication, and the broker works in order: it is the first that went
    /// there and has not been returned.
    pub(super) fn returned(&mut self, address: &Address) {
        let mut all = self.sent.values_mut();
        if let Some(sent) = all.find(|sent| sent.address == *address && !sent.returned) {
            sent.returned = true;
        }
    }

    /// Takes what the broker has settled, with what came of it.
    pub(super) fn confirmed(
        &mut self,
        number: u64,
        multiple: bool,
        stored: bool,
    ) -> Vec<(T, Result<(), Refusal>)> {
        let settled = if multiple {
            let rest = self.sent.split_off(&(number + 1));
            std::mem::replace(&mut self.sent, rest)
        } else {
            self.sent.remove_entry(&number).into_iter().collect()
        };
        self.suspects = self.suspects.saturating_sub(settled.len());
        let result = |sent: &Sent<T>| match (stored, sent.returned) {
            (_, true) => Err(Refusal::NoQueue),
            (true, false) => Ok(()),
            (false, false) => Err(Refusal::NotNow),
        };
        settled
            .into_values()
            .map(|sent| (result(&sent), sent))
            .map(|(result, sent)| (sent.request, result))
            .collect()
    }

    /// The connection is lost, or the channel: all that was sent is to be sent again, in the same order. On a new channel
    /// numbers begin anew.
    pub(super) fn again(&mut self) {
        self.last = 0;
        let sent = std::mem::take(&mut self.sent);
        for (_, sent) in sent.into_iter().rev() {
            self.waiting.push_front(sent.request);
        }
    }

    /// The broker closed the channel because of a publication. If it was the only one, it is taken; else all are sent
    /// again, one at a time, until it is known.
    pub(super) fn blamed(&mut self) -> Option<T> {
        self.suspects = self.sent.len();
        self.again();
        if self.suspects > 1 {
            return None;
        }
        self.suspects = 0;
        self.waiting.pop_front()
    }

    /// When the one that waits longest was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.sent.values().map(|sent| sent.at).min()
    }

    /// Time does not count while the broker is blocked.
    pub(super) fn restart_clocks(&mut self) {
        let now = Instant::now();
        self.sent.values_mut().for_each(|sent| sent.at = now);
    }
}

#[cfg(test)]
mod tests {
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
    async fn a_publication_is_stored_when_it_is_confirmed_and_was_not_returned() {
        let mut all = with(&["a", "b", "a", "c"]);
        all.returned(&to("a"));
        all.returned(&to("nobody's"));
        assert_eq!(
            all.confirmed(2, true, true),
            [("a", Err(Refusal::NoQueue)), ("b", Ok(()))]
        );
        assert_eq!(
            all.confirmed(4, false, false),
            [("c", Err(Refusal::NotNow))]
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
    async fn what_was_not_confirmed_when_the_connection_broke_is_sent_again_in_order() {
        let mut all = with(&["a", "b", "c"]);
        all.confirmed(1, false, true);
        all.push("d");
        all.again();
        assert_eq!(send(&mut all), 3);
        let order: Vec<&str> = all
            .confirmed(3, true, true)
            .into_iter()
            .map(|(request, _)| request)
            .collect();
        assert_eq!(order, ["b", "c", "d"]);
    }

    /// SC-30
    #[tokio::test]
    async fn one_that_closes_the_channel_is_found_by_sending_one_at_a_time() {
        let mut all = with(&["a", "large", "c"]);
        all.push("d");
        assert_eq!(all.blamed(), None);
        assert_eq!(send(&mut all), 1);
        assert_eq!(all.confirmed(1, false, true), [("a", Ok(()))]);
        assert_eq!(send(&mut all), 1);
        assert_eq!(all.blamed(), Some("large"));
        assert_eq!(send(&mut all), 2);
    }
}
