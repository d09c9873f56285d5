//! Replies of the runtime (RUN-12, RUN-13, SC-50).

use std::borrow::Cow;

use asya_wire::envelope::{DETAILS, ERROR, HEADERS, PAYLOAD, ROUTE};

use super::fields::{fields, is_object};
use super::{Message, Route, Routing, Unreadable, Written, decoded};

#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// One element per result; without elements, the message goes to happy-end.
    Results(Vec<Element<'a>>),
    /// An element reports a handler error, so no element of the reply is forwarded (SC-65).
    Failed(Failure<'a>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// The route as written.
    pub route: &'a str,
    /// The parsed route.
    pub routing: Route<'a>,
    /// The headers as written, if they are an object.
    pub headers: Option<&'a str>,
    /// The payload as written; `None`: there is none.
    pub payload: Option<&'a str>,
}

/// The error of a failed handler.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The code as written, a JSON string.
    pub code: Cow<'a, str>,
    /// Message, type and traceback as written.
    pub details: Option<&'a str>,
}

/// Whether the elements of a reply must have a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    Required,
    /// They may have none, as in replies of end actors (SC-69).
    Ignored,
}

impl<'a> Reply<'a> {
    /// Parses a reply.
    ///
    /// # Errors
    /// If the reply is invalid; the text does not quote it.
    pub fn read(body: &'a [u8], routes: Routes) -> Result<Self, String> {
        let elements =
            elements_of(body).map_err(|error| format!("the reply is not an array: {error}"))?;
        let mut results = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            match read_element(element.get(), routes)
                .map_err(|error| format!("element {index}: {error}"))?
            {
                Ok(Some(result)) => results.push(result),
                Ok(None) => {}
                Err(failure) => return Ok(Self::Failed(failure)),
            }
        }
        Ok(Self::Results(results))
    }

    /// Whether the reply is a single element with the message's own route. The route of a result is one actor further,
    /// unless the handler returns whole envelopes.
    #[must_use]
    pub fn leads_back(body: &[u8], source: &Message<'_>) -> bool {
        let elements = elements_of(body).unwrap_or_default();
        let [element] = elements.as_slice() else {
            return false;
        };
        let element = Message::read(element.get().as_bytes());
        element.is_ok_and(|element| element.routing.is_at(&source.routing))
    }

    /// The payload of the first element of an end actor's reply (SC-88).
    #[must_use]
    pub fn first_payload(body: &'a [u8]) -> Option<&'a str> {
        let first = elements_of(body).ok()?.into_iter().next()?;
        let payload = Message::read(first.get().as_bytes()).ok()?.payload;
        payload.filter(|payload| *payload != "null")
    }
}

fn elements_of(body: &[u8]) -> Result<Vec<Written<'_>>, Unreadable> {
    let text = std::str::from_utf8(body)?;
    Ok(serde_json::from_str(text)?)
}

/// A result, or a failure; `None`: a result that is sent nowhere.
type Read<'a> = Result<Option<Element<'a>>, Failure<'a>>;

fn read_element(written: &str, routes: Routes) -> Result<Read<'_>, String> {
    let [error, details, route, headers, payload] =
        fields(written, [ERROR, DETAILS, ROUTE, HEADERS, PAYLOAD])
            .map_err(|error| error.to_string())?;
    if let Some(code) = error.filter(|code| !matches!(*code, "null" | "\"\"")) {
        if decoded(code).is_none() {
            return Err("error is not a string".to_owned());
        }
        return Ok(Err(Failure {
            code: Cow::Borrowed(code),
            details: details.filter(|details| *details != "null"),
        }));
    }
    if routes == Routes::Ignored {
        return Ok(Ok(None));
    }
    let route = route.ok_or("it has no route")?;
    let routing = match Route::read(route) {
        Routing::Route(routing) if routing.has_current => routing,
        Routing::Route(_) => return Err("its route has no current".to_owned()),
        Routing::Missing | Routing::LaterFormat => {
            return Err("its route has no actors".to_owned());
        }
        Routing::Invalid(error) => return Err(error),
    };
    Ok(Ok(Some(Element {
        route,
        routing,
        headers: headers.filter(|headers| is_object(headers)),
        payload,
    })))
}
