#[test]
fn the_committed_file_is_what_the_types_say() {
    let written = crate::yaml().unwrap_or_default();
    assert!(
        written == include_str!("../asyncactors.yaml"),
        "crds/asyncactors.yaml differs from shared/src/api; run `cargo run -p asya-crds`"
    );
}
