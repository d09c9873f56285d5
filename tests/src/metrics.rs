//! Reads a page of metrics in the text format of Prometheus.

use crate::error::{Error, Result};

/// The samples of a page.
#[derive(Debug)]
pub struct Metrics(Vec<Sample>);

/// A sample: a line of a page.
#[derive(Debug, PartialEq)]
pub struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Parses a page.
    ///
    /// # Errors
    /// When a line is neither a comment nor a sample.
    pub fn parse(page: &str) -> Result<Self> {
        let lines = page.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|line| {
            Sample::parse(line).ok_or_else(|| Error::Other(format!("no sample: {line}")))
        });
        Ok(Self(samples.collect::<Result<_>>()?))
    }

    /// The samples of a metric that have all of `labels`.
    pub fn samples<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let named = self.0.iter().filter(move |sample| sample.name == name);
        named.filter(move |sample| {
            let mut labels = labels.iter();
            labels.all(|(label, value)| sample.label(label) == Some(value))
        })
    }

    /// The sum of the samples of a metric that have all of `labels`; `None` if there is none. A counter with labels has
    /// no sample before it first counts.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values = self.samples(name, labels).map(|sample| sample.value);
        values.reduce(|sum, value| sum + value)
    }

    /// As [`Self::sum`], of a metric that must have a sample.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.sum(name, labels)
            .ok_or_else(|| Error::Other(format!("no sample of {name} {labels:?}")))
    }

    /// The samples of several pages.
    pub(crate) fn concat(pages: impl IntoIterator<Item = Self>) -> Self {
        Self(pages.into_iter().flat_map(|page| page.0).collect())
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A timestamp or an exemplar may follow.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            name: name.to_owned(),
            labels,
            value,
        })
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads up to the closing brace. Returns the labels, and what follows the brace.
fn read_labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (label, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquote(quoted)?;
        labels.push((label.to_owned(), value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// Reads up to the closing quote. Returns the value, and what follows the quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests;
