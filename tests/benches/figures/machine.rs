//! What the machine tells of itself and of our processes.

use std::time::Duration;

use asya_tests::{Error, Result};

/// What `/proc` counts processor time in; the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processors, and how busy they are before we begin.
pub fn about() -> Result<String> {
    let cores = std::thread::available_parallelism().map_err(Error::other)?;
    let load = read("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("{cores} cores, load {load} at the start"))
}

/// Processor time that a process has used.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold anything: what follows it is in columns.
    let columns = stat.rsplit_once(')').map_or("", |(_, columns)| columns);
    let ticks = columns.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// Memory that a process holds, in MiB.
pub fn memory(pid: u32) -> Result<f64> {
    let status = read(&format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let kilobytes = kilobytes.ok_or_else(|| Error::other("no VmRSS"))?;
    Ok(kilobytes / 1024.0)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::Other(format!("{path}: {error}")))
}
