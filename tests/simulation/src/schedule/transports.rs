//! Which brokers a run uses: RabbitMQ, SQS, or one of each.

use crate::broker::sqs::TRANSPORTS;
use crate::installation::BROKERS;
use crate::randomness::{Seed, pick};
use crate::schedule::Action;

/// Reassigns the two transports of a schedule in most runs.
pub fn assign<'a>(seed: Seed, actions: impl Iterator<Item = &'a mut Action>) {
    let mut random = seed.rng_for("transports");
    let [east, west] = BROKERS;
    let [north, south, other] = TRANSPORTS;
    let pairs = [
        [east, west],
        [east, north],
        [south, west],
        [north, south],
        [south, north],
        [other, north],
        [west, other],
    ];
    let pair = *pick(&mut random, &pairs);
    for action in actions {
        let (Action::Create(_, spec) | Action::Update(_, spec)) = action else {
            continue;
        };
        let Some(transport) = spec.get_mut("transport") else {
            continue;
        };
        let place = BROKERS.iter().position(|name| transport == name);
        if let Some(place) = place {
            *transport = pair[place].into();
        }
    }
}
