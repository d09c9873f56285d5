//! Syntax of labels and names that the API server accepts. One illegal value, which no pod can have anyway, would make
//! it reject the whole object with the entries of all other bindings.

use crate::resolve::{Operator, Requirement, Selector};

const LONGEST_WORD: usize = 63;
const LONGEST_NAME: usize = 253;

/// Whether this is a possible object name.
pub(super) fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(legal)
}

/// Whether this is a possible label value.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

/// Whether every label in a selector is possible.
pub(super) fn is_selector(selector: &Selector) -> bool {
    selector.requirements().iter().all(is_requirement)
}

fn is_requirement(requirement: &Requirement) -> bool {
    let values = match &requirement.operator {
        Operator::In(values) | Operator::NotIn(values) if values.is_empty() => return false,
        Operator::In(values) | Operator::NotIn(values) => values.as_slice(),
        Operator::Exists | Operator::DoesNotExist => &[],
    };
    is_label_key(&requirement.key) && values.iter().all(|value| is_label_value(value))
}

fn is_label_key(text: &str) -> bool {
    let (prefix, word) = match text.split_once('/') {
        Some((prefix, word)) => (Some(prefix), word),
        None => (None, text),
    };
    let is_subdomain = |prefix: &str| {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        prefix.len() <= LONGEST_NAME
            && prefix.split('.').all(|part| {
                let bytes = part.as_bytes();
                edge(bytes.first()) && edge(bytes.last()) && part.bytes().all(legal)
            })
    };
    prefix.is_none_or(is_subdomain) && is_word(word)
}

fn is_word(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= LONGEST_WORD
        && edge(bytes.first())
        && edge(bytes.last())
        && text.bytes().all(legal)
}
