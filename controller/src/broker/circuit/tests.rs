use std::time::Duration;

use tokio::time::Instant;

use super::*;

enum Step {
    Unanswered,
    Answered,
    After(u64),
    Admitted,
    Refused,
}

/// QUE-9
#[test]
fn five_calls_without_a_response_open_the_circuit_for_thirty_seconds_before_one_probe() {
    use Step::{Admitted, After, Answered, Refused, Unanswered};
    let unanswered = |count: usize| (0..count).map(|_| Unanswered);
    let cases: Vec<(&str, Vec<Step>)> = vec![
        ("new circuit is closed", vec![Admitted, Admitted]),
        ("four failures", unanswered(4).chain([Admitted]).collect()),
        (
            "five consecutive failures",
            unanswered(5).chain([Refused, After(29), Refused]).collect(),
        ),
        (
            "response resets the count",
            unanswered(4)
                .chain([Answered])
                .chain(unanswered(4))
                .chain([Admitted])
                .collect(),
        ),
        (
            "one probe when the open duration ends",
            unanswered(5)
                .chain([After(30), Admitted, Refused, Refused])
                .collect(),
        ),
        (
            "successful probe closes the circuit",
            unanswered(5)
                .chain([After(30), Admitted, Answered, Admitted, Admitted])
                .collect(),
        ),
        (
            "failed probe keeps the circuit open",
            unanswered(5)
                .chain([
                    After(30),
                    Admitted,
                    After(10),
                    Unanswered,
                    After(29),
                    Refused,
                    After(1),
                    Admitted,
                ])
                .collect(),
        ),
        (
            "abandoned probe keeps the circuit open only once",
            unanswered(5)
                .chain([After(30), Admitted, After(30), Admitted])
                .collect(),
        ),
        (
            "late response to an earlier call closes the circuit",
            unanswered(5).chain([Refused, Answered, Admitted]).collect(),
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
                    Admitted,
                ])
                .collect(),
        ),
    ];
    for (case, steps) in cases {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        let error = BrokerError::Unreachable("no response".to_owned());
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Unanswered => circuit.record_failure(now, &error),
                Answered => circuit.record_response(),
                After(seconds) => now += Duration::from_secs(seconds),
                Admitted => assert_eq!(circuit.admit(now), Ok(()), "{case}, step {index}"),
                Refused => assert_eq!(
                    circuit.admit(now),
                    Err(error.clone()),
                    "{case}, step {index}"
                ),
            }
        }
    }
}
