//! Dry-run writes: checked by the API server, its webhooks, policies and quotas, but not stored.

use asya_shared::key::Key;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;

use super::{ApiFailure, Cluster};

const DRY_RUN: PostParams = PostParams {
    dry_run: true,
    field_manager: None,
};

impl Cluster {
    /// Returns the object as it would be created.
    pub async fn dry_run_create(
        &self,
        kind: &ApiResource,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, ApiFailure> {
        let object = self.dynamic(object)?;
        let created = self
            .api(kind, Some(namespace))
            .create(&DRY_RUN, &object)
            .await;
        self.checked("create", kind, namespace, created)
    }

    /// Returns the object as it would replace the stored one.
    pub async fn dry_run_replace(
        &self,
        kind: &ApiResource,
        key: &Key,
        object: &Value,
    ) -> Result<Value, ApiFailure> {
        let object = self.dynamic(object)?;
        let api = self.api(kind, Some(&key.namespace));
        let replaced = api.replace(&key.name, &DRY_RUN, &object).await;
        self.checked("replace", kind, &key.namespace, replaced)
    }

    /// Returns the object as it would be after a server-side apply of these fields.
    pub async fn dry_run_apply(
        &self,
        kind: &ApiResource,
        key: &Key,
        object: &Value,
        manager: &str,
    ) -> Result<Value, ApiFailure> {
        let mut params = PatchParams::apply(manager).force();
        params.dry_run = true;
        let api = self.api(kind, Some(&key.namespace));
        let applied = api.patch(&key.name, &params, &Patch::Apply(object)).await;
        self.checked("patch", kind, &key.namespace, applied)
    }

    fn dynamic(&self, object: &Value) -> Result<DynamicObject, ApiFailure> {
        serde_json::from_value(object.clone())
            .map_err(|error| ApiFailure::new("read", &self.server, kube::Error::SerdeError(error)))
    }

    fn checked(
        &self,
        verb: &str,
        kind: &ApiResource,
        namespace: &str,
        result: kube::Result<DynamicObject>,
    ) -> Result<Value, ApiFailure> {
        let object = result.map_err(|error| self.failure(verb, kind, Some(namespace), error))?;
        self.value(object)
    }
}
