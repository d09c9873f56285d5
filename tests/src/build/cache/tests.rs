use super::key;

#[test]
fn the_key_tells_inputs_apart_by_their_borders() {
    assert_ne!(key([b"ab".as_slice(), b"c"]), key([b"a".as_slice(), b"bc"]));
    assert_eq!(key([b"ab".as_slice()]), key([b"ab".as_slice()]));
}
