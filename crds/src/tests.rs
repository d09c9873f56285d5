#[test]
fn the_committed_file_is_what_the_types_say() {
    let written = crate::yaml().unwrap_or_default();
    assert!(
        written == include_str!("../asyncactors.yaml"),
        "crds/asyncactors.yaml differs from shared/src/api; run `cargo run -p asya-crds`"
    );
}

/// `kubectl apply -f crds/` applies every file of these kinds, with `--recursive` those of folders, too.
#[test]
fn whoever_applies_the_folder_applies_the_definition_and_nothing_else() {
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
