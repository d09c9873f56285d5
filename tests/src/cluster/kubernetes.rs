//! The control plane and the nodes.

use std::path::Path;

use kube::Client;
use tokio::sync::watch;

use super::control_plane::{self, ControlPlane};
use super::{Options, kwok};
use crate::error::{Error, Result};
use crate::process::Folder;
use crate::real;

/// Starts the control plane (whose programs are in the first folder) and the nodes, and sends the administrator's
/// client as soon as it exists.
pub(super) async fn start(
    (bin, tools): (&Path, &Path),
    folder: &Folder,
    options: Options,
    client: watch::Sender<Option<Client>>,
) -> Result<ControlPlane> {
    let runtime = async {
        if !options.real {
            return Ok(None);
        }
        let place = real::sandbox_folder()?;
        let runtime = real::Runtime::start(&place, folder).await?;
        Ok(Some((place, runtime)))
    };
    let api = async {
        let control_plane = control_plane::start(bin, folder, options).await?;
        client.send_replace(Some(control_plane.client.clone()));
        Ok::<_, Error>(control_plane)
    };
    let (mut control_plane, runtime) = tokio::try_join!(api, runtime)?;
    let (kubeconfig, client) = (&control_plane.kubeconfig, &control_plane.client);
    let fake = (options.nodes, options.real);
    let kwok = kwok::start(tools, folder, kubeconfig, client, fake).await?;
    let mut started = vec![kwok];
    if let Some((place, runtime)) = runtime {
        started.extend(real::start(runtime, &place, folder, kubeconfig, client).await?);
    }
    control_plane.processes.extend(started);
    Ok(control_plane)
}
