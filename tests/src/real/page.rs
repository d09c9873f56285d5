//! Commands and manifests from pages of the documentation, so that tests run exactly what users run.

use std::path::Path;

use super::REGISTRY;
use crate::error::{Context, Error, Result};

/// A page of the documentation.
pub struct Page {
    name: &'static str,
    text: String,
}

impl Page {
    /// Reads a page by its path in the project, such as `docs/install.md`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(name: &'static str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.context(format_args!("read {}", path.display()))?;
        Ok(Self { name, text })
    }

    /// The headings of its sections.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
    }

    /// The code blocks in this language in the section with this heading; for an empty heading, those of all sections.
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

    /// The first such block.
    ///
    /// # Errors
    /// When there is no such block.
    pub fn block(&self, heading: &str, language: &str) -> Result<String> {
        let mut blocks = self.blocks(heading, language).into_iter();
        blocks.next().ok_or_else(|| {
            Error::Other(format!(
                "{} has no block `{language}` in section `{heading}`",
                self.name
            ))
        })
    }

    /// The commands in the section with this heading, one per line that does not continue the previous one; for an
    /// empty heading, those of all sections.
    #[must_use]
    pub fn commands(&self, heading: &str) -> Vec<String> {
        let blocks = self.blocks(heading, "").join("\n");
        let whole = blocks.replace("\\\n", " ");
        let lines = whole.lines().filter(|line| !line.trim().is_empty());
        lines.map(str::to_owned).collect()
    }

    fn section(&self, heading: &str) -> &str {
        if heading.is_empty() {
            return &self.text;
        }
        let rest = self.text.split_once(&format!("\n## {heading}\n"));
        let rest = rest.map_or("", |(_, rest)| rest);
        rest.split_once("\n## ")
            .map_or(rest, |(section, _)| section)
    }

    /// Returns the first text in backticks right after the words `before`, in the section with this heading; for an
    /// empty heading, in the whole page.
    #[must_use]
    pub fn quoted(&self, heading: &str, before: &str) -> Option<&str> {
        let section = self.section(heading);
        section.match_indices(before).find_map(|(start, _)| {
            let rest = section[start + before.len()..].trim_start();
            rest.strip_prefix('`')?
                .split_once('`')
                .map(|(quoted, _)| quoted)
        })
    }

    /// The images of operator and sidecar that the installation step builds.
    ///
    /// # Errors
    /// When that step does not build both.
    pub(super) fn images(&self) -> Result<[String; 2]> {
        let block = self.block("Install", "")?;
        let image = |variable: &str| -> Result<String> {
            let mut words = block.split_whitespace();
            let name = words.find_map(|word| word.strip_prefix(variable)?.strip_prefix('='));
            let missing = || Error::Other(format!("{} sets no {variable}: {block}", self.name));
            Ok(name.ok_or_else(missing)?.replace("REGISTRY", REGISTRY))
        };
        Ok([image("IMAGE")?, image("SIDECAR_IMAGE")?])
    }
}

#[cfg(test)]
mod tests;
