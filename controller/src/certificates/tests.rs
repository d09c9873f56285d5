#![allow(clippy::unwrap_used)]

mod server;

use asya_certs::certificate::{Certificate, Fingerprint};
use asya_certs::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY};
use asya_certs::issuer::Ca;
use asya_shared::admission::OwnerRole;
use tokio::time::advance;

use super::*;
use server::{Server, Webhook, WriteOutcome};

const DAY: Duration = Duration::from_hours(24);

fn settings() -> Settings {
    Settings::with_defaults(vec!["asya-webhook.asya-system.svc".to_owned()])
}

fn manager(server: &Server, trust: &SharedTrust) -> CertificateManager {
    let plan = CertificateConfig {
        namespace: "asya-system".to_owned(),
        secret: "asya-webhook-tls".to_owned(),
        settings: settings(),
        by_cert_manager: false,
        reachability_deadline: Duration::from_mins(10),
        check_interval: Duration::from_mins(1),
    };
    CertificateManager::new(plan, trust.clone(), server.client())
}

/// Known trust, without any webhook configuration.
fn known() -> SharedTrust {
    let trust = SharedTrust::default();
    trust.report_bundles([]);
    trust
}

fn new_ca(age: Duration) -> Ca {
    Ca::new(&settings(), Timestamp::now() - age).unwrap()
}

/// A Secret as another leader, or cert-manager, would write it.
fn secret_of(ca: &Ca, leaf_age: Duration) -> TlsSecret {
    let leaf = ca.issue(&settings(), Timestamp::now() - leaf_age).unwrap();
    let mut data = Data::default();
    data.set(CA_BUNDLE, &ca.certificate.pem());
    data.set(CA_KEY, &ca.key_pem());
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
    TlsSecret {
        data,
        ..TlsSecret::default()
    }
}

fn current_ca(secret: &TlsSecret) -> Fingerprint {
    secret.parsed().current_ca.unwrap().certificate.fingerprint
}

fn requested(trust: &SharedTrust) -> Vec<Certificate> {
    let bundle = trust.desired().borrow().clone();
    bundle
        .map(|it| it.certificates().to_vec())
        .unwrap_or_default()
}

fn owner_role(uid: &str) -> OwnerRole {
    OwnerRole {
        name: "asya-webhook-anchor".to_owned(),
        uid: uid.to_owned(),
    }
}

/// CERT-2, AVL-5
#[tokio::test]
async fn secret_is_owned_by_the_owner_role_and_not_created_without_one() {
    let server = Server::default();
    let trust = known();
    let mut manager = manager(&server, &trust);
    trust.set_owner_role(None);
    manager.reconcile(true).await;
    assert_eq!(server.state().writes, 0);

    let uids = |server: &Server| -> Vec<String> {
        let owners = server.secret().metadata.owner_references;
        owners.into_iter().flatten().map(|it| it.uid).collect()
    };
    trust.set_owner_role(Some(owner_role("first")));
    manager.reconcile(false).await;
    assert_eq!(uids(&server), ["first"]);
    let previous = server.secret();
    // The owner ClusterRole was recreated.
    trust.set_owner_role(Some(owner_role("second")));
    manager.reconcile(false).await;
    assert_eq!(uids(&server), ["second"]);
    assert_eq!(server.secret().data, previous.data);
    let writes = server.state().writes;
    manager.reconcile(false).await;
    trust.set_owner_role(None);
    manager.reconcile(false).await;
    assert_eq!(server.state().writes, writes);
    assert_eq!(uids(&server), ["second"]);
}

/// CERT-5: replicas of the webhook serve the former certificate until they have read the new one.
#[tokio::test(start_paused = true)]
async fn cas_of_a_secret_that_was_replaced_stay_trusted_until_the_new_ones_are_served() {
    let server = Server::default();
    let trust = known();
    let mut manager = manager(&server, &trust);
    manager.config.check_interval = DAY;
    manager.reconcile(true).await;
    let former = server.secret().parsed().cas;
    let restored = secret_of(&new_ca(DAY), DAY);
    server.put_in_one(restored.clone());
    let cas = restored.parsed().cas;

    let propagation = settings().propagation_delay;
    let wait = manager.reconcile(true).await;
    assert_eq!(requested(&trust), [former, cas.clone()].concat());
    assert_eq!(wait, 2 * propagation);
    advance(propagation).await;
    manager.reconcile(false).await;
    assert_eq!(requested(&trust).len(), 2);
    advance(propagation).await;
    manager.reconcile(false).await;
    assert_eq!(requested(&trust), cas);
}

/// CERT-5: the process that requested the former CAs has ended.
#[tokio::test(start_paused = true)]
async fn cas_of_a_secret_that_was_replaced_stay_trusted_by_a_new_leader() {
    let server = Server::default();
    let trust = SharedTrust::default();
    let former = new_ca(DAY).certificate;
    let restored = secret_of(&new_ca(DAY), DAY);
    server.put_in_one(restored.clone());
    let cas = restored.parsed().cas;
    let mut manager = manager(&server, &trust);
    manager.config.check_interval = DAY;
    assert_eq!(manager.reconcile(true).await, TRUST_DISCOVERY_TIMEOUT);
    assert_eq!(*trust.desired().borrow(), None);

    trust.report_bundles([former.pem().as_bytes()]);
    let wait = manager.reconcile(false).await;
    let both = [&[former], &cas[..]].concat();
    assert_eq!(requested(&trust), both);
    let spread = settings().propagation_delay;
    assert_eq!(wait, 2 * spread);
    let pem: String = both.iter().map(Certificate::pem).collect();
    trust.report_bundles([pem.as_bytes()]);
    advance(2 * spread).await;
    manager.reconcile(false).await;
    assert_eq!(requested(&trust), cas);

    let unknown = SharedTrust::default();
    let mut manager = super::tests::manager(&server, &unknown);
    advance(TRUST_DISCOVERY_TIMEOUT).await;
    manager.reconcile(true).await;
    assert_eq!(requested(&unknown), cas, "the wait is bounded");
}

/// CERT-1
#[tokio::test]
async fn missing_secret_is_created_once() {
    let server = Server::default();
    let trust = known();
    let mut manager = manager(&server, &trust);
    assert_eq!(manager.reconcile(true).await, manager.config.check_interval);
    let secret = server.secret();
    assert_eq!(secret.kind.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(requested(&trust), secret.parsed().cas);
    for _ in 0..3 {
        manager.reconcile(false).await;
    }
    let state = server.state();
    assert_eq!((state.reads, state.writes), (1, 1));
}

/// ADM-27
#[tokio::test]
async fn ca_keys_move_out_of_the_webhooks_secret_without_a_new_ca() {
    let server = Server::default();
    let trust = known();
    let previous = secret_of(&new_ca(DAY), DAY);
    server.put_in_one(previous.clone());
    let mut manager = manager(&server, &trust);
    manager.reconcile(true).await;
    assert_eq!(server.secret().data, previous.data, "nothing is reissued");
    let keys = server.one(true).unwrap();
    assert_eq!(keys.data.get(CA_KEY), previous.data.get(CA_KEY));
    assert!(keys.data.get(LEAF_KEY).is_none());
    assert!(server.one(false).unwrap().data.get(CA_KEY).is_none());
    manager.reconcile(true).await;
    assert_eq!(server.state().writes, 1);
}

/// ADM-27: the process was killed between the two writes, or rolled back to a version with a single Secret.
#[tokio::test]
async fn keys_in_the_webhooks_secret_take_precedence_until_moved() {
    let server = Server::default();
    let trust = known();
    let older = new_ca(2 * DAY);
    let newer = secret_of(&new_ca(DAY), DAY);
    server.put(Some(secret_of(&older, 2 * DAY)));
    server.put_in_one(newer.clone());
    let mut manager = manager(&server, &trust);
    manager.reconcile(true).await;
    assert_eq!(server.secret().data, newer.data);
    let keys = server.one(true).unwrap();
    assert_eq!(keys.data.get(CA_KEY), newer.data.get(CA_KEY));
}

/// CERT-2
#[tokio::test]
async fn concurrent_write_is_kept_and_nothing_is_created_twice() {
    let other = secret_of(&new_ca(DAY), DAY);
    for previous in [None, Some(secret_of(&new_ca(DAY), 40 * DAY))] {
        let server = Server::default();
        let trust = known();
        let former = previous.as_ref().map(|it| it.parsed().cas);
        server.put(previous);
        server.next_write(WriteOutcome::PrecededBy(Box::new(Some(other.clone()))));
        manager(&server, &trust).reconcile(true).await;
        assert_eq!(server.secret().data, other.data);
        assert_eq!(server.state().writes, 0);
        let trusted = [former.unwrap_or_default(), other.parsed().cas].concat();
        assert_eq!(requested(&trust), trusted);
    }
}

/// CERT-2
#[tokio::test]
async fn concurrently_deleted_secret_is_recreated() {
    let server = Server::default();
    let trust = known();
    let lost = new_ca(DAY);
    server.put(Some(secret_of(&lost, 25 * DAY)));
    server.next_write(WriteOutcome::PrecededBy(Box::default()));
    manager(&server, &trust).reconcile(true).await;
    assert_ne!(current_ca(&server.secret()), lost.certificate.fingerprint);
    assert_eq!(server.state().writes, 1);
}

/// CERT-2
#[tokio::test]
async fn write_with_a_lost_response_is_not_repeated() {
    let server = Server::default();
    let trust = known();
    let mut manager = manager(&server, &trust);
    server.next_write(WriteOutcome::ResponseLost);
    let wait = manager.reconcile(true).await;
    assert!(wait < manager.config.check_interval, "{wait:?}");
    let created = current_ca(&server.secret());
    assert!(!manager.is_current, "the cached Secret may be outdated");
    manager.reconcile(true).await;
    assert_eq!(
        (current_ca(&server.secret()), server.state().writes),
        (created, 1)
    );
}

#[tokio::test]
async fn refused_write_backs_off() {
    let server = Server::default();
    let trust = known();
    let mut manager = manager(&server, &trust);
    let mut waits = Vec::new();
    for _ in 0..10 {
        server.next_write(WriteOutcome::Refused(403));
        waits.push(manager.reconcile(true).await);
    }
    assert!(waits.is_sorted() && waits[0] == Duration::from_secs(1));
    assert_eq!(waits.last(), Some(&RETRY.after(u32::MAX)));
    manager.reconcile(true).await;
    assert_eq!(server.state().writes, 1);
}

/// CERT-4
#[tokio::test(start_paused = true)]
async fn next_ca_signs_only_after_every_configuration_trusts_it() {
    let server = Server::default();
    let trust = SharedTrust::default();
    let due = new_ca(250 * DAY);
    let old = due.certificate.pem();
    server.put(Some(secret_of(&due, DAY)));
    trust.report_bundles([old.as_bytes()]);
    let mut manager = manager(&server, &trust);
    manager.reconcile(true).await;
    let both = requested(&trust);
    assert_eq!(both.len(), 2, "the next CA is prepared and requested");
    assert_eq!(server.state().writes, 1);

    let pem = trust.desired().borrow().as_ref().unwrap().pem();
    // Only one of two configurations has it.
    trust.report_bundles([pem.as_bytes(), old.as_bytes()]);
    advance(Duration::from_secs(31)).await;
    assert_eq!(
        manager.reconcile(false).await,
        manager.config.check_interval
    );
    // Both have it.
    trust.report_bundles([pem.as_bytes(), pem.as_bytes()]);
    advance(Duration::from_secs(29)).await;
    assert_eq!(manager.reconcile(false).await, Duration::from_secs(1));
    assert_eq!(current_ca(&server.secret()), due.certificate.fingerprint);
    advance(Duration::from_secs(1)).await;
    manager.reconcile(false).await;
    assert_eq!(current_ca(&server.secret()), both[1].fingerprint);
    assert_eq!(requested(&trust), both, "the requested bundle is unchanged");
    assert_eq!(server.state().writes, 2);
}

/// A manager that could switch to the next CA, which every configuration trusts.
async fn about_to_switch(
    server: &Server,
    trust: &SharedTrust,
) -> (CertificateManager, Fingerprint) {
    let due = new_ca(250 * DAY);
    server.put(Some(secret_of(&due, DAY)));
    trust.report_bundles([due.certificate.pem().as_bytes()]);
    let mut manager = manager(server, trust);
    manager.reconcile(true).await;
    let pem = trust.desired().borrow().as_ref().unwrap().pem();
    trust.report_bundles([pem.as_bytes()]);
    advance(Duration::from_secs(31)).await;
    (manager, due.certificate.fingerprint)
}

/// CERT-4 (3)
#[tokio::test(start_paused = true)]
async fn next_ca_signs_after_a_dry_run_reached_the_webhook() {
    for (webhook, reached) in [
        (Webhook::Refuses, true),
        (Webhook::Warns, true),
        (Webhook::Unreachable, false),
    ] {
        let server = Server::default();
        let trust = SharedTrust::default();
        let (mut manager, old) = about_to_switch(&server, &trust).await;
        server.state().webhook = webhook;
        let wait = manager.reconcile(false).await;
        assert_eq!(current_ca(&server.secret()) != old, reached);
        assert_eq!(server.state().tries, 1);
        if !reached {
            assert_eq!(wait, REACHABILITY_RETRY);
            server.state().webhook = Webhook::Refuses;
            manager.reconcile(false).await;
            assert_ne!(
                current_ca(&server.secret()),
                old,
                "the webhook is reachable again"
            );
        }
    }
}

/// CERT-4 (3), CERT-5
#[tokio::test(start_paused = true)]
async fn next_ca_signs_after_the_deadline_or_without_a_valid_certificate() {
    let server = Server::default();
    let trust = SharedTrust::default();
    let (mut manager, old) = about_to_switch(&server, &trust).await;
    server.state().webhook = Webhook::Unreachable;
    manager.reconcile(false).await;
    advance(Duration::from_mins(10)).await;
    manager.reconcile(false).await;
    assert_ne!(current_ca(&server.secret()), old);

    let server = Server::default();
    let trust = SharedTrust::default();
    let (mut manager, old) = about_to_switch(&server, &trust).await;
    server.state().webhook = Webhook::Unreachable;
    let mut secret = server.secret();
    secret.data.set(CA_KEY, "lost");
    secret.data.set(LEAF, "lost");
    server.put(Some(secret));
    manager.reconcile(true).await;
    assert_ne!(current_ca(&server.secret()), old);
    assert_eq!(server.state().tries, 0);
}

/// CERT-5
#[tokio::test(start_paused = true)]
async fn first_ca_waits_until_the_trusted_cas_are_known() {
    let server = Server::default();
    let trust = SharedTrust::default();
    let mut manager = manager(&server, &trust);
    assert_eq!(manager.reconcile(true).await, TRUST_DISCOVERY_TIMEOUT);
    assert_eq!(server.state().writes, 0);
    let lost = new_ca(DAY).certificate;
    trust.report_bundles([lost.pem().as_bytes()]);
    manager.reconcile(false).await;
    assert_eq!(server.secret().parsed().cas[0], lost);

    let server = Server::default();
    let mut manager = super::tests::manager(&server, &SharedTrust::default());
    manager.reconcile(true).await;
    advance(TRUST_DISCOVERY_TIMEOUT).await;
    manager.reconcile(false).await;
    assert_eq!(
        server.state().writes,
        1,
        "the wait for the trusted CAs is bounded"
    );
}

/// CERT-5
#[tokio::test]
async fn immutable_secret_is_replaced_by_a_mutable_one_when_its_data_must_change() {
    let server = Server::default();
    let trust = known();
    let ca = new_ca(DAY);
    let mut due = secret_of(&ca, 25 * DAY);
    due.immutable = Some(true);
    due.metadata.uid = Some("first".to_owned());
    due.metadata.labels = Some([("team".to_owned(), "ml".to_owned())].into());
    server.put(Some(due.clone()));
    let mut manager = manager(&server, &trust);
    assert_eq!(manager.reconcile(true).await, manager.config.check_interval);
    let written = server.secret();
    assert_ne!(
        written.data.get(LEAF),
        due.data.get(LEAF),
        "a new certificate"
    );
    assert_eq!(current_ca(&written), ca.certificate.fingerprint);
    assert_eq!(written.metadata.labels, due.metadata.labels);
    assert_eq!((written.immutable, written.metadata.uid), (None, None));

    // One that needs no change stays.
    let mut good = secret_of(&ca, DAY);
    good.immutable = Some(true);
    server.put(Some(good));
    let writes = server.state().writes;
    manager.reconcile(true).await;
    assert_eq!(server.state().writes, writes);
    assert_eq!(server.secret().immutable, Some(true));
}

/// CERT-7
#[tokio::test]
async fn with_cert_manager_nothing_is_written_and_old_cas_stay_trusted() {
    let server = Server::default();
    let trust = SharedTrust::default();
    let mut manager = manager(&server, &trust);
    manager.config.by_cert_manager = true;
    manager.reconcile(true).await;
    let of = |age| new_ca(age).certificate;
    let expired = of(366 * DAY);
    let old = of(300 * DAY);
    let other = new_ca(DAY);
    let mut secret = secret_of(&other, 40 * DAY);
    secret.data.remove(CA_KEY);
    server.put(Some(secret));
    manager.reconcile(true).await;
    assert!(
        requested(&trust).is_empty(),
        "the trusted CAs are not known yet"
    );
    let present = [&expired, &old].map(Certificate::pem).concat();
    trust.report_bundles([present.as_bytes()]);
    manager.reconcile(false).await;
    assert_eq!(requested(&trust), [old, other.certificate]);
    assert_eq!(server.state().writes, 0);
}
