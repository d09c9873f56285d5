//! The image contains everything that the sidecar needs, and the sidecar needs no privileges.

use std::path::{Path, PathBuf};

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{check, eventually};
use asya_tests::process::{Folder, Process, Spec, output};
use asya_tests::tls_proxy::TlsProxy;
use serde_json::{Value, json};

use crate::rig::{
    Actor, SOON, bin_folder, declare, message, put, shared_rabbitmq, shared_sqs, take,
};
use crate::sqs;

/// A user from the range that `OpenShift` assigns, unknown to every image.
const USER: u32 = 1_000_680_000;

/// Starts a program as a container engine would, with the image's layer as its whole file system: read-only except for
/// the pod's volume, and as a user without capabilities. Namespaces replace root; all mounts vanish with them.
const CONTAINER: &str = r#"
set -eu
root=$1 layer=$2 volume=$3 authority=$4 user=$5
shift 5
mount -t tmpfs tmpfs "$root"
tar --extract --file "$layer" --directory "$root"
# The files are ours: their owner gets the rights that any user has.
chmod -R u=o,g=o "$root"
cat "$authority" >> "$root/etc/ssl/certs/ca-certificates.crt"
# The kubelet mounts this file into every container.
cp /etc/hosts "$root/etc/hosts"
mkdir -p "$root$volume"
mount --bind "$volume" "$root$volume"
mount -o remount,ro "$root"
exec setpriv --no-new-privs unshare --user --map-user "$user" --map-group "$user" --root "$root" -- "$@"
"#;

/// SC-97, SC-98
#[tokio::test]
async fn the_images_files_alone_move_a_message_as_any_user_and_read_only() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let (image, volume) = (Image::build().await?, Folder::create("sidecar-volume")?);
    let actor = Actor::on_rabbitmq(&broker, "foo")?
        .with(&image.env())
        .with(&[("ASYA_SOCKET_DIR", &volume.path().display().to_string())])
        // Resolved by the image's C library.
        .with(&[("ASYA_RABBITMQ_HOST", "localhost")]);
    let sidecar = image
        .start(&actor, volume.path(), Path::new("/dev/null"))
        .await?;
    let alive = eventually("the sidecar is alive", SOON, async || {
        let (status, words) = actor.page("/healthz").await?;
        check(status == 200, words)
    });
    sidecar.alive_while(alive).await?;
    let rights = rights(&sidecar)?;
    assert_eq!(
        rights,
        ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"],
        "SC-97"
    );
    assert_eq!(
        files(volume.path())?,
        ["lock"],
        "the sidecar writes no file"
    );

    let _runtime = actor.runtime("echo").await?;
    actor.is_ready().await?;
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    let status = sidecar.stop(SOON).await?;
    assert_eq!(status.code(), Some(0), "{}", actor.logs()?);
    Ok(())
}

/// SC-98: the AWS SDK reads the image's CA bundle, and has none of its own.
#[tokio::test]
async fn sqs_is_trusted_by_the_authorities_of_the_image() -> Result<()> {
    let url = shared_sqs().await?;
    let client = sqs::queues(&url, &["i-echo", "i-bar"]).await?;
    let (image, volume) = (Image::build().await?, Folder::create("sidecar-volume")?);
    let proxy = TlsProxy::start(volume.path(), &url).await?;
    let authority = volume.path().join("authority.pem");
    std::fs::write(&authority, &proxy.ca).map_err(Error::other)?;
    let actor = Actor::on_sqs(&proxy.url, "i-echo")?
        .with(&image.env())
        .with(&[("ASYA_SOCKET_DIR", &volume.path().display().to_string())]);
    let stranger = image.start(&actor, volume.path(), Path::new("/dev/null"));
    let stranger = stranger.await?;
    let _runtime = actor.runtime("echo").await?;
    let refused = eventually("the certificate is refused", SOON, async || {
        let logs = actor.logs()?;
        check(
            logs.contains("cannot poll queue") && logs.contains("connection failed"),
            logs,
        )
    });
    stranger.alive_while(refused).await?;
    stranger.stop(SOON).await?;
    let _sidecar = image.start(&actor, volume.path(), &authority).await?;
    let sent = message("1", &["i-echo", "i-bar"], json!(1));
    client.send("asya-i-echo", &[sent]).await?;
    assert_eq!(sqs::take(&client, "i-bar", 1).await?[0]["id"], "1");
    Ok(())
}

/// The sidecar's image, as `make image` builds it.
struct Image {
    folder: Folder,
    layer: PathBuf,
    config: Value,
}

impl Image {
    async fn build() -> Result<Self> {
        let folder = Folder::create("sidecar-image")?;
        let path = |name: &str| folder.path().join(name);
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image");
        let tool = |name: &str| Spec::new(name, name).inherit_env();
        let (program, root, archive) = (path("asya-sidecar"), path("root"), path("image.tar"));
        let built = bin_folder().join("asya-sidecar");
        let strip = tool("strip").arg("-o").arg(program.display());
        output(strip.arg(built.display())).await?;
        let lay_out = Spec::new("root.sh", scripts.join("root.sh")).inherit_env();
        output(lay_out.arg(root.display()).arg(program.display())).await?;
        let pack = tool("python3").arg(scripts.join("archive.py").display());
        let pack = pack.arg("asya-sidecar").arg(root.display());
        output(pack.arg("asya-sidecar:test").arg(archive.display())).await?;
        let unpack = tool("tar").arg("--extract").arg("--directory");
        let unpack = unpack.arg(folder.path().display());
        output(unpack.arg("--file").arg(archive.display())).await?;

        let manifest = json_of(&path("manifest.json"))?;
        let part = |of: &Value| of.as_str().map(path);
        let parts = part(&manifest[0]["Config"]).zip(part(&manifest[0]["Layers"][0]));
        let (config, layer) =
            parts.ok_or_else(|| Error::Other(format!("no config or layer: {manifest}")))?;
        let config = json_of(&config)?["config"].take();
        Ok(Self {
            folder,
            layer,
            config,
        })
    }

    /// The environment variables set by the image.
    fn env(&self) -> Vec<(&str, &str)> {
        let variables = self.config["Env"].as_array().into_iter().flatten();
        variables
            .filter_map(|it| it.as_str()?.split_once('='))
            .collect()
    }

    /// Starts the image's entrypoint for an actor whose socket is in the volume, trusting one additional CA.
    async fn start(&self, actor: &Actor, volume: &Path, authority: &Path) -> Result<Process> {
        let entrypoint = self.config["Entrypoint"].as_array().into_iter().flatten();
        let spec = actor
            .spec("sidecar", "unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", CONTAINER, "sh"])
            .arg(self.folder.path().join("root").display())
            .arg(self.layer.display())
            .arg(volume.display())
            .arg(authority.display())
            .arg(USER)
            .args(entrypoint.filter_map(Value::as_str));
        Process::start(spec).await
    }
}

fn json_of(file: &Path) -> Result<Value> {
    let bytes = std::fs::read(file).map_err(Error::other)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The lines of `/proc/PID/status` that show a process's privileges.
fn rights(process: &Process) -> Result<Vec<String>> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()));
    let status = status.map_err(Error::other)?;
    Ok(status
        .lines()
        .filter(|line| line.starts_with("CapEff:") || line.starts_with("NoNewPrivs:"))
        .map(str::to_owned)
        .collect())
}

fn files(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(Error::other)?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}
