//! `lint`: what the API server and the webhook would say about manifests, without either of them.

mod decide;
mod finding;
mod junit;
mod locate;
mod render;
mod sarif;
mod schema;

pub use decide::{Linted, Rules, is_actor, lint};
pub use finding::{LintFinding, Severity};

use crate::answer::{Answer, Failure, Report};
use crate::args::{ConnectionArgs, LintArgs, LintFormat};
use crate::{manifests, output, values};

/// Checks the manifests below these paths.
///
/// # Errors
/// If a path or the values cannot be read, or there is no `AsyncActor`.
pub fn run(args: &LintArgs, connection: &ConnectionArgs) -> Result<Report, Failure> {
    let found = manifests::read(&args.filename)?;
    let installation = args.values.as_deref().map(values::read).transpose()?;
    let schema = asya_crds::evaluable_schema();
    let schema =
        schema.map_err(|error| Failure::new(format!("cannot read the CRD's schema: {error}")))?;
    let linted = decide::lint(
        &found,
        &decide::Rules {
            schema: &schema,
            installation: installation.as_ref(),
            namespace: connection.namespace.as_deref().unwrap_or("default"),
            operator_namespace: &connection.operator_namespace,
        },
    );
    if linted.actors.is_empty() && linted.findings.is_empty() {
        return Err(manifests::without_actors(&args.filename));
    }
    let text = match args.output {
        LintFormat::Text => render::text(&linted, output::terminal_width()),
        LintFormat::Junit => junit::write(&linted),
        LintFormat::Sarif => output::json(&sarif::log(&linted))?,
        LintFormat::Json => output::Format::Json.write(&linted, String::new)?,
        LintFormat::Yaml => output::Format::Yaml.write(&linted, String::new)?,
    };
    let counts = |finding: &LintFinding| args.strict || finding.severity == Severity::Error;
    let answer = if linted.findings.iter().any(counts) {
        Answer::Findings
    } else {
        Answer::Fine
    };
    Ok(Report::new(text, answer))
}
