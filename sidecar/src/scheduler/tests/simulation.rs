//! Every pair of faults at every point in time, with a virtual clock (SC-109).

use std::collections::BTreeMap;
use std::time::Duration;

use asya_wire::ERROR_END;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::bench::{Bench, Script, message};
use crate::broker::Refusal;
use crate::config::Lookahead;
use crate::runtime::{CallError, Readiness};
use crate::scheduler::Exit;

const MESSAGES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Kill -9 of the sidecar; the next one starts immediately.
    Kill,
    /// The broker drops the consuming connection.
    Cut,
    /// A publisher confirm is lost.
    NoConfirmation,
    /// A publication is negatively acknowledged.
    Nack,
    /// The destination queue is missing for a while.
    NoQueue,
    /// The runtime crashes while it processes the current message.
    RuntimeEnds,
    /// The runtime does not read the message.
    NotRead,
    /// The broker blocks publishing for a while.
    Blocked,
}

const FAULTS: [Fault; 8] = [
    Fault::Kill,
    Fault::Cut,
    Fault::NoConfirmation,
    Fault::Nack,
    Fault::NoQueue,
    Fault::RuntimeEnds,
    Fault::NotRead,
    Fault::Blocked,
];
/// Milliseconds before, during and after the call (5 ms) and the publication (1 ms) of each message.
const MOMENTS: [u64; 7] = [0, 3, 5, 6, 8, 11, 14];

/// SC-72, SC-73, SC-75, SC-109
#[test]
fn no_pair_of_faults_loses_a_message_and_duplicates_are_bounded() {
    let mut runs = 0;
    for (slots, lookahead) in [(1, 0), (1, 2), (2, 1)] {
        for (index, first) in FAULTS.into_iter().enumerate() {
            for second in &FAULTS[index..] {
                for at in MOMENTS {
                    for then in [0, 1, 4, 250] {
                        let plan = [(at, first), (then, *second)];
                        let found = run(slots, lookahead, plan);
                        check(&found, plan, slots + lookahead);
                        runs += 1;
                    }
                }
            }
        }
    }
    assert_eq!(runs, 3 * 36 * 7 * 4);
}

/// How often each message was delivered downstream, and how many reached error-end.
struct Found {
    copies: BTreeMap<String, usize>,
    errors: usize,
}

fn run(slots: usize, lookahead: usize, plan: [(u64, Fault); 2]) -> Found {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let mut bench = Bench::new();
        bench.settings.concurrency = slots;
        bench.settings.lookahead = Lookahead::Fixed(lookahead);
        bench.runtime.set(Readiness::Ready { concurrency: slots });
        bench.broker.put("asya-foo", (0..MESSAGES).map(message));
        let mut scheduler = bench.start();
        for (after, fault) in plan {
            sleep(Duration::from_millis(after)).await;
            scheduler = strike(&bench, scheduler, fault);
        }
        sleep(Duration::from_secs(2)).await;
        bench.broker.set_missing("asya-bar", false);
        bench.broker.set_blocked(false);
        bench.emptied().await;
        let errors = bench.ids_in(&format!("asya-{ERROR_END}"));
        let mut copies = BTreeMap::new();
        for id in bench
            .ids_in("asya-bar")
            .into_iter()
            .chain(errors.iter().cloned())
        {
            *copies.entry(id).or_default() += 1;
        }
        assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
        Found {
            copies,
            errors: errors.len(),
        }
    })
}

fn strike(bench: &Bench, scheduler: JoinHandle<Exit>, fault: Fault) -> JoinHandle<Exit> {
    match fault {
        Fault::Kill => return bench.kill(&scheduler),
        Fault::Cut => bench.broker.cut(),
        Fault::NoConfirmation => bench.broker.lose_a_confirm(),
        Fault::Nack => bench.broker.refuse([Refusal::Nacked]),
        Fault::NoQueue => bench.broker.set_missing("asya-bar", true),
        Fault::RuntimeEnds => bench.runtime.script_next(Script::Fails(CallError::Ended)),
        Fault::NotRead => bench.runtime.script_next(Script::Fails(CallError::NotRead)),
        Fault::Blocked => bench.broker.set_blocked(true),
    }
    scheduler
}

fn check(found: &Found, plan: [(u64, Fault); 2], in_flight: usize) {
    for number in 0..MESSAGES {
        assert!(
            found.copies.contains_key(&number.to_string()),
            "{plan:?}: message {number} is lost"
        );
    }
    let doubles: usize = found.copies.values().map(|copies| copies - 1).sum();
    // SC-73: only these faults cause duplicates, each at most as many as there were messages in flight.
    let causes = plan
        .iter()
        .filter(|(_, fault)| matches!(fault, Fault::Kill | Fault::Cut | Fault::NoConfirmation));
    assert!(
        doubles <= causes.count() * in_flight,
        "{plan:?}: {:?}",
        found.copies
    );
    // A message reaches error-end only if the runtime crashed with it on a redelivery.
    let deaths = plan
        .iter()
        .filter(|(_, fault)| *fault == Fault::RuntimeEnds)
        .count();
    assert!(
        found.errors <= deaths,
        "{plan:?}: {} in error-end",
        found.errors
    );
}
