//! The volumes between sidecar and runtime (POD-6).

use serde_json::{Value, json};

use crate::names::{
    RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_KEY, RUNTIME_SCRIPT_PATH, SOCKET_DIR, SOCKET_VOLUME,
    TMP_VOLUME,
};

/// Names of the volumes; other pods than our own may have taken the short ones.
pub(super) struct VolumeNames {
    socket: &'static str,
    tmp: &'static str,
    runtime: &'static str,
}

/// In pods of our own workloads.
pub(super) const STANDALONE: VolumeNames = VolumeNames {
    socket: SOCKET_VOLUME,
    tmp: TMP_VOLUME,
    runtime: RUNTIME_CONFIG_MAP,
};

const TMP: &str = "/tmp";

impl VolumeNames {
    pub(super) fn volumes(&self) -> [Value; 3] {
        [
            json!({"name": self.socket, "emptyDir": {}}),
            json!({"name": self.tmp, "emptyDir": {}}),
            json!({"name": self.runtime, "configMap": {"name": RUNTIME_CONFIG_MAP, "defaultMode": 0o755}}),
        ]
    }

    pub(super) fn of_sidecar(&self) -> Vec<Value> {
        vec![self.socket_mount(), self.tmp_mount()]
    }

    /// What is mounted into a runtime that has these mounts already.
    pub(super) fn of_runtime(&self, mounts: &[Value]) -> Vec<Value> {
        let path = |mount: &Value| {
            mount
                .get("mountPath")
                .and_then(Value::as_str)
                .map(|path| path.trim_end_matches('/') == TMP)
        };
        let has_tmp = mounts.iter().any(|mount| path(mount) == Some(true));
        let tmp = (!has_tmp).then(|| self.tmp_mount());
        [Some(self.socket_mount()), tmp, Some(self.script_mount())]
            .into_iter()
            .flatten()
            .collect()
    }

    fn socket_mount(&self) -> Value {
        json!({"name": self.socket, "mountPath": SOCKET_DIR})
    }

    fn tmp_mount(&self) -> Value {
        json!({"name": self.tmp, "mountPath": TMP})
    }

    fn script_mount(&self) -> Value {
        json!({"name": self.runtime, "mountPath": RUNTIME_SCRIPT_PATH, "subPath": RUNTIME_SCRIPT_KEY, "readOnly": true})
    }
}
