//! `pause`, `resume`, `roll`, `retain` and `unbind`: each writes one annotation or field, or deletes the actor. The
//! change is shown first.

mod delete;
mod plan;
mod queues;

use asya_shared::api::AsyncActor;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub use plan::RequestedChange;
use plan::{Plan, Step};

use crate::answer::{Answer, Failure, Report};
use crate::args::{ChangeArgs, ConsentArgs, DryRun, UnbindArgs};
use crate::cluster::{Cluster, Connection, resource};
use crate::consent::{confirmed, refused};
use crate::output::{Format, print_error};

/// Changes an annotation or field of an actor.
///
/// # Errors
/// If the actor cannot be read or written, or the user does not consent.
pub async fn run(
    connection: &Connection,
    action: RequestedChange,
    args: &ChangeArgs,
) -> Result<Report, Failure> {
    let cluster = connection.open().await?;
    let actor = cluster.actor(&args.name).await?;
    let format = args.output.output;
    carry_out(&cluster, &args.name, &actor, action, args.consent, format).await
}

/// Deletes an actor that binds a workload.
///
/// # Errors
/// As [`run`].
pub async fn unbind(connection: &Connection, args: &UnbindArgs) -> Result<Report, Failure> {
    let cluster = connection.open().await?;
    let actor = cluster.actor(&args.name).await?;
    let action = RequestedChange::Unbind {
        keep_queue: args.keep_queue,
    };
    let format = args.output.output;
    carry_out(&cluster, &args.name, &actor, action, args.consent, format).await
}

async fn carry_out(
    cluster: &Cluster,
    name: &str,
    actor: &Value,
    action: RequestedChange,
    consent: ConsentArgs,
    format: Format,
) -> Result<Report, Failure> {
    let Plan {
        steps,
        consequences,
    } = plan::plan(action, actor, Timestamp::now())?;
    let object = format!("AsyncActor {}/{name}", cluster.namespace);
    let dry_run = consent.dry_run == DryRun::Server;
    let written = Written {
        actor: format!("{}/{name}", cluster.namespace),
        action: action.done(),
        dry_run,
        changes: &steps,
    };
    if steps.is_empty() {
        let text = format.write(&written, || format!("{object}: nothing to change\n"))?;
        return Ok(Report::new(text, Answer::Fine));
    }
    let shown: Vec<String> = steps.iter().map(Step::described).collect();
    print_error(&format!("{object}:"));
    for line in shown.iter().chain(&consequences) {
        print_error(&format!("  {line}"));
    }
    if !dry_run && !consent.yes && !confirmed("Write this?").await {
        return Err(refused("written"));
    }
    let mut expected = actor.clone();
    for (done, step) in steps.iter().enumerate() {
        let result = write(cluster, name, &mut expected, step, dry_run).await;
        let before = if dry_run { &[] } else { &shown[..done] };
        result.map_err(|why| with_written(&why, before))?;
    }
    let suffix = if dry_run { " (server dry run)" } else { "" };
    let text = format.write(&written, || format!("{object} {}{suffix}\n", action.done()))?;
    Ok(Report::new(text, Answer::Fine))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    /// As `namespace/name`.
    actor: String,
    action: &'static str,
    dry_run: bool,
    /// Empty if there was nothing to change.
    changes: &'a [Step],
}

/// Adds what was written before the failure.
fn with_written(why: &Failure, before: &[String]) -> Failure {
    if before.is_empty() {
        return why.clone();
    }
    Failure::new(format!("{why}; written before that: {}", before.join("; ")))
}

/// Writes a step. `expected` is the actor that the user has seen, with the previous steps applied.
async fn write(
    cluster: &Cluster,
    name: &str,
    expected: &mut Value,
    step: &Step,
    dry_run: bool,
) -> Result<(), Failure> {
    match step {
        Step::Set { patch, .. } => {
            let kind = resource::<AsyncActor>();
            cluster.patch(&kind, name, patch, dry_run).await?;
            if !dry_run {
                delete::merge(expected, patch);
            }
            Ok(())
        }
        Step::Delete => delete::delete(cluster, name, expected, dry_run).await,
    }
}
