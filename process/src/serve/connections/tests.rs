use std::net::Ipv4Addr;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// Completes a request on the connection, with or without success.
fn complete_request(connection: &Connection, is_success: bool) {
    let in_flight = connection.activity.begin(Instant::now());
    if is_success {
        in_flight.succeeded();
    }
}

fn is_open(connection: &Connection) -> bool {
    !connection.close.is_cancelled()
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn silent_connections_are_evicted_before_idle_and_idle_before_busy_ones() {
    let connections = Connections::new(4);
    let admit = |last| connections.admit(peer(last), Instant::now());
    let busy = admit(1).unwrap();
    complete_request(&busy, true);
    let review = busy.activity.begin(Instant::now());
    let idle = admit(1).unwrap();
    complete_request(&idle, true);
    let (failed, silent) = (admit(2).unwrap(), admit(2).unwrap());
    complete_request(&failed, false);
    tokio::time::advance(2 * SECOND).await;

    let first = admit(2).unwrap();
    assert!(
        !is_open(&failed) || !is_open(&silent),
        "one of the silent connections"
    );
    tokio::time::advance(SECOND / 1000).await;
    let second = admit(2).unwrap();
    assert_eq!([&failed, &silent].map(is_open), [false, false]);
    assert_eq!([&busy, &idle, &first, &second].map(is_open), [true; 4]);
    // Fresh connections may still send a request, so the peer with the most of them loses one.
    let third = admit(3).unwrap();
    assert_eq!(
        [&idle, &first, &second, &third].map(is_open),
        [true, false, true, true]
    );
    assert_eq!(
        connections.count(),
        Count {
            open: 4,
            evicted: 3,
            refused: 0,
            overdue: 0
        }
    );
    drop((second, third, idle));
    assert_eq!(connections.count().open, 1);
    drop((review, busy));
    assert_eq!(connections.count().open, 0);
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn client_that_fills_the_limit_is_refused_and_evicted_for_others() {
    let connections = Connections::new(3);
    let heaviest: Vec<_> = (0..3)
        .map(|_| connections.admit(peer(1), Instant::now()).unwrap())
        .collect();
    for connection in &heaviest {
        complete_request(connection, true);
    }
    let requests: Vec<_> = heaviest
        .iter()
        .map(|connection| connection.activity.begin(Instant::now()))
        .collect();
    assert!(connections.admit(peer(1), Instant::now()).is_none());
    assert_eq!(connections.count().refused, 1);
    let other = connections.admit(peer(2), Instant::now()).unwrap();
    assert!(is_open(&other));
    assert_eq!(
        heaviest
            .iter()
            .filter(|connection| is_open(connection))
            .count(),
        2
    );
    drop(requests);
}

/// ADM-20, ADM-23
#[tokio::test(start_paused = true)]
async fn authenticated_clients_are_not_evicted_for_others() {
    let connections = Connections::new(2);
    let known = connections.admit(peer(1), Instant::now()).unwrap();
    assert!(known.set_weight(1, true, Instant::now()));
    let flood: Vec<_> = (0..9)
        .map(|_| connections.admit(peer(2), Instant::now()).unwrap())
        .collect();
    tokio::time::advance(5 * SECOND).await;
    assert!(connections.admit(peer(3), Instant::now()).is_some());
    assert!(is_open(&known));
    assert_eq!(
        flood
            .iter()
            .filter(|connection| is_open(connection))
            .count(),
        0
    );
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn heavier_connection_evicts_others_but_not_itself() {
    let connections = Connections::new(4);
    let others: Vec<_> = (0..3)
        .map(|_| connections.admit(peer(1), Instant::now()).unwrap())
        .collect();
    let heavy = connections.admit(peer(2), Instant::now()).unwrap();
    assert!(heavy.set_weight(3, false, Instant::now()));
    assert!(is_open(&heavy));
    assert_eq!(
        others
            .iter()
            .filter(|connection| is_open(connection))
            .count(),
        1
    );
    assert_eq!(connections.count().open, 2);
    let _next = connections.admit(peer(3), Instant::now()).unwrap();
    assert_eq!(connections.count().evicted, 3, "its full weight counts");
}

/// ADM-21
#[tokio::test(start_paused = true)]
async fn only_connections_with_overdue_requests_are_closed() {
    let connections = Connections::new(9);
    let admit = || connections.admit(peer(1), Instant::now()).unwrap();
    let (spare, first, idle, slow) = (admit(), admit(), admit(), admit());
    complete_request(&idle, false);
    complete_request(&slow, true);
    let open = || {
        connections.close_overdue(Instant::now());
        [&spare, &first, &idle, &slow].map(is_open)
    };
    for late in [&first, &slow] {
        late.activity.bytes_received(Instant::now());
    }
    tokio::time::advance(4 * SECOND).await;
    for late in [&first, &slow] {
        late.activity.bytes_received(Instant::now());
    }
    assert_eq!(open(), [true; 4]);
    tokio::time::advance(SECOND).await;
    assert_eq!(open(), [true, false, true, false]);
    tokio::time::advance(100 * SECOND).await;
    assert_eq!(open(), [true, false, true, false]);
    assert_eq!(
        connections.count(),
        Count {
            open: 2,
            evicted: 0,
            refused: 0,
            overdue: 2
        }
    );
}
