use std::time::Duration;

use tokio::time::Instant;

use super::*;

enum Step {
    Unanswered,
    Answered,
    After(u64),
    Allowed,
    Refused,
    /// Refused, in an outage.
    Down,
}

/// QUE-9, QUE-10
#[test]
fn five_calls_without_a_response_open_the_circuit_for_thirty_seconds_before_one_probe() {
    use Step::{After, Allowed, Answered, Down, Refused, Unanswered};
    let unanswered = |count: usize| (0..count).map(|_| Unanswered);
    let cases: Vec<(&str, Vec<Step>)> = vec![
        ("new circuit is closed", vec![Allowed, Allowed]),
        ("four failures", unanswered(4).chain([Allowed]).collect()),
        (
            "five consecutive failures",
            unanswered(5).chain([Refused, After(29), Refused]).collect(),
        ),
        (
            "response resets the count",
            unanswered(4)
                .chain([Answered])
                .chain(unanswered(4))
                .chain([Allowed])
                .collect(),
        ),
        (
            "one probe when the open duration ends",
            unanswered(5)
                .chain([After(30), Allowed, Refused, Refused])
                .collect(),
        ),
        (
            "successful probe closes the circuit",
            unanswered(5)
                .chain([After(30), Allowed, Answered, Allowed, Allowed])
                .collect(),
        ),
        (
            "failed probe keeps the circuit open",
            unanswered(5)
                .chain([
                    After(30),
                    Allowed,
                    After(10),
                    Unanswered,
                    After(29),
                    Refused,
                    After(1),
                    Allowed,
                ])
                .collect(),
        ),
        (
            "abandoned probe keeps the circuit open only once",
            unanswered(5)
                .chain([After(30), Allowed, After(30), Allowed])
                .collect(),
        ),
        (
            "second failed probe in a row means an outage",
            unanswered(5)
                .chain([After(30), Allowed, Unanswered, Refused, After(30), Allowed])
                .chain([Refused, Unanswered, Down, After(30), Allowed, Down])
                .chain([Answered, Allowed])
                .chain(unanswered(5))
                .chain([Refused])
                .collect(),
        ),
        (
            "many failures at once are no outage",
            unanswered(50).chain([Refused]).collect(),
        ),
        (
            "late response to an earlier call closes the circuit",
            unanswered(5).chain([Refused, Answered, Allowed]).collect(),
        ),
        (
            "late failure of an earlier call extends it",
            unanswered(5)
                .chain([
                    After(20),
                    Unanswered,
                    After(20),
                    Refused,
                    After(10),
                    Allowed,
                ])
                .collect(),
        ),
    ];
    for (case, steps) in cases {
        run(case, steps);
    }
}

fn run(case: &str, steps: Vec<Step>) {
    use Step::{After, Allowed, Answered, Down, Refused, Unanswered};
    let (mut circuit, mut now) = (Circuit::default(), Instant::now());
    let error = BrokerError::Unreachable("no response".to_owned());
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Unanswered => circuit.record_failure(now, &error),
            Answered => circuit.record_response(),
            After(seconds) => now += Duration::from_secs(seconds),
            Allowed => assert_eq!(circuit.allow(now), Ok(()), "{case}, step {index}"),
            Refused => {
                let Err(BrokerError::CircuitOpen(last, wait)) = circuit.allow(now) else {
                    panic!("{case}, step {index}");
                };
                assert_eq!(*last, error, "{case}, step {index}");
                assert!(!wait.is_zero() && wait <= OPEN_DURATION, "{wait:?}");
            }
            Down => {
                let Err(BrokerError::Outage { last, wait, .. }) = circuit.allow(now) else {
                    panic!("{case}, step {index}");
                };
                assert_eq!(*last, error, "{case}, step {index}");
                assert!(!wait.is_zero() && wait <= OPEN_DURATION, "{wait:?}");
            }
        }
    }
}

/// QUE-13
#[test]
fn each_failed_trial_of_an_outage_is_a_round_of_its_own() {
    let (mut circuit, mut now) = (Circuit::default(), Instant::now());
    let error = BrokerError::Unreachable("no response".to_owned());
    for _ in 0..FAILURE_THRESHOLD {
        circuit.record_failure(now, &error);
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        for _ in 0..3 {
            if let Err(BrokerError::Outage { rounds, .. }) = circuit.allow(now) {
                seen.push(rounds);
            }
        }
        now += OPEN_DURATION;
        assert_eq!(circuit.allow(now), Ok(()));
        circuit.record_failure(now, &error);
    }
    assert_eq!(seen, [3, 3, 3, 4, 4, 4, 5, 5, 5]);
}
