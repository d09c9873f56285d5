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
fn five_calls_without_an_answer_give_the_broker_thirty_seconds_and_then_one_probe() {
    use Step::{Admitted, After, Answered, Refused, Unanswered};
    let unanswered = |count: usize| (0..count).map(|_| Unanswered);
    let cases: Vec<(&str, Vec<Step>)> = vec![
        ("a new one is called", vec![Admitted, Admitted]),
        (
            "four are not five",
            unanswered(4).chain([Admitted]).collect(),
        ),
        (
            "five in a row",
            unanswered(5).chain([Refused, After(29), Refused]).collect(),
        ),
        (
            "an answer between ends the row",
            unanswered(4)
                .chain([Answered])
                .chain(unanswered(4))
                .chain([Admitted])
                .collect(),
        ),
        (
            "one probe after the rest",
            unanswered(5)
                .chain([After(30), Admitted, Refused, Refused])
                .collect(),
        ),
        (
            "a probe that is answered ends it",
            unanswered(5)
                .chain([After(30), Admitted, Answered, Admitted, Admitted])
                .collect(),
        ),
        (
            "a probe that is not begins another rest",
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
            "a probe that was given up counts for one rest only",
            unanswered(5)
                .chain([After(30), Admitted, After(30), Admitted])
                .collect(),
        ),
        (
            "a call from before that is answered late ends it",
            unanswered(5).chain([Refused, Answered, Admitted]).collect(),
        ),
        (
            "one that fails late prolongs it",
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
        let error = BrokerError::Unreachable("no answer".to_owned());
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Unanswered => circuit.unanswered(now, &error),
                Answered => circuit.answered(),
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
