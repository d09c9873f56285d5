//! Commands and manifests from README, so that tests run exactly what users run.

use std::path::Path;

use crate::error::{Error, Result, Trying};

/// The text of README.
pub struct Readme(String);

impl Readme {
    /// Reads README.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        let text = std::fs::read_to_string(&path);
        Ok(Self(text.trying(format_args!("read {}", path.display()))?))
    }

    /// The code blocks of this language in the section with this heading; for an empty heading, those of all sections.
    #[must_use]
    pub fn blocks(&self, heading: &str, language: &str) -> Vec<String> {
        let section = self.section(heading);
        let mut blocks = Vec::new();
        let mut lines = section.lines();
        while let Some(opening) = lines.next() {
            let Some(fenced) = opening.trim_start().strip_prefix("```") else {
                continue;
            };
            // Blocks in lists are indented.
            let indent = opening.len() - opening.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block: Vec<_> = block.map(|line| line.get(indent..).unwrap_or("")).collect();
            if fenced == language {
                blocks.push(block.join("\n"));
            }
        }
        blocks
    }

    /// The first of these blocks.
    ///
    /// # Errors
    /// When there is no such block.
    pub fn block(&self, heading: &str, language: &str) -> Result<String> {
        let mut blocks = self.blocks(heading, language).into_iter();
        blocks.next().ok_or_else(|| {
            Error::Other(format!(
                "README has no block `{language}` in section `{heading}`"
            ))
        })
    }

    fn section(&self, heading: &str) -> &str {
        if heading.is_empty() {
            return &self.0;
        }
        let rest = self.0.split_once(&format!("\n## {heading}\n"));
        let rest = rest.map_or("", |(_, rest)| rest);
        rest.split_once("\n## ")
            .map_or(rest, |(section, _)| section)
    }

    /// Returns the text in backticks after the words `before`.
    ///
    /// # Errors
    /// When README does not contain that.
    pub fn quoted(&self, before: &str) -> Result<&str> {
        let rest = self
            .0
            .split_once(&format!("{before} `"))
            .map(|(_, rest)| rest);
        let quoted = rest.and_then(|rest| rest.split_once('`'));
        let missing = || Error::Other(format!("README does not say `{before}`"));
        quoted.map(|(quoted, _)| quoted).ok_or_else(missing)
    }

    /// The image that README's installation step builds, in this repository.
    ///
    /// # Errors
    /// When that step builds no image.
    pub fn operator_image(&self, repository: &str) -> Result<String> {
        let block = self.block("Install", "")?;
        let name = block
            .split_once("IMAGE=")
            .and_then(|(_, rest)| rest.split_whitespace().next());
        let missing = || Error::Other(format!("README makes no image: {block}"));
        Ok(name.ok_or_else(missing)?.replace("REPOSITORY", repository))
    }
}
