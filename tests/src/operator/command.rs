//! Translates a container of a pod into a command on this host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, PodSpec, Secret, Volume};
use kube::{Api, Client};

use crate::error::{Error, Result, Trying};
use crate::ports;

/// Where and how the container runs on this host.
pub(super) struct Host<'a> {
    pub(super) client: Client,
    pub(super) namespace: &'a str,
    pub(super) pod_name: &'a str,
    pub(super) folder: &'a Path,
    pub(super) bin: &'a Path,
}

/// The command to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// All listeners, by flag.
    pub(super) listening: Listening,
}

/// Listeners by flag name, without the dashes.
pub(super) type Listening = BTreeMap<String, Listener>;

/// An address on which the command listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    /// The port in the pod.
    pub(super) port: u16,
    /// The address on this host: `127.0.0.1:PORT`.
    pub(super) address: String,
}

type Files = BTreeMap<String, Vec<u8>>;

/// Translates a container of a pod. The image's programs are replaced by our binaries of the same file name. Mounted
/// files are written to the host's folder, and paths to them are rewritten wherever they occur.
pub(super) async fn from_pod(pod: &PodSpec, container: &str, host: &Host<'_>) -> Result<Command> {
    let container = pod
        .containers
        .iter()
        .find(|found| found.name == container)
        .ok_or_else(|| Error::Other(format!("the pod has no container {container}")))?;
    let mounts = write_mounts(pod, container, host).await?;
    let moved = |text: &str| {
        mounts
            .iter()
            .fold(text.to_owned(), |text, (inside, outside)| {
                text.replace(inside.as_str(), outside)
            })
    };
    let mut words = container.command.iter().flatten();
    let program = words
        .next()
        .ok_or_else(|| Error::other("the container has no command"))?;
    let program = host
        .bin
        .join(Path::new(program).file_name().unwrap_or_default());
    let mut listening = Listening::new();
    let mut args = Vec::new();
    for word in words.chain(container.args.iter().flatten()) {
        args.push(on_loopback(&moved(word), &mut listening)?);
    }
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
                .map(|(key, value)| (format!("{prefix}{key}"), moved(&text(value)))),
        );
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(variable.value.clone().unwrap_or_default()),
            Some(source) => host.value(source).await?,
        };
        env.extend(value.map(|value| (variable.name.clone(), moved(&value))));
    }
    Ok(Command {
        program,
        args,
        env,
        listening,
    })
}

/// Replaces the port of `--x-bind-address=:8080` by a free loopback port.
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
    for mount in container.volume_mounts.iter().flatten() {
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
            std::fs::create_dir_all(parent).trying(format_args!("make {}", parent.display()))?;
            std::fs::write(&path, content).trying(format_args!("write {}", path.display()))?;
        }
        std::fs::create_dir_all(&folder).trying(format_args!("make {}", folder.display()))?;
        let outside = mount
            .sub_path
            .as_ref()
            .map_or_else(|| folder.clone(), |path| folder.join(path));
        written.push((mount.mount_path.clone(), outside.display().to_string()));
    }
    // Longest path first, so that nested mounts take precedence.
    written.sort_by_key(|(inside, _)| std::cmp::Reverse(inside.len()));
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
