//! The webhook's certificates: the leader maintains and repairs one Secret, and replicas serve from it.

mod rotation;

use std::time::{Duration, Instant};

use asya_certs::certificate::{Certificate, Fingerprint};
use asya_certs::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use asya_certs::issuer::{Ca, Settings};
use asya_certs::secret::TlsSecret;
use asya_certs::serve::{Certificates, Trusted};
use asya_certs::store::ca_secret_name;
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::{own_cluster_to_time, timed};
use asya_tests::{Error, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

/// The name of the webhook's Service in the chart.
const SERVICE: &str = "asya-operator-webhook";
const SECRET: &str = "asya-operator-webhook-tls";
/// Time limit for the Secret and what follows from it, on a busy machine.
const REPAIRED: Duration = Duration::from_secs(20);
/// CERT-2: from the leader's death until the next leader works.
const TAKEOVER: Duration = Duration::from_secs(15);
/// CERT-3: from a change of the Secret until a replica serves the new leaf.
const FOLLOWED: Duration = Duration::from_secs(2);

/// An operator that maintains certificates, and a webhook replica that follows them.
struct Stage {
    cluster: Cluster,
    operator: Operator,
    secrets: Api<TlsSecret>,
    replica: Certificates,
    /// Every private key seen so far.
    keys: std::sync::Mutex<Vec<String>>,
}

impl Stage {
    async fn set(cluster: &Cluster) -> Result<Self> {
        let operator = Operator::install(cluster, json!({"webhook": {"enabled": true}})).await?;
        let client = cluster.client();
        let replica = Certificates::new(names(operator.namespace()));
        replica.trust(Trusted::All);
        let (namespace, name) = (operator.namespace().to_owned(), SECRET.to_owned());
        tokio::spawn(replica.clone().follow(client.clone(), namespace, name));
        Ok(Self {
            cluster: cluster.clone(),
            secrets: Api::namespaced(client, operator.namespace()),
            operator,
            replica,
            keys: std::sync::Mutex::default(),
        })
    }

    /// Starts an instance that maintains certificates, with additional flags.
    async fn start(&self, name: &str, flags: &[&str]) -> Result<Instance> {
        // No API server calls this replica, so short waits are enough.
        let args = ["--webhook-ca-spread=2s", "--webhook-ca-patience=1s"]
            .iter()
            .chain(flags)
            .map(|flag| (*flag).to_owned());
        let launch = Launch {
            args: args.collect(),
            ..Launch::default()
        };
        let instance = self.operator.launch(name, launch).await?;
        instance.wait_ready().await?;
        Ok(instance)
    }

    async fn secret(&self) -> Result<TlsSecret, kube::Error> {
        let mut secret = self.secrets.get(SECRET).await?;
        if let Some(keys) = self.secrets.get_opt(&ca_secret_name(SECRET)).await? {
            secret.data = secret.data.with_ca_keys(&keys.data);
        }
        let mut keys = self.keys.lock().unwrap();
        for key in [LEAF_KEY, CA_KEY, NEXT_CA_KEY] {
            let text = secret.data.get(key).unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            let secret = text
                .lines()
                .filter(|line| line.len() > 20 && !line.contains("-----"));
            keys.extend(secret.map(str::to_owned));
        }
        Ok(secret)
    }

    /// Waits until the Secret is valid and the replica serves from it.
    async fn good(&self, what: &str) -> Result<TlsSecret> {
        let names = names(self.operator.namespace());
        let secret = eventually(format!("{what} is repaired"), REPAIRED, async || {
            let secret = self.secret().await?;
            let parsed = secret.parsed();
            let (leaf, ca) = (parsed.leaf?, parsed.current_ca?);
            let issuer = leaf.verify(&names, Timestamp::now())?;
            check(parsed.next.is_none(), "a rotation is under way")?;
            // The leaf and the CA's key are in two Secrets, which are read one after the other: the CA may change in
            // between.
            let is_current = issuer.fingerprint == ca.certificate.fingerprint;
            check(is_current, "the leaf is of another CA")?;
            Ok(secret)
        })
        .await?;
        let ends = leaf(&secret).not_after;
        let followed = Instant::now();
        eventually(
            format!("the replica serves after {what}"),
            FOLLOWED,
            async || {
                let shown = self.replica.metrics();
                check(shown.leaf_expires == Some(ends), format_args!("{shown:?}"))?;
                self.replica.ready(Timestamp::now()).map_err(NotYet::new)
            },
        )
        .await?;
        eprintln!("{what}: the replica serves {:?} later", followed.elapsed());
        Ok(secret)
    }

    /// Edits the Secret as a user might, and waits until it is repaired.
    async fn breaks(&self, what: &str, change: impl FnOnce(&mut Data)) -> Result<TlsSecret> {
        let before = self.secret().await?;
        let mut broken = before.clone();
        change(&mut broken.data);
        let (_, keys) = before.data.clone().split_off_ca_keys();
        broken.data = in_webhooks_secret(broken.data, &keys);
        let broken = self
            .secrets
            .replace(SECRET, &PostParams::default(), &broken)
            .await?;
        let started = Instant::now();
        eventually(format!("{what} is noticed"), REPAIRED, async || {
            let now = self.secret().await?;
            let ready = self.replica.ready(Timestamp::now());
            assert_eq!(ready, Ok(()), "the last good leaf is served all the while");
            let changed = now.metadata.resource_version != broken.metadata.resource_version;
            check(changed, "as it was broken")
        })
        .await?;
        eprintln!("{what}: first write after {:?}", started.elapsed());
        self.good(what).await
    }

    /// CERT-8
    async fn nothing_leaked(&self, instances: &[&Instance]) -> Result<()> {
        let events = Api::<Event>::all(self.cluster.client());
        let events = events.list(&ListParams::default()).await?;
        let mut said = serde_json::to_string(&events.items)?;
        for instance in instances {
            said += &instance.log();
        }
        let keys = self.keys.lock().unwrap();
        assert!(keys.len() > 10 && said.len() > 1000);
        for key in keys.iter() {
            // Also in base64, as in the Secret.
            let form = serde_json::to_string(&k8s_openapi::ByteString(key.clone().into_bytes()))?;
            let form = form.trim_matches('"').trim_end_matches('=');
            assert!(!said.contains(key) && !said.contains(form), "a private key");
        }
        assert!(!said.contains("PRIVATE KEY"));
        Ok(())
    }
}

/// Keeps what belongs in the webhook's Secret, and CA keys that differ from `keys`, which a manual edit may have added.
fn in_webhooks_secret(data: Data, keys: &Data) -> Data {
    let (mut own, changed) = data.split_off_ca_keys();
    for key in [CA_KEY, NEXT_CA, NEXT_CA_KEY] {
        if let Some(text) = changed.get(key)
            && changed.get(key) != keys.get(key)
        {
            own.set(key, &String::from_utf8_lossy(text));
        }
    }
    own
}

fn names(namespace: &str) -> Vec<String> {
    let full = format!("{SERVICE}.{namespace}.svc");
    vec![full.clone(), format!("{full}.cluster.local")]
}

fn leaf(secret: &TlsSecret) -> Certificate {
    secret.parsed().leaf.unwrap().certificate
}

fn current_ca(secret: &TlsSecret) -> Fingerprint {
    secret.parsed().current_ca.unwrap().certificate.fingerprint
}

/// An edit of the Secret.
type Fault<'a> = &'a dyn Fn(&mut Data);

/// Puts a leaf of this CA into the Secret, issued with other settings or at another time.
fn put_leaf(data: &mut Data, ca: &Ca, settings: &Settings, made: Timestamp) {
    let leaf = ca.issue(settings, made).unwrap();
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
}

/// CERT-1, CERT-2, CERT-3, CERT-5, CERT-8
#[tokio::test]
async fn damaged_webhook_certificates_are_repaired() {
    let _turn = own_cluster_to_time().await;
    let options = Options {
        rabbitmq: false,
        nodes: 1,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    let _timed = timed().await;
    Scenario::run_on(Ok(cluster.clone()), "certificates", async |_| {
        let stage = Stage::set(&cluster).await?;
        let first = stage.start("first", &[]).await?;
        let secret = stage.good("a missing Secret").await?;
        is_as_documented(&secret);
        let second = stage.start("second", &[]).await?;
        leaves_are_repaired(&stage, &secret).await?;
        cas_are_repaired(&stage).await?;
        the_next_leader_continues(&stage, &first, &second).await?;
        stage.nothing_leaked(&[&first, &second]).await?;
        rotation::is_applied(&stage).await?;
        second.stop().await?;
        rotation::reaches_every_handshake(&stage).await
    })
    .await;
}

fn is_as_documented(secret: &TlsSecret) {
    assert_eq!(secret.kind.as_deref(), Some("kubernetes.io/tls"));
    let leaf = leaf(secret);
    let day = Duration::from_hours(24);
    let left = |ends: Timestamp| Duration::try_from(ends.duration_since(Timestamp::now())).unwrap();
    let nearly = |ends, days: u32| {
        let whole = days * day;
        (whole.saturating_sub(Duration::from_mins(5))..=whole).contains(&left(ends))
    };
    let parsed = secret.parsed();
    assert!(nearly(leaf.not_after, 30), "{leaf:?}");
    assert!(nearly(parsed.cas[0].not_after, 365), "{parsed:?}");
    assert!(leaf.not_before < Timestamp::now() - Duration::from_mins(9));
    let managers = secret.metadata.managed_fields.iter().flatten();
    let managers: Vec<_> = managers.filter_map(|it| it.manager.as_deref()).collect();
    assert_eq!(managers, ["asya-operator/certs"]);
}

/// The CA stays, and issues a new leaf.
async fn leaves_are_repaired(stage: &Stage, before: &TlsSecret) -> Result<()> {
    let ours = before.parsed().current_ca.map_err(Error::other)?;
    let other =
        Ca::new(&Settings::with_defaults(Vec::new()), Timestamp::now()).map_err(Error::other)?;
    let (usual, day) = (
        Settings::with_defaults(names(stage.operator.namespace())),
        Duration::from_hours(24),
    );
    let nameless = Settings::with_defaults(names("elsewhere"));
    let now = Timestamp::now();
    let garbage = "-----BEGIN PRIVATE KEY-----\nZ2FyYmFnZQ==\n-----END PRIVATE KEY-----\n";
    let faults: [(&str, Fault); 7] = [
        ("tls.key that is garbage", &|data| {
            data.set(LEAF_KEY, garbage);
        }),
        ("an empty tls.crt", &|data| data.set(LEAF, "")),
        ("another's key", &|data| {
            let leaf = other.issue(&usual, now).unwrap();
            data.set(LEAF_KEY, &leaf.key);
        }),
        ("an expired leaf", &|data| {
            put_leaf(data, &ours, &usual, now - 40 * day);
        }),
        ("a leaf of a clock set back", &|data| {
            put_leaf(data, &ours, &usual, now + day);
        }),
        ("a leaf of other names", &|data| {
            put_leaf(data, &ours, &nameless, now);
        }),
        ("a leaf of another CA", &|data| {
            put_leaf(data, &other, &usual, now);
        }),
    ];
    for (what, fault) in faults {
        let repaired = stage.breaks(what, fault).await?;
        assert_eq!(
            current_ca(&repaired),
            ours.certificate.fingerprint,
            "{what}"
        );
        assert_eq!(repaired.parsed().cas.len(), 1, "{what}");
    }
    Ok(())
}

/// The leaf keeps serving while a new CA is being distributed.
async fn cas_are_repaired(stage: &Stage) -> Result<()> {
    let before = stage.secret().await?;
    let repaired = stage
        .breaks("ca.key that is garbage", |data| {
            data.set(CA_KEY, "x");
        })
        .await?;
    let fingerprints = |secret: &TlsSecret| -> Vec<Fingerprint> {
        let all = secret.parsed().cas;
        all.iter().map(|it| it.fingerprint).collect()
    };
    let both = fingerprints(&repaired);
    assert_eq!(
        both,
        [current_ca(&before), current_ca(&repaired)],
        "old leaves are trusted"
    );

    stage
        .secrets
        .delete(SECRET, &DeleteParams::default())
        .await?;
    let renewed = stage.good("a deleted Secret").await?;
    assert!(!both.contains(&current_ca(&renewed)));
    let renewed = stage
        .breaks("ca.crt that is garbage", |data| data.set(CA_BUNDLE, "x"))
        .await?;
    assert!(renewed.data.get(NEXT_CA).is_none());
    Ok(())
}

async fn the_next_leader_continues(
    stage: &Stage,
    first: &Instance,
    second: &Instance,
) -> Result<()> {
    let audit = stage.cluster.audit();
    let mark = audit.mark().await?;
    let before = stage.secret().await?;
    first.kill().await;
    let killed = Instant::now();
    // A repair that only a leader makes proves that there is a leader.
    let after = stage
        .breaks("a leaf without a leader", |data| data.set(LEAF, ""))
        .await?;
    let took = killed.elapsed();
    eprintln!("SIGKILL: the next leader had repaired the Secret after {took:?}");
    assert!(took <= TAKEOVER, "{took:?}");
    assert_eq!(current_ca(&after), current_ca(&before), "the same CA");
    let writes = audit.writes_since(mark, &stage.operator.user()).await?;
    let writes = writes.iter().filter(|write| write.name == SECRET);
    let by: Vec<_> = writes
        .map(|it| (&*it.verb, it.code, &*it.credential))
        .collect();
    assert_eq!(by, [("update", 200, second.credential())]);
    Ok(())
}
