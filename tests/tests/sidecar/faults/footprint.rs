//! Resources of a process: memory, file descriptors, threads.

use asya_tests::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub resident_kib: u64,
    pub descriptors: usize,
    pub threads: u64,
}

/// How much a sidecar may grow during a run. Its allocator keeps the memory of large messages.
const GROWTH: Footprint = Footprint {
    resident_kib: 32 << 10,
    descriptors: 16,
    threads: 2,
};

impl Footprint {
    pub fn of(pid: u32) -> Result<Self> {
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(Error::other)?;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(Error::other)?;
        Ok(Self {
            resident_kib: field(&status, "VmRSS:"),
            descriptors: descriptors.count(),
            threads: field(&status, "Threads:"),
        })
    }

    /// SC-108: whether the growth is within the limit.
    pub fn is_within(&self, before: &Self) -> bool {
        self.resident_kib <= before.resident_kib + GROWTH.resident_kib
            && self.descriptors <= before.descriptors + GROWTH.descriptors
            && self.threads <= before.threads + GROWTH.threads
    }
}

fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
