//! The container runtime of a real node, installed from the distribution's packages.

use std::path::{Path, PathBuf};

use super::packages;
use crate::error::Result;

const PACKAGES: [&str; 6] = [
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "nftables",
    "conntrack",
];

/// Where the programs may be, in addition to the PATH.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/bin", "/sbin"];

const PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Returns the folder of the CNI plugins; the other programs are in their usual places.
pub(super) async fn ensure() -> Result<PathBuf> {
    packages::ensure(
        "containerd",
        &PACKAGES,
        Some("containerd"),
        || -> Option<PathBuf> {
            let programs = ["containerd", "ctr", "runc", "nft", "conntrack"];
            let there = |name: &&str| {
                FOLDERS
                    .iter()
                    .any(|folder| Path::new(folder).join(name).exists())
            };
            if !programs.iter().all(there) {
                return None;
            }
            let mut plugins = PLUGINS.iter().map(PathBuf::from);
            plugins.find(|folder| folder.join("bridge").exists())
        },
    )
    .await
}
