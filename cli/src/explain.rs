//! `explain`: what a reason or a finding means.

use crate::answer::{Answer, Failure, Report};
use crate::args::ExplainArgs;
use crate::catalogue::{self, Entry};
use crate::output::{self, Paint, Table, paint, wrapped};

/// Names less similar than this do not count as misspellings of each other.
const ALIKE: f64 = 0.8;
/// Maximum number of suggested names.
const SHOWN: usize = 5;

/// Explains one entry, or lists all of them.
///
/// # Errors
/// If there is no such entry.
pub fn run(args: &ExplainArgs) -> Result<Report, Failure> {
    let width = output::terminal_width();
    let text = match &args.name {
        None => {
            let entries: Vec<_> = catalogue::all().collect();
            args.output
                .output
                .write(&entries, || list(&entries, width))?
        }
        Some(name) => {
            let entry = catalogue::entry(name).ok_or_else(|| unknown(name))?;
            args.output.output.write(entry, || page(entry, width))?
        }
    };
    Ok(Report::new(text, Answer::Fine))
}

fn page(entry: &Entry, width: Option<usize>) -> String {
    let title = format!("{} ({})", entry.name, catalogue::id(entry.name));
    let mut text = paint(&title, Paint::Heading) + "\n";
    for (heading, paragraph) in [
        ("", entry.meaning),
        ("fix: ", entry.fix),
        ("more: ", entry.page),
    ] {
        for line in wrapped(&format!("{heading}{paragraph}"), width) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn list(entries: &[&Entry], width: Option<usize>) -> String {
    let mut table = Table::new(&["NAME", "MEANING"]);
    for entry in entries {
        table.row([entry.name, entry.meaning]);
    }
    table.render(width)
}

fn unknown(name: &str) -> Failure {
    if name.is_empty() {
        return Failure::new("the name is empty; `kubectl asya explain` lists all");
    }
    let like = catalogue::all().map(|entry| entry.name);
    let like = like.filter(|it| it.to_lowercase().contains(&name.to_lowercase()));
    let like: Vec<_> = like.take(SHOWN).collect();
    if !like.is_empty() {
        let names = like.join(", ");
        return Failure::new(format!(
            "no reason or finding {name}; did you mean {names}?"
        ));
    }
    let known = catalogue::all().map(|entry| {
        let likeness = strsim::jaro_winkler(&entry.name.to_lowercase(), &name.to_lowercase());
        (likeness, entry.name)
    });
    let best = known.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let advice = match best.filter(|(likeness, _)| *likeness >= ALIKE) {
        Some((_, known)) => format!("did you mean {known}?"),
        None => "`kubectl asya explain` lists all".to_owned(),
    };
    Failure::new(format!("no reason or finding {name}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_meaning_fix_and_where_to_read_on() {
        let entry = catalogue::entry("asya-val-3").unwrap();
        assert_eq!(
            page(entry, None),
            "\x1b[1mVAL-3 (ASYA-VAL-3)\x1b[0m\n\
             Exactly one container is named asya-runtime.\n\
             fix: Rename the container that runs your handler.\n\
             more: docs/spec/standalone.md\n"
        );
    }

    #[test]
    fn misspelled_name_gets_a_suggestion() {
        assert_eq!(
            unknown("QueueConflct").to_string(),
            "no reason or finding QueueConflct; did you mean QueueConflict?"
        );
        assert_eq!(
            unknown("certificate").to_string(),
            "no reason or finding certificate; did you mean CertificateExpired, CertificateExpiring, CertificateInvalid?"
        );
        assert_eq!(
            unknown("").to_string(),
            "the name is empty; `kubectl asya explain` lists all"
        );
        assert_eq!(
            unknown("xyz").to_string(),
            "no reason or finding xyz; `kubectl asya explain` lists all"
        );
    }
}
