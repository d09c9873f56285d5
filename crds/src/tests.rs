#[test]
fn committed_file_matches_the_types() {
    let written = crate::yaml().unwrap_or_default();
    assert!(
        written == include_str!("../asyncactors.yaml"),
        "crds/asyncactors.yaml differs from shared/src/api; run `cargo run -p asya-crds`"
    );
}

/// `kubectl apply -f crds/` applies all files of these types; `--recursive` also those in subfolders.
#[test]
fn applying_the_folder_applies_only_the_crd() {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    let mut manifests = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.extension().and_then(|it| it.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if matches!(kind, Some("yaml" | "yml" | "json")) {
                manifests.push(path.file_name().unwrap().to_owned());
            }
        }
    }
    assert_eq!(manifests, ["asyncactors.yaml"]);
}
