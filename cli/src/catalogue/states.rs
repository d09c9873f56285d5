//! Values of STATUS that are not also reasons of conditions.

use asya_shared::api::State;

use super::{Entry, STANDALONE, TROUBLESHOOTING, fix_of};

pub const ENTRIES: &[Entry] = &[
    entry(State::Creating, TROUBLESHOOTING),
    entry(State::Running, TROUBLESHOOTING),
    entry(State::Napping, STANDALONE),
    entry(State::Updating, TROUBLESHOOTING),
    entry(State::ScalingUp, TROUBLESHOOTING),
    entry(State::ScalingDown, TROUBLESHOOTING),
    entry(State::Degraded, TROUBLESHOOTING),
    entry(State::TransportError, TROUBLESHOOTING),
    entry(State::ScalingError, TROUBLESHOOTING),
];

const fn entry(state: State, page: &'static str) -> Entry {
    Entry {
        name: state.as_str(),
        meaning: state.meaning(),
        fix: fix_of(state.remedy()),
        page,
    }
}
