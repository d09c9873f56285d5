//! KEDA's objects, with the parameters of their planned steps.

use asya_shared::applied::HashedManifest;
use asya_shared::scaling::trigger_authentication_name;

use super::child::{ChildStep, PlannedChild};
use super::steps::ScalingStep;
use crate::reconcile::model::observed::Observed;
use crate::record::{ChildRecord, Key, ScaledObjectRecord, TriggerAuthentication};

#[derive(Debug)]
pub struct ScalingChildren {
    /// The `ConfigMap` that the `TriggerAuthentication` reads.
    pub config_map: Option<(Key, HashedManifest)>,
    pub trigger_authentication: PlannedChild<ChildRecord<TriggerAuthentication>>,
    pub scaled_object: PlannedChild<ScaledObjectRecord>,
}

impl ScalingChildren {
    pub fn new(observed: &Observed, step: Option<&ScalingStep>) -> Self {
        let keep = ChildStep::Keep;
        let (authentication, scaled_object) = match step {
            Some(ScalingStep::Enabled(plan)) => (&plan.trigger_authentication, &plan.scaled_object),
            Some(ScalingStep::Disabled(teardown) | ScalingStep::Blocked(teardown, _)) => {
                (&teardown.trigger_authentication, &teardown.scaled_object)
            }
            None => (&keep, &keep),
        };
        let keda = &observed.scaling;
        let key = observed.key();
        let ownership = &observed.ownership;
        let objects = observed.scaling_objects().and_then(Result::ok);
        let config_map = objects.filter(|_| keda.installed);
        let config_map = config_map.and_then(|it| it.config_map.as_ref());
        let desired = objects.and_then(|it| it.trigger_authentication.as_ref());
        let name = Key::new(&key.namespace, &trigger_authentication_name(&key.name));
        Self {
            config_map: config_map
                .map(|manifest| (Key::new(&key.namespace, manifest.name()), manifest.clone())),
            trigger_authentication: PlannedChild::new(
                ownership,
                name,
                authentication,
                &keda.trigger_authentication,
                desired,
            ),
            scaled_object: PlannedChild::new(
                ownership,
                key.clone(),
                scaled_object,
                &keda.scaled_object,
                objects.map(|it| &it.scaled_object),
            ),
        }
    }
}
