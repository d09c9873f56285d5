//! The actors that a message visits.

use std::borrow::Cow;

use asya_wire::envelope::{ACTORS, CURR, CURRENT};
use serde::Deserialize;

use super::Routing;
use super::fields::fields;

/// A route: the actors in order, and the index of the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route<'a> {
    pub actors: Vec<Cow<'a, str>>,
    /// May be negative, or beyond the end.
    pub current: i64,
    /// Whether `current` was present; a message may omit it, which means 0.
    pub has_current: bool,
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Route<'a> {
    pub(super) fn read(written: &'a str) -> Routing<'a> {
        match Self::parts(written) {
            Ok((None, _, true)) => Routing::LaterFormat,
            Ok((None, _, false)) => Routing::Missing,
            Ok((Some(actors), current, _)) => Routing::Route(Self {
                actors,
                current: current.unwrap_or_default(),
                has_current: current.is_some(),
            }),
            Err(error) => Routing::Invalid(format!("route: {error}")),
        }
    }

    /// Actors, index, and whether there is a key of a later version of the format.
    #[expect(clippy::type_complexity, reason = "read once, above")]
    fn parts(
        written: &'a str,
    ) -> Result<(Option<Vec<Cow<'a, str>>>, Option<i64>, bool), serde_json::Error> {
        let [actors, current, curr] = fields(written, [ACTORS, CURRENT, CURR])?;
        let actors: Option<Option<Vec<Name<'a>>>> = actors.map(serde_json::from_str).transpose()?;
        let actors = actors.flatten();
        let current: Option<Option<i64>> = current.map(serde_json::from_str).transpose()?;
        let names = actors.map(|names| names.into_iter().map(|Name(name)| name).collect());
        Ok((names, current.flatten(), curr.is_some()))
    }

    /// The current actor; `None` at the end of the route.
    #[must_use]
    pub fn current_actor(&self) -> Option<&str> {
        let index = usize::try_from(self.current).ok()?;
        let name = self.actors.get(index)?;
        (!name.is_empty()).then_some(name)
    }
}
