//! How many messages the broker keeps in flight: what the scheduler wants, plus one for each message that holds no slot
//! while publishing its results is retried. Otherwise a few messages without a destination would keep all others in the
//! queue (SC-31).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::{Broker, Demand, MAX_STALLED};

pub struct Intake {
    apply: Box<dyn Fn(Demand) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Demand,
    stalled: usize,
}

/// Guard of a stalled message.
pub struct Stalled(Arc<Intake>);

impl Intake {
    /// Sets the demand of this broker.
    pub fn new(broker: &impl Broker) -> Arc<Self> {
        let broker = broker.clone();
        Arc::new(Self {
            apply: Box::new(move |demand| broker.demand(demand)),
            state: Mutex::default(),
        })
    }

    /// Sets the demand, not counting stalled messages.
    pub fn set(&self, wanted: Demand) {
        self.change(|state| state.wanted = wanted);
    }

    /// Lets another message be delivered while the returned guard exists. Drop the guard before settling the stalled
    /// message, so that the broker does not deliver one more in its place.
    pub fn stalled(self: &Arc<Self>) -> Stalled {
        self.change(|state| state.stalled += 1);
        Stalled(self.clone())
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        (self.apply)(state.total());
    }
}

impl State {
    fn total(&self) -> Demand {
        let slots = match self.wanted.slots {
            0 => 0,
            slots => slots + self.stalled.min(MAX_STALLED),
        };
        Demand {
            slots,
            ..self.wanted
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.change(|state| state.stalled -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::broker::{Demand, MAX_STALLED};

    /// SC-31, SC-84
    #[test]
    fn bounded_number_of_stalled_messages_is_made_up_for_unless_nothing_is_consumed() {
        for (slots, stalled, expected) in [
            (1, 0, 1),
            (1, 1, 2),
            (4, MAX_STALLED, 4 + MAX_STALLED),
            (4, 100, 4 + MAX_STALLED),
            (0, 3, 0),
        ] {
            let wanted = Demand {
                slots,
                lookahead: 5,
            };
            let total = State { wanted, stalled }.total();
            let expected = Demand {
                slots: expected,
                lookahead: 5,
            };
            assert_eq!(total, expected, "{slots} {stalled}");
        }
    }
}
