//! The volumes shared by sidecar and runtime (POD-6, BIND-21).

use serde_json::{Value, json};

use crate::names::{
    BOUND_SOCKET_VOLUME, BOUND_TMP_VOLUME, NO_TOKEN_VOLUME, RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_DIR,
    RUNTIME_SCRIPT_KEY, RUNTIME_SCRIPT_PATH, SOCKET_DIR, SOCKET_VOLUME, TMP_VOLUME,
};

/// The volumes of a pod. Pods of other controllers may already use the short names, and our containers must not see the
/// token of their service account.
pub(super) struct Volumes {
    socket: &'static str,
    tmp: &'static str,
    runtime: &'static str,
    /// Whether to mount the script alone or its directory with the adapters.
    script: Script,
    /// The volume that hides the token of the pod's service account.
    no_token: Option<&'static str>,
}

enum Script {
    File,
    Folder,
}

/// Volumes in pods of our own workloads.
pub(super) const STANDALONE_VOLUMES: Volumes = Volumes {
    socket: SOCKET_VOLUME,
    tmp: TMP_VOLUME,
    runtime: RUNTIME_CONFIG_MAP,
    script: Script::File,
    no_token: None,
};

/// Volumes in pods of other controllers (BIND-21, BIND-28).
pub(super) const BOUND_VOLUMES: Volumes = Volumes {
    socket: BOUND_SOCKET_VOLUME,
    tmp: BOUND_TMP_VOLUME,
    runtime: RUNTIME_CONFIG_MAP,
    script: Script::Folder,
    no_token: Some(NO_TOKEN_VOLUME),
};

const TMP: &str = "/tmp";
/// Where the API server mounts the service account token, unless the container mounts something else there.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Volumes {
    pub(super) fn volumes(&self) -> Vec<Value> {
        let empty = |name: &str| json!({"name": name, "emptyDir": {}});
        let script = json!({"name": self.runtime, "configMap": {"name": RUNTIME_CONFIG_MAP, "defaultMode": 0o755}});
        [
            Some(empty(self.socket)),
            Some(empty(self.tmp)),
            Some(script),
            self.no_token.map(empty),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub(super) fn sidecar_mounts(&self) -> Vec<Value> {
        [
            Some(self.socket_mount()),
            Some(self.tmp_mount()),
            self.no_token_mount(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The mounts to add to a runtime that already has these mounts.
    pub(super) fn runtime_mounts(&self, mounts: &[Value]) -> Vec<Value> {
        let path = |mount: &Value| {
            mount
                .get("mountPath")
                .and_then(Value::as_str)
                .map(|path| path.trim_end_matches('/') == TMP)
        };
        let has_tmp = mounts.iter().any(|mount| path(mount) == Some(true));
        let tmp = (!has_tmp).then(|| self.tmp_mount());
        [
            Some(self.socket_mount()),
            tmp,
            Some(self.script_mount()),
            self.no_token_mount(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn no_token_mount(&self) -> Option<Value> {
        self.no_token
            .map(|name| json!({"name": name, "mountPath": TOKEN_DIR, "readOnly": true}))
    }

    fn socket_mount(&self) -> Value {
        json!({"name": self.socket, "mountPath": SOCKET_DIR})
    }

    fn tmp_mount(&self) -> Value {
        json!({"name": self.tmp, "mountPath": TMP})
    }

    fn script_mount(&self) -> Value {
        match self.script {
            Script::File => {
                json!({"name": self.runtime, "mountPath": RUNTIME_SCRIPT_PATH, "subPath": RUNTIME_SCRIPT_KEY, "readOnly": true})
            }
            Script::Folder => {
                json!({"name": self.runtime, "mountPath": RUNTIME_SCRIPT_DIR, "readOnly": true})
            }
        }
    }
}
