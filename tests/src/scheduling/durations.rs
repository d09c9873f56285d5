//! Last duration of each test. The longest tests get their slots first, so that none of them is left for the end, when
//! the others no longer keep the machine busy.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::build::cache_folder;

/// Number of lines beyond which those of earlier runs are dropped.
const LONGEST: usize = 5000;

static EARLIER: LazyLock<HashMap<String, f64>> =
    LazyLock::new(|| file().map_or_else(HashMap::new, |file| load(&file)));

/// How many tests took longer than this one. 0 for a test that has never run, since it may be long.
pub(super) fn rank(test: &str) -> usize {
    rank_among(&EARLIER, test)
}

/// Appends a test's duration for the next run. The record only speeds that up, so failures are ignored.
pub(super) fn record(test: &str, seconds: f64) {
    let open = |file| OpenOptions::new().append(true).create(true).open(file);
    if let Some(mut file) = file().and_then(|file| open(file).ok()) {
        let _ = file.write_all(line(test, seconds).as_bytes());
    }
}

fn line(test: &str, seconds: f64) -> String {
    format!("{seconds:.1} {test}\n")
}

fn file() -> Option<PathBuf> {
    Some(cache_folder().ok()?.join("durations"))
}

fn load(file: &Path) -> HashMap<String, f64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let latest = parse(&text);
    if text.lines().count() > LONGEST {
        let lines = latest.iter().map(|(test, seconds)| line(test, *seconds));
        let lines: String = lines.collect();
        let _ = fs::write(file, lines);
    }
    latest
}

/// The last duration of each test. Skips lines that another process was writing.
fn parse(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(seconds, test)| Some((test.to_owned(), seconds.parse().ok()?)))
        .collect()
}

fn rank_among(earlier: &HashMap<String, f64>, test: &str) -> usize {
    let Some(own) = earlier.get(test) else {
        return 0;
    };
    earlier.values().filter(|seconds| *seconds > own).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_and_unknown_tests_come_first() {
        let earlier = parse(
            "9.0 a::short\n70.5 a::long\nx a::broken\n3.0 a::sh\n80 a::short\n1.5 a::short\n",
        );
        assert_eq!(earlier.len(), 3);
        let ranks =
            ["a::long", "a::new", "a::sh", "a::short"].map(|test| rank_among(&earlier, test));
        assert_eq!(ranks, [0, 0, 1, 2]);
    }

    #[test]
    fn only_the_last_durations_are_kept() {
        let folder = std::env::temp_dir().join(format!("asya-durations-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("durations");
        fs::write(&file, "1.0 a\n2.0 b\n".repeat(LONGEST) + "3.0 a\n").unwrap();
        assert_eq!(
            load(&file),
            HashMap::from([("a".to_owned(), 3.0), ("b".to_owned(), 2.0)])
        );
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
