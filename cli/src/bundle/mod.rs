//! `bundle`: an archive for support, without the values of Secrets.

mod archive;
mod gather;
mod redact;

use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;

use crate::answer::{Answer, Failure, Report};
use crate::args::BundleArgs;
use crate::cluster::Connection;

/// Writes the archive; what the user may not read is left out, and noted.
///
/// # Errors
/// If the cluster cannot be reached, or the file cannot be written.
pub async fn run(connection: &Connection, args: &BundleArgs) -> Result<Report, Failure> {
    let cluster = connection.open().await?;
    cluster.version().await?;
    let namespace = Some(&*cluster.namespace).filter(|_| !args.all_namespaces);
    let bundle = gather::all(&cluster, namespace).await;
    let path = args.output.clone().unwrap_or_else(|| {
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        PathBuf::from(format!("asya-bundle-{now}.tar.gz"))
    });
    let failed = |error| Failure::new(format!("{}: {error}", path.display()));
    archive::write(&path, &bundle.files).map_err(failed)?;
    let text = format!("{}: {} files\n", path.display(), bundle.files.len());
    let notes = bundle
        .missing
        .into_iter()
        .map(|why| format!("missing: {why}"));
    Ok(Report::new(text, Answer::Fine).with_notes(notes.collect()))
}
