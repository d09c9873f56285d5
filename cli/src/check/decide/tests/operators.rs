//! Several operators in one cluster.

use super::*;

#[test]
fn second_operator_is_found_wherever_it_is() {
    let mut observed = healthy();
    observed.controllers = Ok(vec![
        controller_in("asya-next"),
        controller_in("asya-system"),
    ]);
    assert_eq!(findings(&observed), ["ASYA-SeveralOperators"]);
    let checks = installed(&observed, now());
    let found = checks.iter().find(|it| it.id.is_some()).unwrap();
    assert_eq!(found.result, CheckResult::Failed);
    assert!(
        found.detail.ends_with(
            "Found deployment/asya-operator in namespace asya-next, deployment/asya-operator in namespace asya-system."
        ),
        "{}",
        found.detail
    );
    observed.controllers = Err("you may not".to_owned());
    assert_eq!(findings(&observed), ["ASYA-NotChecked"]);
}

#[test]
fn operator_that_is_there_already_is_found_before_installing_another() {
    let checks = |controllers: &[&str]| {
        let found = Prerequisites {
            version: "v1.33.0".to_owned(),
            crd: Ok(None),
            keda: Ok(true),
            operator_namespace: "asya-system".to_owned(),
            controllers: Ok(controllers.iter().map(|it| controller_in(it)).collect()),
            permissions: Vec::new(),
        };
        let checks = before_installing(&found);
        let check = checks.into_iter().find(|it| it.subject == "operators");
        check.map(|it| (it.result, it.id)).unwrap()
    };
    let several = || Some("ASYA-SeveralOperators".to_owned());
    assert_eq!(checks(&[]), (CheckResult::Ok, None));
    assert_eq!(checks(&["asya-system"]), (CheckResult::Ok, None));
    assert_eq!(checks(&["asya-next"]), (CheckResult::Failed, several()));
    assert_eq!(
        checks(&["asya-next", "asya-system"]),
        (CheckResult::Failed, several())
    );
}
