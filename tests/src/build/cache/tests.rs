use super::key;

#[test]
fn key_depends_on_input_boundaries() {
    assert_ne!(key([b"ab".as_slice(), b"c"]), key([b"a".as_slice(), b"bc"]));
    assert_eq!(key([b"ab".as_slice()]), key([b"ab".as_slice()]));
}
