use std::sync::Arc;

use asya_certs::data::{CA_BUNDLE, Data, LEAF, LEAF_KEY};
use asya_certs::issuer::{Ca, Settings};
use asya_certs::serve::{Certificates, Trusted};
use asya_shared::admission::facts::WebhookFacts;
use k8s_openapi::jiff::Timestamp;

use super::Readiness;
use crate::facts::SharedFacts;
use crate::index::{Index, LastResponse};
use crate::testing::installation;

/// AVL-2 (b, c, d), AVL-3
#[test]
fn ready_with_actors_facts_and_a_trusted_leaf_until_stopped() {
    let names = vec!["asya-webhook.asya-system.svc".to_owned()];
    let (index, facts) = (Arc::new(Index::new(installation())), SharedFacts::default());
    let certificates = Certificates::new(names.clone());
    let readiness = Readiness::new(
        &index,
        &LastResponse::default(),
        &certificates,
        &facts,
        true,
    );
    let pending = || readiness.pending();
    assert_eq!(pending().len(), 3, "{:?}", pending());
    assert_eq!(pending()[0], "asyncactors.asya.sh: not listed yet");

    index.init();
    index.init_done();
    facts.set(WebhookFacts::default());
    assert_eq!(pending().len(), 1);
    assert!(pending()[0].starts_with("certificate: "), "{:?}", pending());

    let (settings, now) = (Settings::with_defaults(names), Timestamp::now());
    let ca = Ca::new(&settings, now).unwrap();
    let leaf = ca.issue(&settings, now).unwrap();
    let mut data = Data::default();
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
    data.set(CA_BUNDLE, &ca.certificate.pem());
    certificates.update_secret(Some(data), now);
    assert_eq!(pending().len(), 1, "the CA is not trusted yet");
    certificates.trust(Trusted::All);
    assert_eq!(pending(), [""; 0]);

    readiness.stop();
    assert_eq!(pending(), ["process: stopping"]);
}

#[test]
fn facts_are_required_only_if_the_controller_publishes_them() {
    let (index, facts) = (Arc::new(Index::new(installation())), SharedFacts::default());
    let certificates = Certificates::new(Vec::new());
    let pending = |facts_published| {
        let readiness = Readiness::new(
            &index,
            &LastResponse::default(),
            &certificates,
            &facts,
            facts_published,
        );
        let pending = readiness.pending();
        pending.iter().any(|line| line.starts_with("facts: "))
    };
    assert!(pending(true) && !pending(false));
}
