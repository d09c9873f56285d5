//! Reads what is received: every length is checked, and no value is taken for granted.

use super::Malformed;

/// How deep tables and arrays may be nested.
const DEEPEST: usize = 32;

/// Bytes that are read one value after the other.
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
            .ok_or(Malformed("a value is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(Malformed("a number is cut off"))?;
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

    /// The bytes of a long text or table.
    pub(super) fn long_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.long()?).map_err(|_| Malformed("a length"))?;
        self.take(length)
    }
}

/// The number with this key in a table; `None`: there is none.
pub(super) fn number_in(table: &[u8], key: &str) -> Result<Option<i64>, Malformed> {
    let mut values = Values::new(table);
    while !values.0.is_empty() {
        let found = values.short_text()?;
        let number = number(&mut values, 0)?;
        if found == key {
            return Ok(number);
        }
    }
    Ok(None)
}

/// Reads or skips a value; `Some`: it is a whole number.
fn number(values: &mut Values<'_>, depth: usize) -> Result<Option<i64>, Malformed> {
    if depth > DEEPEST {
        return Err(Malformed("a table is nested too deep"));
    }
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
        b'S' | b'x' | b'F' => {
            values.long_bytes()?;
            None
        }
        b'A' => {
            let mut elements = Values::new(values.long_bytes()?);
            while !elements.0.is_empty() {
                number(&mut elements, depth + 1)?;
            }
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
