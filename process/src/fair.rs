//! Fair eviction: when a shared resource runs out, the client that uses the most of it is evicted first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

/// A client's share of the resource.
#[derive(Clone, Copy, Debug)]
pub struct Share<K> {
    /// Identifies the share.
    pub key: K,
    /// Address of the client.
    pub peer: IpAddr,
    /// Shares with a lower rank are evicted first.
    pub rank: u8,
    /// How much of the resource the share uses.
    pub size: usize,
    /// Breaks ties: the oldest of otherwise equal shares is evicted.
    pub since: Instant,
}

/// Picks the share to evict: at the lowest rank, from the peer that uses the most at that rank, its largest share; ties
/// go to the oldest. A peer is never evicted while another uses more at that rank.
pub fn eviction_candidate<K: Copy>(shares: &[Share<K>]) -> Option<Share<K>> {
    let rank = shares.iter().map(|share| share.rank).min()?;
    let mut used: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for share in shares.iter().filter(|share| share.rank == rank) {
        *used.entry(share.peer).or_default() += share.size;
    }
    let (heaviest, _) = used.into_iter().max_by_key(|(_, used)| *used)?;
    let candidates = shares
        .iter()
        .filter(|share| share.rank == rank && share.peer == heaviest);
    candidates
        .min_by(|a, b| b.size.cmp(&a.size).then(a.since.cmp(&b.since)))
        .copied()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    type Row = (u8, u8, usize, u64);

    fn evicted(rows: &[Row]) -> Option<usize> {
        let start = Instant::now();
        let shares = rows.iter().enumerate();
        let shares = shares.map(|(key, (peer, rank, size, since))| Share {
            key,
            peer: Ipv4Addr::new(10, 0, 0, *peer).into(),
            rank: *rank,
            size: *size,
            since: start + Duration::from_secs(*since),
        });
        eviction_candidate(&shares.collect::<Vec<_>>()).map(|share| share.key)
    }

    /// ADM-20, ADM-22
    #[test]
    fn heaviest_peer_loses_its_largest_then_oldest_share() {
        // peer, rank, size, since
        let rows: [(&str, &[Row], Option<usize>); 6] = [
            ("no shares", &[], None),
            (
                "oldest of equal shares",
                &[(1, 0, 1, 5), (1, 0, 1, 3), (1, 0, 1, 4)],
                Some(1),
            ),
            (
                "peer with two shares, not the oldest of all",
                &[(1, 0, 1, 0), (2, 0, 1, 2), (2, 0, 1, 1)],
                Some(2),
            ),
            (
                "lower rank first, regardless of usage at a higher one",
                &[(1, 1, 9, 0), (1, 1, 9, 0), (2, 0, 1, 9)],
                Some(2),
            ),
            (
                "size, not number of shares",
                &[(1, 0, 8, 9), (2, 0, 1, 0), (2, 0, 1, 0)],
                Some(0),
            ),
            (
                "largest share of a peer",
                &[(1, 0, 1, 0), (1, 0, 8, 9), (1, 0, 2, 0)],
                Some(1),
            ),
        ];
        for (case, shares, expected) in rows {
            assert_eq!(evicted(shares), expected, "{case}");
        }
    }
}
