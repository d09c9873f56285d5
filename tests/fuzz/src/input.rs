//! Inputs shared by several properties: JSON values, unusual but valid JSON, and damaged examples.

use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use serde_json::{Number, Value};

/// Texts: ordinary ones, empty ones, and those that need escapes.
pub fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        "[a-z0-9-]{0,12}",
        "\\PC{0,12}",
        select(vec![
            "", "\u{0}", "\"", "\\", "/", "~", "~1", "\u{2028}", "\u{fffe}", "$(X)"
        ])
        .prop_map(str::to_owned),
    ]
}

/// JSON values of any kind, nested a few levels deep.
pub fn json() -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(text(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Whitespace allowed in JSON, usually none.
pub fn space() -> impl Strategy<Value = &'static str> + Clone {
    select(vec!["", "", "", " ", "\n", "\t\r\n "])
}

/// One change to the bytes.
#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

/// One of the examples with up to a few bytes changed.
pub fn damaged(examples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> + Clone {
    let piece = prop_oneof![
        vec(any::<u8>(), 1..8),
        select(vec![
            "null", "\"\"", "{}", "[]", "-1", "1e999", "\\u0000", "\\ud800", ",", ":", "\u{feff}",
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    let damage = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        (any::<Index>(), 1..40_usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
        any::<Index>().prop_map(Damage::Cut),
    ];
    (select(examples), vec(damage, 0..6)).prop_map(|(mut bytes, all)| {
        for damage in &all {
            apply(damage, &mut bytes);
        }
        bytes
    })
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let place = |at: &Index| at.index(bytes.len() + 1);
    match damage {
        Damage::Set(at, byte) => {
            let at = place(at);
            if let Some(it) = bytes.get_mut(at) {
                *it = *byte;
            }
        }
        Damage::Insert(at, piece) => {
            let at = place(at);
            bytes.splice(at..at, piece.iter().copied());
        }
        Damage::Remove(at, count) => {
            let at = place(at);
            bytes.drain(at..(at + count).min(bytes.len()));
        }
        Damage::Repeat(at, count) => {
            let at = place(at);
            let part = bytes[at..(at + count).min(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
        Damage::Cut(at) => bytes.truncate(place(at)),
    }
}
