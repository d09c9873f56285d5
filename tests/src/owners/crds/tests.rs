use serde_json::Value;

use super::OWN;

#[test]
fn each_crd_matches_its_file_name() {
    for (name, text) in OWN {
        let crd: Value = serde_saphyr::from_str(text).unwrap();
        let (spec, own) = (&crd["spec"], &crd["metadata"]["name"]);
        let (group, plural) = name.split_once('_').unwrap();
        assert_eq!(own, &format!("{plural}.{group}"));
        assert_eq!(
            (&spec["group"], &spec["names"]["plural"]),
            (&group.into(), &plural.into())
        );
    }
}
