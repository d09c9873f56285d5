//! `kubectl asya` in a terminal: output fits its width, and `--watch` prints changes until Ctrl-C.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::bin_folder;
use asya_tests::scenario::Scenario;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;
use unicode_width::UnicodeWidthStr;

use super::preview::written;
use super::{MINUTE, asya, bound, patience};
use crate::binding::bound_actor;
use crate::minimal_actor;

const CLEAR: &str = "\x1b[H\x1b[2J";

/// The program, running in a terminal.
pub struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Starts the program in a terminal with this many columns.
    pub fn start(scenario: &Scenario, columns: u16, args: &[&str]) -> Result<Self> {
        let (mut master, slave) = opened(columns)?;
        let errors = slave.try_clone().map_err(Error::other)?;
        let child = Command::new(bin_folder()?.join("kubectl-asya"))
            .args(args)
            .args(patience(args))
            .args(["--namespace", scenario.namespace()])
            .env_clear()
            .env("KUBECONFIG", &scenario.cluster().state().kubeconfig)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .stdout(slave)
            .stderr(errors)
            .spawn()
            .map_err(Error::other)?;
        let (sender, output) = channel();
        // Ends when the program has closed the terminal.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            output,
            seen: String::new(),
        })
    }

    /// Everything written so far.
    fn seen(&mut self) -> &str {
        while let Ok(bytes) = self.output.try_recv() {
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        &self.seen
    }

    /// Everything written since the screen was last cleared.
    fn screen(&mut self) -> &str {
        let seen = self.seen();
        seen.rsplit_once(CLEAR).map_or(seen, |(_, screen)| screen)
    }

    /// Everything that was written. Only for a program that has exited.
    pub async fn all(&mut self) -> Result<String> {
        eventually("all output is read", SOON, async || {
            loop {
                match self.output.try_recv() {
                    Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                    Err(TryRecvError::Disconnected) => return Ok(self.seen.clone()),
                    Err(TryRecvError::Empty) => return Err(NotYet::new("the terminal is open")),
                }
            }
        })
        .await
    }

    pub async fn ended(&mut self) -> Result<Option<i32>> {
        let child = &mut self.child;
        let status = eventually("the program has ended", MINUTE, async || {
            let status = child.try_wait().map_err(NotYet::new)?;
            status.ok_or_else(|| NotYet::new("it runs"))
        });
        Ok(status.await?.code())
    }

    pub fn interrupt(&self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).map_err(Error::other)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a terminal with this many columns; returns the end that reads its output, and the end for the program.
fn opened(columns: u16) -> Result<(File, File)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let master = openpt(flags).map_err(Error::other)?;
    grantpt(&master).map_err(Error::other)?;
    unlockpt(&master).map_err(Error::other)?;
    let name = ptsname(&master, Vec::new()).map_err(Error::other)?;
    let name = name.into_string().map_err(Error::other)?;
    let slave = File::options().read(true).write(true).open(name);
    let slave = slave.map_err(Error::other)?;
    let size = Winsize {
        ws_row: 50,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).map_err(Error::other)?;
    Ok((File::from(master), slave))
}

/// Runs the program, whose output and notes must fit terminals of 80 and 140 columns. Returns the narrow output.
pub async fn fits(scenario: &Scenario, code: &[i32], args: &[&str]) -> Result<String> {
    fits_at(scenario, 140, code, args).await?;
    fits_at(scenario, 80, code, args).await
}

/// Runs the program, whose output and notes must fit a terminal of this many columns.
pub async fn fits_at(
    scenario: &Scenario,
    columns: u16,
    code: &[i32],
    args: &[&str],
) -> Result<String> {
    let mut terminal = Terminal::start(scenario, columns, args)?;
    let ended = terminal.ended().await?;
    let text = plain(&terminal.all().await?);
    println!(
        "$ kubectl asya {} # {columns} columns\n{text}",
        args.join(" ")
    );
    assert!(
        ended.is_some_and(|it| code.contains(&it)),
        "{args:?}: {ended:?}"
    );
    for line in text.lines() {
        assert!(line.width() <= usize::from(columns), "{args:?}: {line}");
    }
    Ok(text)
}

/// The text without escape sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(|it: char| it.is_ascii_alphabetic());
        plain.push_str(rest.map_or("", |(_, rest)| rest));
    }
    plain
}

#[tokio::test]
async fn tables_fit_terminals_of_80_and_140_columns() {
    Scenario::run("cli-width", async |scenario| {
        let name = scenario.name("bound");
        let pods = bound(scenario, &name).await?;
        let mut broken = minimal_actor(&scenario.name("broken"));
        broken["spec"]["transport"] = json!("kafka");
        scenario.apply(&broken).await?;
        scenario
            .actor_status(&scenario.name("broken"), "TransportError", SOON)
            .await?;
        let commands = [
            &["status"][..],
            &["status", "-o", "wide"],
            &["status", &name],
            &["trace", &name],
            &["why", &pods[0]],
            &["queue", &name],
            &["check"],
            &["explain"],
            &["explain", "WebhookUnavailable"],
            &["send", &name, "{}"],
        ];
        for args in commands {
            fits(scenario, &[0, 1], args).await?;
        }
        Ok(())
    })
    .await;
}

/// Diffs are the widest output: each part of a wrapped line has its sign, and the whole text is still there.
#[tokio::test]
async fn diffs_of_previews_fit_terminals_of_80_and_140_columns() {
    Scenario::run("cli-width-preview", async |scenario| {
        let name = scenario.name("bound");
        bound(scenario, &name).await?;
        let long = "a-handler-with-a-name-that-is-longer-than-any-terminal-is-wide/".repeat(3);
        let mut changed = bound_actor(&name, "model");
        changed["spec"]["runtime"] = json!({"env": [
            {"name": "LONG", "value": long}, {"name": "PROSE", "value": "many words ".repeat(20)},
        ]});
        let mut created = minimal_actor(&scenario.name("created"));
        created["spec"]["scaling"] = json!({"enabled": true});
        let mut rejected = minimal_actor(&scenario.name("rejected"));
        rejected["spec"]["workload"]["replicas"] = json!(-1);
        for (actor, codes) in [(changed, &[0][..]), (created, &[0]), (rejected, &[1])] {
            let file = written(scenario, &actor)?;
            let text = fits(scenario, codes, &["preview", "-f", &file]).await?;
            let added = text.lines().filter_map(|line| line.strip_prefix('+'));
            let added: String = added.map(str::trim).collect();
            let is_there = added.contains(&long) || !actor.to_string().contains(&long);
            assert!(is_there, "{text}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn pipes_get_whole_lines_though_standard_error_is_a_terminal() {
    let (_reader, narrow) = opened(40).unwrap();
    let output = Command::new(bin_folder().unwrap().join("kubectl-asya"))
        .arg("explain")
        .env_clear()
        .stdin(Stdio::null())
        .stderr(narrow)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line.width() > 100), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

/// A command, and whether a screen shows the change.
type Watching<'a> = (&'a [&'a str], fn(&str) -> bool);

#[tokio::test]
async fn watch_prints_after_changes_until_ctrl_c() {
    Scenario::run("cli-watch", async |scenario| {
        let name = scenario.name("watched");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", MINUTE).await?;
        let commands: [Watching<'_>; 4] = [
            (&["status", "--watch"], |it| it.contains("second")),
            (&["status", &name, "--watch"], |it| {
                it.contains("2 ready of 2 desired")
            }),
            (&["trace", &name, "--watch"], |it| {
                it.matches("Pod/").count() == 2
            }),
            (&["queue", &name, "--watch"], |it| {
                it.lines()
                    .any(|it| it.starts_with("waiting") && it.trim_end().ends_with('1'))
            }),
        ];
        let mut terminals = Vec::new();
        for (args, shows) in commands {
            terminals.push((args, shows, Terminal::start(scenario, 140, args)?));
        }
        let file = scenario.cluster().folder().join(scenario.name("piped"));
        let mut piped = piped(scenario, &file)?;
        for (args, shows, terminal) in &mut terminals {
            eventually(format_args!("{args:?} shows it"), MINUTE, async || {
                let screen = terminal.screen();
                check(screen.contains(&name) && !shows(screen), screen)
            })
            .await?;
        }

        asya(scenario, &["send", &name, "1"]).await?;
        let mut actor = minimal_actor(&name);
        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        scenario
            .apply(&minimal_actor(&scenario.name("second")))
            .await?;
        for (args, shows, terminal) in &mut terminals {
            eventually(
                format_args!("{args:?} shows the change"),
                MINUTE,
                async || {
                    let screen = terminal.screen();
                    check(shows(screen), screen)
                },
            )
            .await?;
            terminal.interrupt()?;
            assert_eq!(terminal.ended().await?, Some(0), "{args:?}");
        }
        let text = eventually("the pipe has both answers", MINUTE, async || {
            let text = std::fs::read_to_string(&file).map_err(NotYet::new)?;
            check(text.contains("second"), &text)?;
            Ok(text)
        })
        .await?;
        assert!(
            !text.contains('\x1b') && text.matches("NAME").count() > 1,
            "{text}"
        );
        kill_process(Pid::from_child(&piped), Signal::INT).map_err(Error::other)?;
        let code = piped.wait().map_err(Error::other)?.code();
        assert_eq!(code, Some(0));
        Ok(())
    })
    .await;
}

/// Runs `status --watch` with its output in a file.
fn piped(scenario: &Scenario, file: &std::path::Path) -> Result<Child> {
    let file = File::create(file).map_err(Error::other)?;
    Command::new(bin_folder()?.join("kubectl-asya"))
        .args(["status", "--watch", "--namespace", scenario.namespace()])
        .env_clear()
        .env("KUBECONFIG", &scenario.cluster().state().kubeconfig)
        .stdin(Stdio::null())
        .stdout(file)
        .spawn()
        .map_err(Error::other)
}
