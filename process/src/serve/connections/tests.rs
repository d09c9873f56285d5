use std::net::Ipv4Addr;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// Completes a request on the connection, with or without success.
fn answered(connection: &Connection, well: bool) {
    let answering = connection.activity.begin(Instant::now());
    if well {
        answering.succeeded();
    }
}

fn is_open(connection: &Connection) -> bool {
    !connection.close.is_cancelled()
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn silent_connections_are_evicted_before_idle_and_idle_before_busy_ones() {
    let all = Connections::new(4);
    let admit = |last| all.admit(peer(last), Instant::now());
    let busy = admit(1).unwrap();
    answered(&busy, true);
    let review = busy.activity.begin(Instant::now());
    let idle = admit(1).unwrap();
    answered(&idle, true);
    let (refused, silent) = (admit(2).unwrap(), admit(2).unwrap());
    answered(&refused, false);
    tokio::time::advance(2 * SECOND).await;

    let first = admit(2).unwrap();
    assert!(!is_open(&refused) || !is_open(&silent), "one of the silent");
    tokio::time::advance(SECOND / 1000).await;
    let second = admit(2).unwrap();
    assert_eq!([&refused, &silent].map(is_open), [false, false]);
    assert_eq!([&busy, &idle, &first, &second].map(is_open), [true; 4]);
    // Fresh connections may still send a request: the peer that holds more of them loses one.
    let third = admit(3).unwrap();
    assert_eq!(
        [&idle, &first, &second, &third].map(is_open),
        [true, false, true, true]
    );
    assert_eq!(
        all.count(),
        Count {
            open: 4,
            evicted: 3,
            refused: 0,
            overdue: 0
        }
    );
    drop((second, third, idle));
    assert_eq!(all.count().open, 1);
    drop((review, busy));
    assert_eq!(all.count().open, 0);
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn client_whose_requests_fill_the_limit_is_refused_and_evicted_for_others() {
    let all = Connections::new(3);
    let greedy: Vec<_> = (0..3)
        .map(|_| all.admit(peer(1), Instant::now()).unwrap())
        .collect();
    for connection in &greedy {
        answered(connection, true);
    }
    let requests: Vec<_> = greedy
        .iter()
        .map(|it| it.activity.begin(Instant::now()))
        .collect();
    assert!(all.admit(peer(1), Instant::now()).is_none());
    assert_eq!(all.count().refused, 1);
    let other = all.admit(peer(2), Instant::now()).unwrap();
    assert!(is_open(&other));
    assert_eq!(greedy.iter().filter(|it| is_open(it)).count(), 2);
    drop(requests);
}

/// ADM-20, ADM-23
#[tokio::test(start_paused = true)]
async fn authenticated_clients_are_not_evicted_for_others() {
    let all = Connections::new(2);
    let known = all.admit(peer(1), Instant::now()).unwrap();
    assert!(known.known(1, true, Instant::now()));
    let flood: Vec<_> = (0..9)
        .map(|_| all.admit(peer(2), Instant::now()).unwrap())
        .collect();
    tokio::time::advance(5 * SECOND).await;
    assert!(all.admit(peer(3), Instant::now()).is_some());
    assert!(is_open(&known));
    assert_eq!(flood.iter().filter(|it| is_open(it)).count(), 0);
}

/// ADM-20
#[tokio::test(start_paused = true)]
async fn heavier_connection_evicts_others_and_never_itself() {
    let all = Connections::new(4);
    let others: Vec<_> = (0..3)
        .map(|_| all.admit(peer(1), Instant::now()).unwrap())
        .collect();
    let heavy = all.admit(peer(2), Instant::now()).unwrap();
    assert!(heavy.known(3, false, Instant::now()));
    assert!(is_open(&heavy));
    assert_eq!(others.iter().filter(|it| is_open(it)).count(), 1);
    assert_eq!(all.count().open, 2);
    let _next = all.admit(peer(3), Instant::now()).unwrap();
    assert_eq!(all.count().evicted, 3, "what it weighs is taken");
}

/// ADM-21
#[tokio::test(start_paused = true)]
async fn connections_with_overdue_requests_are_closed() {
    let all = Connections::new(9);
    let admit = || all.admit(peer(1), Instant::now()).unwrap();
    let (silent, idle, slow) = (admit(), admit(), admit());
    answered(&idle, false);
    answered(&slow, true);
    slow.activity.reads(Instant::now());
    tokio::time::advance(4 * SECOND).await;
    slow.activity.reads(Instant::now());
    all.close_overdue(Instant::now());
    assert_eq!([&silent, &idle, &slow].map(is_open), [true; 3]);
    tokio::time::advance(SECOND).await;
    all.close_overdue(Instant::now());
    assert_eq!([&silent, &idle, &slow].map(is_open), [true, true, false]);
    tokio::time::advance(5 * SECOND).await;
    all.close_overdue(Instant::now());
    assert_eq!([&silent, &idle, &slow].map(is_open), [false, true, false]);
    assert_eq!(
        all.count(),
        Count {
            open: 1,
            evicted: 0,
            refused: 0,
            overdue: 2
        }
    );
}
