use std::collections::BTreeSet;

#[test]
fn no_port_is_given_twice() {
    let ports: Vec<u16> = (0..50).map(|_| super::free().unwrap()).collect();
    let distinct: BTreeSet<u16> = ports.iter().copied().collect();
    assert_eq!(distinct.len(), ports.len());
}
