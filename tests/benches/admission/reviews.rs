//! Reviews as the API server sends them.

use serde_json::{Value, json};

/// The JSON of a review for a pod of this Deployment, of about `size` bytes.
pub fn review(namespace: &str, deployment: &str, size: usize) -> String {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "9d3cbbd5-7f3a-4f2c-8a55-2b8f3ab2c6f1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace, "operation": "CREATE", "dryRun": true,
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod(deployment), "oldObject": null, "options": null,
        },
    });
    let env = "/request/object/spec/containers/0/env";
    let text = review.to_string();
    let missing = size.saturating_sub(text.len());
    if let Some(Value::Array(env)) = review.pointer_mut(env) {
        let variable = |number: usize| json!({"name": format!("MODEL_SETTING_{number}"), "value": "a value with \"quotes\" of about a hundred bytes, as paths and lists of hosts have"});
        let each = variable(0).to_string().len() + 1;
        env.extend((0..missing / each).map(variable));
    }
    review.to_string()
}

/// A pod without name and namespace, as a `ReplicaSet` creates it.
fn pod(deployment: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{deployment}-5d4f8c7b6-"),
            "labels": {"app": deployment, "pod-template-hash": "5d4f8c7b6"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d4f8c7b6"),
                "uid": "0b8f6c1e-1111-4222-8333-944455556666", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "containers": [{
                "name": "model", "image": "registry.example.com/models/server:1.2.3", "env": [],
                "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
                "volumeMounts": [{"name": "kube-api-access-x7k2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            ]}}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    })
}
