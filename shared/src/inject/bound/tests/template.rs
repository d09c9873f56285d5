use serde_json::{Value, json};

use crate::inject::bound::testing::{Binding, injected as inject, pod};
use crate::inject::bound::{BoundActor, BoundPlan, InjectionReason, strip_injected};

fn plan(actor: &BoundActor) -> &BoundPlan {
    actor.plan().unwrap()
}

fn template(pod: &Value) -> Value {
    let annotations = json!({"team": "a"});
    json!({"metadata": {"labels": {"app": "phi"}, "annotations": annotations}, "spec": pod["spec"]})
}

/// Merges our fields into a template, as server-side apply does.
fn applied(template: &Value, ours: &Value) -> Value {
    let mut all = template.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in ours["metadata"][map].as_object().unwrap() {
            all["metadata"][map][key] = value.clone();
        }
    }
    for (list, items) in ours["spec"].as_object().unwrap() {
        if !all["spec"][list].is_array() {
            all["spec"][list] = json!([]);
        }
        let items = items.as_array().unwrap().clone();
        all["spec"][list].as_array_mut().unwrap().extend(items);
    }
    all
}

/// BIND-50, BIND-20 to BIND-28
#[test]
fn template_gets_what_the_webhook_would_add_to_its_pods() {
    for spec in [
        json!({}),
        json!({"sidecar": {"native": true}}),
        json!({"runtime": {"targetURL": "http://127.0.0.1:9"}}),
    ] {
        let binding = Binding::new(&spec);
        let actor = binding.actor();
        let pod = pod(&json!({}));
        let injected = inject(&actor, &pod);
        let ours = plan(&actor).render_for_template(&template(&pod)).unwrap();
        let made = applied(&template(&pod), &ours);
        assert_eq!(made["spec"], injected["spec"], "{spec}");
        for map in ["labels", "annotations"] {
            for (key, value) in ours["metadata"][map].as_object().unwrap() {
                assert_eq!(&injected["metadata"][map][key], value, "{spec}");
            }
        }
        assert_eq!(
            plan(&actor).render_for_template(&made).unwrap(),
            ours,
            "{spec}: fields of an earlier apply are ignored"
        );
        let mut taken = made;
        strip_injected(&mut taken);
        assert_eq!(taken, template(&pod), "{spec}: as before");
    }
}

/// BIND-46, BIND-50
#[test]
fn template_that_cannot_have_the_sidecar_is_reported_with_the_reason() {
    let binding = Binding::new(&json!({}));
    let actor = binding.actor();
    let refused = |spec: &Value| {
        let pod = pod(spec);
        let obstacle = plan(&actor)
            .render_for_template(&template(&pod))
            .unwrap_err();
        assert!(!obstacle.text.is_empty());
        obstacle.reason
    };
    assert_eq!(
        refused(&json!({"hostNetwork": true})),
        InjectionReason::HostNetwork
    );
    let volumes = json!({"volumes": [{"name": "asya-tmp", "emptyDir": {}}]});
    assert_eq!(refused(&volumes), InjectionReason::SpecConflict);
    let silent = json!({"containers": [{"name": "model", "image": "model:1"}]});
    assert_eq!(refused(&silent), InjectionReason::TargetUrlUnknown);
}

/// BIND-50
#[test]
fn template_without_injected_fields_is_unchanged() {
    let theirs = template(&pod(
        &json!({"volumes": [{"name": "data", "emptyDir": {}}]}),
    ));
    let mut same = theirs.clone();
    strip_injected(&mut same);
    assert_eq!(same, theirs);
}
