//! Decodes received values. They are untrusted, so every length is checked.

use super::protocol::Malformed;

/// A cursor over received bytes.
#[derive(Clone, Debug)]
pub(super) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Malformed("a truncated value"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// All remaining bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(Malformed("a truncated number"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn octet(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn long_long(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn short_text(&mut self) -> Result<String, Malformed> {
        let length = self.octet()?;
        Ok(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    /// The bytes of a long string or a table.
    pub(super) fn long_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.long()?).map_err(|_| Malformed("a length"))?;
        self.take(length)
    }
}

/// The integer with this key in a table, if there is one.
pub(super) fn number_in(table: &[u8], key: &str) -> Result<Option<i64>, Malformed> {
    let mut values = Values::new(table);
    while !values.0.is_empty() {
        let found = values.short_text()?;
        let number = number(&mut values)?;
        if found == key {
            return Ok(number);
        }
    }
    Ok(None)
}

/// An entry of a table.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    /// Key and value, encoded.
    pub(super) encoded: &'a [u8],
    value: &'a [u8],
}

impl Entry<'_> {
    /// The value, if it is text.
    pub(super) fn text(&self) -> Option<String> {
        let (b'S', text) = self.value.split_first()? else {
            return None;
        };
        let text = Values::new(text).long_bytes().ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The value, if it is an integer.
    pub(super) fn number(&self) -> Option<i64> {
        number(&mut Values::new(self.value)).ok()?
    }
}

/// The entries of a table.
pub(super) fn entries(table: &[u8]) -> Result<Vec<Entry<'_>>, Malformed> {
    let mut values = Values::new(table);
    let mut entries = Vec::new();
    while !values.0.is_empty() {
        let start = values.0;
        let key = values.short_text()?;
        let value = values.0;
        number(&mut values)?;
        let end = values.0.len();
        entries.push(Entry {
            key,
            encoded: &start[..start.len() - end],
            value: &value[..value.len() - end],
        });
    }
    Ok(entries)
}

/// Reads a value; returns it if it is an integer. Skips tables and arrays, so their contents do not matter.
fn number(values: &mut Values<'_>) -> Result<Option<i64>, Malformed> {
    Ok(match values.octet()? {
        b'b' => Some(values.array().map(i8::from_be_bytes)?.into()),
        b'B' => Some(values.octet()?.into()),
        b's' | b'U' => Some(values.array().map(i16::from_be_bytes)?.into()),
        b'u' => Some(values.short()?.into()),
        b'I' => Some(values.array().map(i32::from_be_bytes)?.into()),
        b'i' => Some(values.long()?.into()),
        b'l' | b'L' => Some(values.array().map(i64::from_be_bytes)?),
        b't' => skip(values, 1)?,
        b'f' => skip(values, 4)?,
        b'd' | b'T' => skip(values, 8)?,
        b'D' => skip(values, 5)?,
        b'S' | b'x' | b'F' | b'A' => {
            values.long_bytes()?;
            None
        }
        b'V' => None,
        _ => return Err(Malformed("a value of unknown type")),
    })
}

fn skip(values: &mut Values<'_>, count: usize) -> Result<Option<i64>, Malformed> {
    values.take(count)?;
    Ok(None)
}
