//! Translates a container of a pod into a command on this host.

mod rewrite;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, PodSpec, Secret, Volume};
use kube::{Api, Client};

pub use self::rewrite::expanded;
use crate::error::{Context, Error, Result};
use crate::ports;

/// Where and how the container runs on this host.
pub(crate) struct Host<'a> {
    pub(crate) client: Client,
    pub(crate) namespace: &'a str,
    pub(crate) pod_name: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) bin: &'a Path,
}

/// The command to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// All listeners, by flag.
    pub(crate) listening: Listening,
}

/// Listeners by flag name, without the dashes.
pub(crate) type Listening = BTreeMap<String, Listener>;

/// An address on which the command listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The port in the pod.
    pub(crate) port: u16,
    /// The address on this host: `127.0.0.1:PORT`.
    pub(crate) address: String,
}

/// Prefix of the volume that the API server adds to pods.
const TOKEN_VOLUME: &str = "kube-api-access-";

type Files = BTreeMap<String, Vec<u8>>;

/// Translates a container or an init container of a pod. Programs that the image holds at a path are replaced by our
/// binaries of the same file name; others are this host's, such as `python3`. Mounted files are written to the host's
/// folder, which containers of one pod share, and paths to them are rewritten wherever they occur.
pub(crate) async fn from_pod(pod: &PodSpec, container: &str, host: &Host<'_>) -> Result<Command> {
    let container = pod
        .containers
        .iter()
        .chain(pod.init_containers.iter().flatten())
        .find(|found| found.name == container)
        .ok_or_else(|| Error::Other(format!("the pod has no container {container}")))?;
    let mounts = write_mounts(pod, container, host).await?;
    let rewritten = |text: &str| rewrite::rewritten(text, &mounts);
    let mut words = container.command.iter().flatten();
    let program = match words.next() {
        Some(word) => program(word, host.bin),
        // Our images run a single program, which has the container's name.
        None => host.bin.join(&container.name),
    };
    let mut listening = Listening::new();
    let mut args = Vec::new();
    for word in words.chain(container.args.iter().flatten()) {
        args.push(on_loopback(&rewritten(word), &mut listening)?);
    }
    let env = environment(container, host).await?;
    Ok(Command {
        program,
        args,
        env: env
            .into_iter()
            .map(|(name, value)| (name, rewritten(&value)))
            .collect(),
        listening,
    })
}

fn program(word: &str, bin: &Path) -> PathBuf {
    match Path::new(word).file_name() {
        Some(name) if word.contains('/') => bin.join(name),
        _ => PathBuf::from(word),
    }
}

/// The container's environment, in order.
async fn environment(container: &Container, host: &Host<'_>) -> Result<Vec<(String, String)>> {
    let mut env = Vec::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let files = if let Some(secret) = &source.secret_ref {
            host.secret(&secret.name, secret.optional).await?
        } else if let Some(map) = &source.config_map_ref {
            host.config_map(&map.name, map.optional).await?
        } else {
            Files::new()
        };
        env.extend(
            files
                .iter()
                .map(|(key, value)| (format!("{prefix}{key}"), text(value))),
        );
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expanded(
                variable.value.as_deref().unwrap_or_default(),
                &env,
            )),
            Some(source) => host.value(source).await?,
        };
        env.extend(value.map(|value| (variable.name.clone(), value)));
    }
    Ok(env)
}

/// Replaces the port of `--x-bind-address=:8080` with a free loopback port.
fn on_loopback(word: &str, listening: &mut Listening) -> Result<String> {
    let Some((flag, address)) = word
        .split_once('=')
        .filter(|(flag, _)| flag.ends_with("-bind-address"))
    else {
        return Ok(word.to_owned());
    };
    // "0" disables the listener.
    if address == "0" {
        return Ok(word.to_owned());
    }
    let port = address.rsplit_once(':').map(|(_, port)| port.parse());
    let Some(Ok(port)) = port else {
        return Err(Error::Other(format!("{word} names no port")));
    };
    let address = format!("127.0.0.1:{}", ports::free()?);
    let word = format!("{flag}={address}");
    let flag = flag.trim_start_matches('-').to_owned();
    listening.insert(flag, Listener { port, address });
    Ok(word)
}

/// Writes the mounted files; returns pairs of the path in the container and the path on the host.
async fn write_mounts(
    pod: &PodSpec,
    container: &Container,
    host: &Host<'_>,
) -> Result<Vec<(String, String)>> {
    let mut written = Vec::new();
    let mounts = container.volume_mounts.iter().flatten();
    // Programs get their service account token elsewhere, if at all.
    for mount in mounts.filter(|mount| !mount.name.starts_with(TOKEN_VOLUME)) {
        let volume = pod
            .volumes
            .iter()
            .flatten()
            .find(|volume| volume.name == mount.name);
        let volume =
            volume.ok_or_else(|| Error::Other(format!("the pod has no volume {}", mount.name)))?;
        let folder = host.folder.join("volumes").join(&volume.name);
        for (name, content) in files(volume, host).await? {
            let path = folder.join(&name);
            let parent = path.parent().unwrap_or(&folder);
            std::fs::create_dir_all(parent).context(format_args!("make {}", parent.display()))?;
            std::fs::write(&path, content).context(format_args!("write {}", path.display()))?;
        }
        std::fs::create_dir_all(&folder).context(format_args!("make {}", folder.display()))?;
        let outside = mount
            .sub_path
            .as_ref()
            .map_or_else(|| folder.clone(), |path| folder.join(path));
        written.push((mount.mount_path.clone(), outside.display().to_string()));
    }
    Ok(written)
}

async fn files(volume: &Volume, host: &Host<'_>) -> Result<Files> {
    let (all, items) = if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        (host.secret(name, source.optional).await?, &source.items)
    } else if let Some(source) = &volume.config_map {
        (
            host.config_map(&source.name, source.optional).await?,
            &source.items,
        )
    } else if volume.empty_dir.is_some() {
        return Ok(Files::new());
    } else {
        return Err(Error::Other(format!(
            "volume {} is of a kind that is not supported here",
            volume.name
        )));
    };
    let Some(items) = items else { return Ok(all) };
    Ok(items
        .iter()
        .filter_map(|item| Some((item.path.clone(), all.get(&item.key)?.clone())))
        .collect())
}

impl Host<'_> {
    async fn value(&self, source: &EnvVarSource) -> Result<Option<String>> {
        if let Some(field) = &source.field_ref {
            let value = match field.field_path.as_str() {
                "metadata.name" => self.pod_name,
                "metadata.namespace" => self.namespace,
                "status.podIP" | "status.hostIP" => "127.0.0.1",
                other => {
                    return Err(Error::Other(format!(
                        "fieldRef {other} is not supported here"
                    )));
                }
            };
            return Ok(Some(value.to_owned()));
        }
        let (files, key, optional) = if let Some(secret) = &source.secret_key_ref {
            (
                self.secret(&secret.name, secret.optional).await?,
                &secret.key,
                secret.optional,
            )
        } else if let Some(map) = &source.config_map_key_ref {
            (
                self.config_map(&map.name, map.optional).await?,
                &map.key,
                map.optional,
            )
        } else {
            return Err(Error::other("this kind of valueFrom is not supported here"));
        };
        match files.get(key) {
            Some(value) => Ok(Some(text(value))),
            None if optional == Some(true) => Ok(None),
            None => Err(Error::Other(format!(
                "key {key} is missing: the pod would not start"
            ))),
        }
    }

    async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Files> {
        let found = Api::<Secret>::namespaced(self.client.clone(), self.namespace)
            .get_opt(name)
            .await?;
        match found {
            Some(secret) => Ok(secret
                .data
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect()),
            None if optional == Some(true) => Ok(Files::new()),
            None => Err(Error::Other(format!(
                "Secret {name} is missing: the pod would not start"
            ))),
        }
    }

    async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Files> {
        let found = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace)
            .get_opt(name)
            .await?;
        match found {
            Some(map) => {
                let texts = map
                    .data
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(key, value)| (key, value.into_bytes()));
                let bytes = map
                    .binary_data
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(key, value)| (key, value.0));
                Ok(texts.chain(bytes).collect())
            }
            None if optional == Some(true) => Ok(Files::new()),
            None => Err(Error::Other(format!(
                "ConfigMap {name} is missing: the pod would not start"
            ))),
        }
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests;
