use serde_json::json;

use super::*;
use crate::lint::{Rules, lint};
use crate::manifests::{Manifest, Manifests};
use crate::preview::render;
use crate::preview::restart::ReplacedBy;
use crate::why::testing::{actor, installation};

fn preview_of(object: &Value) -> Preview {
    let manifests = Manifests {
        objects: vec![Manifest {
            file: "actor.yaml".to_owned(),
            line: 1,
            text: "".into(),
            object: object.clone(),
        }],
        unreadable: Vec::new(),
    };
    let (schema, installation) = (asya_crds::evaluable_schema().unwrap(), installation());
    let linted = lint(
        &manifests,
        &Rules {
            schema: &schema,
            installation: Some(&installation),
            namespace: "models",
            operator_namespace: "asya-system",
        },
    );
    Preview::new(object, &linted)
}

fn rejected(by: RejectedBy) -> AdmissionVerdict {
    AdmissionVerdict::Rejected {
        by,
        message: "no".to_owned(),
    }
}

fn unknown() -> AdmissionVerdict {
    AdmissionVerdict::Unknown {
        message: "gone".to_owned(),
    }
}

/// Findings outweigh unknowns.
#[test]
fn exit_code_follows_from_findings_and_from_what_is_unknown() {
    let valid = actor("embed", &json!({}));
    let invalid = actor("embed", &json!({"runtime": {"targetURL": "ftp://x"}}));
    for (object, server, pod, expected) in [
        (
            &valid,
            AdmissionVerdict::Admitted,
            AdmissionVerdict::Admitted,
            Answer::Fine,
        ),
        (
            &valid,
            unknown(),
            AdmissionVerdict::Admitted,
            Answer::Unknown,
        ),
        (
            &valid,
            AdmissionVerdict::Admitted,
            unknown(),
            Answer::Unknown,
        ),
        (
            &valid,
            rejected(RejectedBy::Policy),
            AdmissionVerdict::Admitted,
            Answer::Findings,
        ),
        (
            &valid,
            unknown(),
            rejected(RejectedBy::Quota),
            Answer::Findings,
        ),
        (
            &invalid,
            unknown(),
            AdmissionVerdict::Admitted,
            Answer::Findings,
        ),
        (
            &invalid,
            rejected(RejectedBy::ApiServer),
            AdmissionVerdict::Admitted,
            Answer::Findings,
        ),
    ] {
        let mut preview = preview_of(object);
        preview.server = server.clone();
        preview.reject_actor();
        preview.admission("pod", pod.clone());
        assert_eq!(
            preview.answer(),
            expected,
            "{server:?} {pod:?} {:?}",
            preview.validation
        );
    }
    let mut incomplete = preview_of(&valid);
    incomplete.server = AdmissionVerdict::Admitted;
    assert_eq!(incomplete.answer(), Answer::Fine);
    incomplete.incomplete("settings");
    assert_eq!(incomplete.answer(), Answer::Unknown);
}

/// The API server repeats what the rules have found.
#[test]
fn rejection_of_an_invalid_actor_is_reported_once() {
    let invalid = actor("embed", &json!({"runtime": {"targetURL": "ftp://x"}}));
    for (object, by, problems) in [
        (&invalid, RejectedBy::ApiServer, 0),
        (&invalid, RejectedBy::Policy, 0),
        (&invalid, RejectedBy::Quota, 1),
        (&actor("embed", &json!({})), RejectedBy::Policy, 1),
    ] {
        let mut preview = preview_of(object);
        preview.server = rejected(by);
        preview.reject_actor();
        assert_eq!(preview.problems.len(), problems, "{by:?}");
    }
}

#[test]
fn write_is_told_from_the_stored_actor() {
    let (one, other) = (
        actor("embed", &json!({})),
        actor("embed", &json!({"concurrency": 2})),
    );
    for (existing, expected) in [
        (None, ActorWrite::Create),
        (Some(&one), ActorWrite::Unchanged),
        (Some(&other), ActorWrite::Update),
    ] {
        assert_eq!(ActorWrite::of(existing, &one), expected);
    }
}

#[test]
fn page_says_what_happens_what_it_costs_and_what_is_wrong() {
    let mut preview = preview_of(&actor("embed", &json!({})));
    preview.server = AdmissionVerdict::Admitted;
    preview.write = ActorWrite::Create;
    preview
        .changes
        .push(Change::bare("queue asya-embed on mq", ChangeKind::Create));
    preview.changes.push(Change {
        object: "Deployment/phi".to_owned(),
        action: ChangeKind::Change,
        diff: "+ line of a diff\n".to_owned(),
    });
    let restart = Restart {
        by: ReplacedBy::Operator,
        pods: 2,
        total: 2,
        unavailable: 1,
        order: vec!["phi-b".to_owned(), "phi-a".to_owned()],
        text: "one at a time".to_owned(),
        waits: vec!["pod phi-c is not ready".to_owned()],
        ..Restart::default()
    };
    preview.cost = Some(crate::preview::cost::of_restart(&restart, 4));
    preview.restart = Some(restart);
    preview.admission("pod of Deployment/phi", rejected(RejectedBy::Quota));
    let text = anstream::adapter::strip_str(&render::text(&[preview], None)).to_string();
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    let order = [
        "restarts ",
        "costs ",
        "problem ASYA",
        "CHANGE ",
        "DRY RUN ",
        "+ line of a diff",
    ];
    assert!(order.map(position).is_sorted(), "{text}");
    for line in [
        "AsyncActor models/embed would be created\nAPI server: admitted\n",
        "create   queue asya-embed on mq\n",
        "restarts   2 of 2 pods: one at a time\n",
        "in order   phi-b, phi-a\n",
        "waits      pod phi-c is not ready\n",
        "costs      1 rollout, 2 pods replaced, at least 1 ready meanwhile; 8 GPUs held meanwhile, 8 now, 4 per pod\n",
        "pod of Deployment/phi   REJECTED   no\n",
        "problem ASYA-RejectedByQuota pod of Deployment/phi: no\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
