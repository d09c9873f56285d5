//! Compares the permissions of both programs in docs/security.md with those that the API server grants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::helm::Helm;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::own_cluster;

const PAGE: &str = include_str!("../../../../docs/security.md");
const HOME: &str = "asya-system";
const PROGRAMS: [&str; 2] = ["asya-operator", "asya-operator-webhook"];
const COLUMNS: [&str; 3] = ["off", "on", "narrow"];
/// Keys of `binding.kinds`.
const KINDS: [&str; 12] = [
    "workspaces",
    "inferenceSets",
    "inferenceServices",
    "llmInferenceServices",
    "rayClusters",
    "rayServices",
    "knativeServices",
    "seldonDeployments",
    "seldonServers",
    "bentoDeployments",
    "leaderWorkerSets",
    "others",
];
/// In the order of the tables.
const VERBS: [&str; 9] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "impersonate",
    "*",
];

/// Verbs by resource (with resource names) and by the scope in which they are granted.
type Rights = BTreeMap<String, BTreeMap<String, BTreeSet<&'static str>>>;
/// The columns of a resource's row in a table.
type Row = [String; 3];

fn values(column: &str, namespace: &str) -> Value {
    let sqs = json!({"enabled": true, "type": "sqs", "config": {"region": "eu-west-1"}});
    let kinds: BTreeMap<_, _> = KINDS.into_iter().map(|kind| (kind, false)).collect();
    match column {
        "off" => json!({
            "crds": {"manage": false},
            "leaderElection": {"enabled": false},
            "webhook": {"enabled": false},
            "binding": {"kinds": kinds},
        }),
        "narrow" => json!({
            "transports": {"sqs": sqs},
            "controller": {"watchNamespaces": [namespace]},
        }),
        _ => json!({"transports": {"sqs": sqs}}),
    }
}

/// The permissions in the output of `auth can-i --list`, one per resource and name.
fn parsed(list: &str) -> BTreeSet<(String, &'static str)> {
    let mut found = BTreeSet::new();
    for line in list.lines().skip(1) {
        let cells: Vec<&str> = line
            .split('[')
            .map(|it| it.trim().trim_end_matches(']'))
            .collect();
        let [resource, _, names, verbs] = cells[..] else {
            continue;
        };
        for name in names.split(' ') {
            let what = match name {
                "" => resource.to_owned(),
                name => format!(
                    "{resource} named {}",
                    name.trim_end_matches(|it: char| it.is_numeric() || it == '-')
                ),
            };
            let known = verbs
                .split(' ')
                .filter_map(|it| VERBS.iter().find(|known| **known == it));
            found.extend(known.map(|verb| (what.clone(), *verb)));
        }
    }
    found.retain(|(resource, _)| !resource.is_empty());
    found
}

/// A program's permissions beyond those of any service account: in a namespace of actors, in another one, and in its
/// own.
async fn rights_of(scenario: &Scenario, program: &str) -> Result<Rights> {
    let mut by_right: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (place, namespace) in [
        ("actors", scenario.namespace()),
        ("others", "default"),
        ("own", HOME),
    ] {
        let list = async |account: &str| {
            let user = format!("--as=system:serviceaccount:{account}");
            let args = ["auth", "can-i", "--list", "--namespace", namespace, &user];
            scenario
                .cluster()
                .kubectl(&args)
                .await
                .map(|it| parsed(&it))
        };
        let anybodys = list("default:nobody").await?;
        for right in list(&format!("{HOME}:{program}")).await? {
            if !anybodys.contains(&right) {
                by_right.entry(right).or_default().insert(place);
            }
        }
    }
    let mut rights = Rights::new();
    for ((resource, verb), places) in by_right {
        let places: Vec<&str> = places.into_iter().collect();
        let place = match &places[..] {
            ["actors", "others", "own"] => "",
            ["own"] => "own namespace",
            ["actors"] => "watched",
            ["actors", "own"] => "watched and own",
            other => panic!("{resource}: {verb} in {other:?}"),
        };
        let by_place = rights.entry(resource).or_default();
        by_place.entry(place.to_owned()).or_default().insert(verb);
    }
    Ok(rights)
}

fn cell(rights: &Rights, resource: &str) -> String {
    let Some(by_place) = rights.get(resource) else {
        return "–".to_owned();
    };
    let parts = by_place.iter().map(|(place, verbs)| {
        let ordered = VERBS.iter().filter(|verb| verbs.contains(**verb));
        let verbs = ordered.copied().collect::<Vec<_>>().join(" ");
        let verbs = verbs.replace("get list watch", "read");
        match &**place {
            "" => verbs,
            place => format!("{place}: {verbs}"),
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Installs the chart's RBAC objects, returns the permissions of both programs, and uninstalls the objects.
async fn installed(scenario: &Scenario, chart: &Path, column: &str) -> Result<Vec<Rights>> {
    let mut command = vec!["template", "--show-only", "templates/serviceaccount.yaml"];
    command.extend(["--show-only", "templates/rbac.yaml"]);
    if column != "off" {
        command.extend(["--show-only", "templates/webhook/rbac.yaml"]);
    }
    let cluster = scenario.cluster();
    let values = values(column, scenario.namespace());
    let manifest = Helm::four(cluster)
        .with_chart_at(chart, &command, values)
        .await?;
    let file = cluster.folder().join("rights.yaml");
    std::fs::write(&file, manifest).expect("the folder is writable");
    let file = file.display().to_string();
    cluster.kubectl(&["apply", "--filename", &file]).await?;
    let mut all = Vec::new();
    for program in PROGRAMS {
        all.push(rights_of(scenario, program).await?);
    }
    cluster.kubectl(&["delete", "--filename", &file]).await?;
    Ok(all)
}

/// A program's table on the page: the row of each resource.
fn documented_rights(program: &str) -> BTreeMap<String, (Row, String)> {
    let heading = format!("### Rights of `{program}`\n");
    let (_, section) = PAGE
        .split_once(&heading)
        .expect("the page has this section");
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut told = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [resources, off, on, narrow, reason] = cells[..] else {
            panic!("{row}");
        };
        for resource in resources.split(", ") {
            let row = [off, on, narrow].map(str::to_owned);
            let resource = resource.trim_matches('`').to_owned();
            let twice = told.insert(resource, (row, reason.to_owned()));
            assert_eq!(twice, None, "{program} has a resource twice: {resources}");
        }
    }
    told
}

fn printed(rows: &BTreeMap<String, (Row, String)>) -> String {
    let mut grouped: BTreeMap<&(Row, String), Vec<&str>> = BTreeMap::new();
    for (resource, row) in rows {
        grouped.entry(row).or_default().push(resource);
    }
    let mut lines: Vec<_> = grouped
        .into_iter()
        .map(|((row, reason), resources)| {
            let resources: Vec<_> = resources.iter().map(|it| format!("`{it}`")).collect();
            format!(
                "| {} | {} | {reason} |",
                resources.join(", "),
                row.join(" | ")
            )
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// SEC-10..SEC-13: the page lists exactly the granted permissions, each with its reason.
#[tokio::test]
async fn security_page_lists_the_rights_of_both_programs() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "granted", async |scenario| {
        cluster.kubectl(&["create", "namespace", HOME]).await?;
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator");
        let mut columns = Vec::new();
        for column in COLUMNS {
            columns.push(installed(scenario, &chart, column).await?);
        }
        let mut wrong = Vec::new();
        for (number, program) in PROGRAMS.into_iter().enumerate() {
            let told = documented_rights(program);
            let mut all: BTreeSet<&String> = told.keys().collect();
            all.extend(columns.iter().flat_map(|it| it[number].keys()));
            let mut is_so = BTreeMap::new();
            for resource in all {
                let (_, reason) = told.get(resource).cloned().unwrap_or_default();
                let row = [0, 1, 2].map(|it| cell(&columns[it][number], resource));
                is_so.insert(resource.clone(), (row, reason));
            }
            let table = printed(&is_so);
            if is_so != told {
                wrong.push(format!("{program} has other rights:\n{table}"));
            }
            if told.values().any(|(_, reason)| reason.is_empty()) {
                wrong.push(format!("{program} has a right for no reason:\n{table}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
    .await;
}
