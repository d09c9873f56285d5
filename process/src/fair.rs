//! Fair eviction: when a resource that clients share runs out, the client that uses the most of it loses first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

/// A share of the resource, held for one client.
#[derive(Clone, Copy, Debug)]
pub struct Share<K> {
    /// Identifies the share.
    pub key: K,
    /// Address of the client that the share is held for.
    pub peer: IpAddr,
    /// Shares with a lower rank are evicted first.
    pub rank: u8,
    /// How much of the resource the share uses.
    pub size: usize,
    /// Breaks ties: the oldest of otherwise equal shares is evicted.
    pub since: Instant,
}

/// Picks the share to evict: at the lowest rank, from the peer that uses the most at that rank, its largest share; ties
/// go to the oldest. A peer never loses a share while another uses more at that rank.
pub fn victim<K: Copy>(shares: &[Share<K>]) -> Option<Share<K>> {
    let rank = shares.iter().map(|share| share.rank).min()?;
    let mut taken: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for share in shares.iter().filter(|share| share.rank == rank) {
        *taken.entry(share.peer).or_default() += share.size;
    }
    let (greedy, _) = taken.into_iter().max_by_key(|(_, taken)| *taken)?;
    let theirs = shares
        .iter()
        .filter(|it| it.rank == rank && it.peer == greedy);
    theirs
        .min_by(|a, b| b.size.cmp(&a.size).then(a.since.cmp(&b.since)))
        .copied()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    type Row = (u8, u8, usize, u64);

    fn given_up(rows: &[Row]) -> Option<usize> {
        let start = Instant::now();
        let shares = rows.iter().enumerate();
        let shares = shares.map(|(key, (peer, rank, size, since))| Share {
            key,
            peer: Ipv4Addr::new(10, 0, 0, *peer).into(),
            rank: *rank,
            size: *size,
            since: start + Duration::from_secs(*since),
        });
        victim(&shares.collect::<Vec<_>>()).map(|it| it.key)
    }

    /// ADM-20, ADM-22
    #[test]
    fn heaviest_peer_loses_its_largest_then_oldest_share() {
        // peer, rank, size, since
        let rows: [(&str, &[Row], Option<usize>); 6] = [
            ("nothing is held", &[], None),
            (
                "the oldest of equals",
                &[(1, 0, 1, 5), (1, 0, 1, 3), (1, 0, 1, 4)],
                Some(1),
            ),
            (
                "the peer with two, not the oldest of all",
                &[(1, 0, 1, 0), (2, 0, 1, 2), (2, 0, 1, 1)],
                Some(2),
            ),
            (
                "a lower rank first, whoever has more above",
                &[(1, 1, 9, 0), (1, 1, 9, 0), (2, 0, 1, 9)],
                Some(2),
            ),
            (
                "size counts, not number",
                &[(1, 0, 8, 9), (2, 0, 1, 0), (2, 0, 1, 0)],
                Some(0),
            ),
            (
                "the largest of a peer's",
                &[(1, 0, 1, 0), (1, 0, 8, 9), (1, 0, 2, 0)],
                Some(1),
            ),
        ];
        for (why, shares, expected) in rows {
            assert_eq!(given_up(shares), expected, "{why}");
        }
    }
}
