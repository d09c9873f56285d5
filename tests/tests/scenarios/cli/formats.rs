//! Every command prints a table or JSON, with the same exit code. `dlq` is tested in `queue.rs`, which has dead
//! letters. `bundle`, `completion` and `man` write files and scripts, and have no output formats.

use asya_tests::Result;
use asya_tests::eventually::SOON;
use asya_tests::scenario::Scenario;
use serde_json::Value;

use super::preview::written;
use super::{asya, bound};
use crate::binding::bound_actor;
use crate::minimal_actor;

/// A command, its exit code, and JSON pointers to values that must not be null.
type Command<'a> = (&'a [&'a str], i32, &'a [&'a str]);

async fn answers(scenario: &Scenario, (args, code, pointers): Command<'_>) -> Result<()> {
    let table = asya(scenario, args).await?;
    assert_eq!(
        table.code,
        Some(code),
        "{args:?}: {}{}",
        table.out,
        table.err
    );
    assert!(
        serde_json::from_str::<Value>(&table.out).is_err(),
        "{args:?}: {}",
        table.out
    );
    assert!(!table.out.trim().is_empty(), "{args:?}");
    let ended = asya(scenario, &[args, &["-o", "json"]].concat()).await?;
    assert_eq!(
        ended.code,
        Some(code),
        "{args:?}: {}{}",
        ended.out,
        ended.err
    );
    let json = ended.json()?;
    for pointer in pointers {
        let value = json.pointer(pointer);
        assert!(
            value.is_some_and(|it| !it.is_null()),
            "{args:?} {pointer}: {json:#}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_command_answers_as_a_table_and_as_json() {
    Scenario::run("cli-formats", async |scenario| {
        let (name, own) = (scenario.name("bound"), scenario.name("own"));
        let pods = bound(scenario, &name).await?;
        scenario.apply(&minimal_actor(&own)).await?;
        scenario.actor_status(&own, "Running", SOON).await?;
        let file = written(scenario, &bound_actor(&scenario.name("other"), "none-such"))?;
        let commands: [Command<'_>; 18] = [
            (
                &["status"],
                1,
                &["/0/status", "/0/ready", "/0/target", "/1/age"],
            ),
            (
                &["status", &name],
                1,
                &[
                    "/facts",
                    "/conditions/0/reason",
                    "/readyWithoutSidecar",
                    "/broker/consumers",
                ],
            ),
            (
                &["trace", &own],
                0,
                &["/name", "/state", "/children/0/children/0/detail"],
            ),
            (
                &["why", &pods[0]],
                1,
                &["/rules/8/verdict", "/running", "/next", "/actor"],
            ),
            (
                &["why", &format!("actor/{name}")],
                1,
                &["/1/rules/8/verdict"],
            ),
            (
                &["preview", "-f", &file],
                1,
                &["/0/write", "/0/problems/0/id", "/0/changes/0/diff"],
            ),
            (&["lint", "-f", &file], 0, &["/actors", "/findings"]),
            (&["check", "--pre"], 0, &["/0/subject", "/0/result"]),
            (&["explain"], 0, &["/0/name", "/0/fix"]),
            (
                &["explain", "StartedBeforeBinding"],
                0,
                &["/meaning", "/page"],
            ),
            (&["queue", &own], 0, &["/queue", "/waiting", "/consumers"]),
            (&["send", &own, "{}"], 0, &["/id", "/outcome"]),
            (&["pause", &own, "--yes"], 0, &["/action", "/changes"]),
            (&["resume", &own, "--yes"], 0, &["/action", "/changes"]),
            (
                &["roll", &name, "--dry-run=server"],
                0,
                &["/changes/0/field", "/changes/0/after", "/dryRun"],
            ),
            (
                &["retain", &name, "--dry-run=server"],
                0,
                &["/changes/0/after"],
            ),
            (
                &["unbind", &name, "--dry-run=server"],
                0,
                &["/changes/0/step"],
            ),
            (&["completion", "bash"], 0, &[]),
        ];
        let (completion, others) = commands.split_last().expect("there are commands");
        for command in others {
            answers(scenario, *command).await?;
        }
        let script = asya(scenario, completion.0).await?;
        assert_eq!(script.code, Some(0), "{}", script.err);
        assert!(script.out.contains("kubectl-asya"), "{}", script.out);
        let folder = scenario.folder()?.join("man");
        let folder = folder.display().to_string();
        let pages = asya(scenario, &["man", &folder]).await?;
        assert_eq!(pages.code, Some(0), "{}", pages.err);
        Ok(())
    })
    .await;
}
