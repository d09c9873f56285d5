//! Properties of the target that do not come from its pods.

use serde_json::json;

use crate::api::ResolvedTarget;
use crate::inject::bound::PodView;
use crate::inject::bound::testing::{Binding, env, injected, pod};

/// BIND-23
#[test]
fn adapter_follows_the_protocol_of_the_target() {
    let handler = |adapter: Option<&str>, spec| {
        let mut binding = Binding::new(&spec);
        binding.resolved = Some(ResolvedTarget {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: "phi".to_owned(),
            adapter: adapter.map(str::to_owned),
            ..ResolvedTarget::default()
        });
        let pod = injected(&binding.actor(), &pod(&json!({})));
        env(&pod, "asya-runtime", "ASYA_HANDLER")
            .unwrap()
            .to_owned()
    };
    let nothing = || json!({});
    assert_eq!(handler(None, nothing()), "asya_adapters.rest");
    assert_eq!(
        handler(Some("kserve_v2"), nothing()),
        "asya_adapters.kserve_v2"
    );
    assert_eq!(handler(Some("os.system"), nothing()), "asya_adapters.rest");
    let own = json!({"runtime": {"handler": "mine.call"}});
    assert_eq!(handler(Some("kserve_v2"), own), "mine.call");
}

/// RES-17
#[test]
fn container_with_https_probes_is_called_over_https() {
    let asks = |probe: &str, scheme: &str| {
        let spec = json!({"containers": [{"name": "main", probe: {"httpGet": {"port": 8000, "scheme": scheme}}}]});
        let raw = pod(&spec).to_string();
        PodView::decode(&raw).unwrap().spec.containers[0]
            .shape()
            .https
    };
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        assert!(asks(probe, "HTTPS"));
        assert!(!asks(probe, "HTTP"));
    }
    assert!(!asks("lifecycle", "HTTPS"));
}
