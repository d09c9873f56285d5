#![allow(clippy::unwrap_used)]

mod server;

use asya_certs::certificate::{Certificate, Fingerprint};
use asya_certs::data::{AUTHORITIES, AUTHORITY_KEY, Data, LEAF, LEAF_KEY};
use asya_certs::mint::Authority;
use asya_shared::admission::Anchor;
use tokio::time::advance;

use super::*;
use server::{Fate, Server, Webhook};

const DAY: Duration = Duration::from_hours(24);

fn settings() -> Settings {
    Settings::of(vec!["asya-webhook.asya-system.svc".to_owned()])
}

fn keeper(server: &Server, trust: &Trust) -> CertificateManager {
    let plan = CertificatePlan {
        namespace: "asya-system".to_owned(),
        secret: "asya-webhook-tls".to_owned(),
        settings: settings(),
        by_cert_manager: false,
        reached_within: Duration::from_mins(10),
        look: Duration::from_mins(1),
    };
    CertificateManager::new(plan, trust.clone(), server.client())
}

/// Trust that knows that there is no webhook configuration.
fn known() -> Trust {
    let trust = Trust::default();
    trust.found([]);
    trust
}

fn authority(age: Duration) -> Authority {
    Authority::new(&settings(), Timestamp::now() - age).unwrap()
}

/// A Secret as another leader, or cert-manager, would write it.
fn secret_of(authority: &Authority, leaf_age: Duration) -> TlsSecret {
    let leaf = authority
        .issue(&settings(), Timestamp::now() - leaf_age)
        .unwrap();
    let mut data = Data::default();
    data.set(AUTHORITIES, &authority.certificate.pem());
    data.set(AUTHORITY_KEY, &authority.key_pem());
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
    TlsSecret {
        data,
        ..TlsSecret::default()
    }
}

fn signer(secret: &TlsSecret) -> Fingerprint {
    secret.bundle().signer.unwrap().certificate.fingerprint
}

fn wanted(trust: &Trust) -> Vec<Certificate> {
    let wanted = trust.wanted().borrow().clone();
    wanted
        .map(|it| it.authorities().to_vec())
        .unwrap_or_default()
}

fn anchor(uid: &str) -> Anchor {
    Anchor {
        name: "asya-webhook-anchor".to_owned(),
        uid: uid.to_owned(),
    }
}

/// CERT-2, AVL-5
#[tokio::test]
async fn secret_is_owned_by_the_anchor_and_not_created_without_one() {
    let (server, trust) = (Server::default(), known());
    let mut keeper = keeper(&server, &trust);
    trust.goes_with(None);
    keeper.pass(true).await;
    assert_eq!(server.state().writes, 0);

    let uids = |server: &Server| -> Vec<String> {
        let owners = server.secret().metadata.owner_references;
        owners.into_iter().flatten().map(|it| it.uid).collect()
    };
    trust.goes_with(Some(anchor("first")));
    keeper.pass(false).await;
    assert_eq!(uids(&server), ["first"]);
    let before = server.secret();
    // The anchor was recreated.
    trust.goes_with(Some(anchor("second")));
    keeper.pass(false).await;
    assert_eq!(uids(&server), ["second"]);
    assert_eq!(server.secret().data, before.data);
    let writes = server.state().writes;
    keeper.pass(false).await;
    trust.goes_with(None);
    keeper.pass(false).await;
    assert_eq!(server.state().writes, writes);
    assert_eq!(uids(&server), ["second"]);
}

/// CERT-1
#[tokio::test]
async fn missing_secret_is_created_once() {
    let (server, trust) = (Server::default(), known());
    let mut keeper = keeper(&server, &trust);
    assert_eq!(keeper.pass(true).await, keeper.plan.look);
    let secret = server.secret();
    assert_eq!(secret.kind.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(wanted(&trust), secret.bundle().authorities);
    for _ in 0..3 {
        keeper.pass(false).await;
    }
    let state = server.state();
    assert_eq!((state.reads, state.writes), (1, 1));
}

/// ADM-27
#[tokio::test]
async fn ca_keys_move_out_of_the_webhooks_secret_and_the_ca_stays() {
    let (server, trust) = (Server::default(), known());
    let before = secret_of(&authority(DAY), DAY);
    server.put_in_one(before.clone());
    let mut keeper = keeper(&server, &trust);
    keeper.pass(true).await;
    assert_eq!(server.secret().data, before.data, "nothing is made anew");
    let keys = server.one(true).unwrap();
    assert_eq!(keys.data.get(AUTHORITY_KEY), before.data.get(AUTHORITY_KEY));
    assert!(keys.data.get(LEAF_KEY).is_none());
    assert!(server.one(false).unwrap().data.get(AUTHORITY_KEY).is_none());
    keeper.pass(true).await;
    assert_eq!(server.state().writes, 1);
}

/// ADM-27: killed between the two writes, and rolled back to a release with a single Secret.
#[tokio::test]
async fn keys_in_the_webhooks_secret_count_until_they_have_moved() {
    let (server, trust) = (Server::default(), known());
    let (older, newer) = (authority(2 * DAY), secret_of(&authority(DAY), DAY));
    server.put(Some(secret_of(&older, 2 * DAY)));
    server.put_in_one(newer.clone());
    let mut keeper = keeper(&server, &trust);
    keeper.pass(true).await;
    assert_eq!(server.secret().data, newer.data);
    let keys = server.one(true).unwrap();
    assert_eq!(keys.data.get(AUTHORITY_KEY), newer.data.get(AUTHORITY_KEY));
}

/// CERT-2
#[tokio::test]
async fn concurrent_write_is_kept_and_nothing_is_created_twice() {
    let theirs = secret_of(&authority(DAY), DAY);
    for before in [None, Some(secret_of(&authority(DAY), 40 * DAY))] {
        let (server, trust) = (Server::default(), known());
        server.put(before);
        server.next_write(Fate::Raced(Box::new(Some(theirs.clone()))));
        keeper(&server, &trust).pass(true).await;
        assert_eq!(server.secret().data, theirs.data);
        assert_eq!(server.state().writes, 0);
        assert_eq!(wanted(&trust), theirs.bundle().authorities);
    }
}

/// CERT-2
#[tokio::test]
async fn concurrently_deleted_secret_is_recreated() {
    let (server, trust) = (Server::default(), known());
    let lost = authority(DAY);
    server.put(Some(secret_of(&lost, 25 * DAY)));
    server.next_write(Fate::Raced(Box::default()));
    keeper(&server, &trust).pass(true).await;
    assert_ne!(signer(&server.secret()), lost.certificate.fingerprint);
    assert_eq!(server.state().writes, 1);
}

/// CERT-2
#[tokio::test]
async fn write_with_a_lost_response_is_not_repeated() {
    let (server, trust) = (Server::default(), known());
    let mut keeper = keeper(&server, &trust);
    server.next_write(Fate::LosesAnswer);
    let wait = keeper.pass(true).await;
    assert!(wait < keeper.plan.look, "{wait:?}");
    let made = signer(&server.secret());
    assert!(!keeper.is_read, "what is held is not believed");
    keeper.pass(true).await;
    assert_eq!((signer(&server.secret()), server.state().writes), (made, 1));
}

#[tokio::test]
async fn refused_write_backs_off() {
    let (server, trust) = (Server::default(), known());
    let mut keeper = keeper(&server, &trust);
    let mut waits = Vec::new();
    for _ in 0..10 {
        server.next_write(Fate::Refused(403));
        waits.push(keeper.pass(true).await);
    }
    assert!(waits.is_sorted() && waits[0] == Duration::from_secs(1));
    assert_eq!(waits.last(), Some(&RETRY.after(u32::MAX)));
    keeper.pass(true).await;
    assert_eq!(server.state().writes, 1);
}

/// CERT-4
#[tokio::test(start_paused = true)]
async fn next_ca_signs_only_after_every_configuration_trusts_it() {
    let (server, trust) = (Server::default(), Trust::default());
    let due = authority(250 * DAY);
    let old = due.certificate.pem();
    server.put(Some(secret_of(&due, DAY)));
    trust.found([old.as_bytes()]);
    let mut keeper = keeper(&server, &trust);
    keeper.pass(true).await;
    let both = wanted(&trust);
    assert_eq!(both.len(), 2, "prepared, in the other Secret, and widened");
    assert_eq!(server.state().writes, 1);

    let pem = trust.wanted().borrow().as_ref().unwrap().pem();
    // Only one of two configurations has it.
    trust.found([pem.as_bytes(), old.as_bytes()]);
    advance(Duration::from_secs(31)).await;
    assert_eq!(keeper.pass(false).await, keeper.plan.look);
    // Both have it.
    trust.found([pem.as_bytes(), pem.as_bytes()]);
    advance(Duration::from_secs(29)).await;
    assert_eq!(keeper.pass(false).await, Duration::from_secs(1));
    assert_eq!(signer(&server.secret()), due.certificate.fingerprint);
    advance(Duration::from_secs(1)).await;
    keeper.pass(false).await;
    assert_eq!(signer(&server.secret()), both[1].fingerprint);
    assert_eq!(wanted(&trust), both, "no configuration changes for that");
    assert_eq!(server.state().writes, 2);
}

/// A manager whose next CA is trusted everywhere and could sign.
async fn about_to_switch(server: &Server, trust: &Trust) -> (CertificateManager, Fingerprint) {
    let due = authority(250 * DAY);
    server.put(Some(secret_of(&due, DAY)));
    trust.found([due.certificate.pem().as_bytes()]);
    let mut keeper = keeper(server, trust);
    keeper.pass(true).await;
    let pem = trust.wanted().borrow().as_ref().unwrap().pem();
    trust.found([pem.as_bytes()]);
    advance(Duration::from_secs(31)).await;
    (keeper, due.certificate.fingerprint)
}

/// CERT-4 (3)
#[tokio::test(start_paused = true)]
async fn the_next_ca_signs_when_a_dry_run_has_reached_the_webhook() {
    for (webhook, reached) in [
        (Webhook::Refuses, true),
        (Webhook::Warns, true),
        (Webhook::Unreached, false),
    ] {
        let (server, trust) = (Server::default(), Trust::default());
        let (mut keeper, old) = about_to_switch(&server, &trust).await;
        server.state().webhook = webhook;
        let wait = keeper.pass(false).await;
        assert_eq!(signer(&server.secret()) != old, reached);
        assert_eq!(server.state().tries, 1);
        if !reached {
            assert_eq!(wait, REACH_AGAIN);
            server.state().webhook = Webhook::Refuses;
            keeper.pass(false).await;
            assert_ne!(signer(&server.secret()), old, "it is reached again");
        }
    }
}

/// CERT-4 (3), CERT-5
#[tokio::test(start_paused = true)]
async fn next_ca_signs_after_the_deadline_or_at_once_without_a_valid_certificate() {
    let (server, trust) = (Server::default(), Trust::default());
    let (mut keeper, old) = about_to_switch(&server, &trust).await;
    server.state().webhook = Webhook::Unreached;
    keeper.pass(false).await;
    advance(Duration::from_mins(10)).await;
    keeper.pass(false).await;
    assert_ne!(signer(&server.secret()), old);

    let (server, trust) = (Server::default(), Trust::default());
    let (mut keeper, old) = about_to_switch(&server, &trust).await;
    server.state().webhook = Webhook::Unreached;
    let mut secret = server.secret();
    secret.data.set(AUTHORITY_KEY, "lost");
    secret.data.set(LEAF, "lost");
    server.put(Some(secret));
    keeper.pass(true).await;
    assert_ne!(signer(&server.secret()), old);
    assert_eq!(server.state().tries, 0);
}

/// CERT-5
#[tokio::test(start_paused = true)]
async fn new_ca_waits_to_learn_what_is_trusted() {
    let (server, trust) = (Server::default(), Trust::default());
    let mut keeper = keeper(&server, &trust);
    assert_eq!(keeper.pass(true).await, PATIENCE);
    assert_eq!(server.state().writes, 0);
    let lost = authority(DAY).certificate;
    trust.found([lost.pem().as_bytes()]);
    keeper.pass(false).await;
    assert_eq!(server.secret().bundle().authorities[0], lost);

    let server = Server::default();
    let mut keeper = super::tests::keeper(&server, &Trust::default());
    keeper.pass(true).await;
    advance(PATIENCE).await;
    keeper.pass(false).await;
    assert_eq!(
        server.state().writes,
        1,
        "nobody tells: it is not waited for ever"
    );
}

/// CERT-7
#[tokio::test]
async fn with_cert_manager_nothing_is_written_and_old_authorities_stay_trusted() {
    let (server, trust) = (Server::default(), Trust::default());
    let mut keeper = keeper(&server, &trust);
    keeper.plan.by_cert_manager = true;
    keeper.pass(true).await;
    let of = |age| authority(age).certificate;
    let (expired, old) = (of(366 * DAY), of(300 * DAY));
    let theirs = authority(DAY);
    let mut secret = secret_of(&theirs, 40 * DAY);
    secret.data.remove(AUTHORITY_KEY);
    server.put(Some(secret));
    keeper.pass(true).await;
    assert!(
        wanted(&trust).is_empty(),
        "nobody knows what is trusted yet"
    );
    let present = [&expired, &old].map(Certificate::pem).concat();
    trust.found([present.as_bytes()]);
    keeper.pass(false).await;
    assert_eq!(wanted(&trust), [old, theirs.certificate]);
    assert_eq!(server.state().writes, 0);
}
