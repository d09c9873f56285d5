//! What the machine reports about itself and our processes.

use std::fmt;
use std::time::Duration;

use asya_tests::{Error, Result};

/// The unit of processor time in `/proc`, which is the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The number of processors and their load at the start.
pub fn about() -> Result<String> {
    let cores = std::thread::available_parallelism().map_err(Error::other)?;
    let load = read("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("{cores} cores, load {load} at the start"))
}

/// The processor time that a process has used.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain anything; the columns follow it.
    let columns = stat.rsplit_once(')').map_or("", |(_, columns)| columns);
    let ticks = columns.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// The resident memory of a process, in MiB.
pub struct Memory {
    pub resident: f64,
    /// Excludes the program's own pages: how many of those are resident depends on how the kernel cached the file.
    allocated: f64,
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self> {
        let status = read(&format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            let kib = kib.ok_or_else(|| Error::Other(format!("no {name}")))?;
            Ok(kib / 1024.0)
        };
        Ok(Self {
            resident: field("VmRSS:")?,
            allocated: field("RssAnon:")?,
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resident, allocated) = (self.resident, self.allocated);
        write!(f, "{resident:.0} MiB ({allocated:.0} allocated)")
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::Other(format!("{path}: {error}")))
}
