//! What README tells users to write, so that tests run just that.

use std::path::Path;

use crate::error::{Error, Result, Trying};

/// README, as users read it.
pub struct Readme(String);

impl Readme {
    /// Reads it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        let text = std::fs::read_to_string(&path);
        Ok(Self(text.trying(format_args!("read {}", path.display()))?))
    }

    /// The first block of this language after a heading; after none, the first of all.
    ///
    /// # Errors
    /// When there is none.
    pub fn block(&self, heading: &str, language: &str) -> Result<&str> {
        let missing = || {
            Error::Other(format!(
                "README has no block `{language}` after `{heading}`"
            ))
        };
        let (_, rest) = self.0.split_once(heading).ok_or_else(missing)?;
        let fence = format!("\n```{language}\n");
        let (_, rest) = rest.split_once(&fence).ok_or_else(missing)?;
        rest.split_once("\n```")
            .map(|(block, _)| block)
            .ok_or_else(missing)
    }

    /// What stands in backticks after some words.
    ///
    /// # Errors
    /// When that is nowhere.
    pub fn quoted(&self, before: &str) -> Result<&str> {
        let rest = self
            .0
            .split_once(&format!("{before} `"))
            .map(|(_, rest)| rest);
        let quoted = rest.and_then(|rest| rest.split_once('`'));
        let missing = || Error::Other(format!("README does not say `{before}`"));
        quoted.map(|(quoted, _)| quoted).ok_or_else(missing)
    }
}
