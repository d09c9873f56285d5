//! Free loopback ports that are reserved until a process binds them.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::{Context, Error, Result};

/// Below the kernel's ephemeral port range, so that only another listener can take the port between choosing and
/// binding.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// The lock files of the ports that this process has chosen. They are held until it exits, so that two harnesses never
/// choose the same port.
static CHOSEN: Mutex<BTreeMap<u16, File>> = Mutex::new(BTreeMap::new());

/// Returns a free port on 127.0.0.1.
///
/// # Errors
/// When no port is free.
pub fn free() -> Result<u16> {
    let folder = locks();
    std::fs::create_dir_all(&folder).context(format_args!("make {}", folder.display()))?;
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or_default();
    for step in 0..COUNT {
        let port = FIRST + (start + step) % COUNT;
        if chosen.contains_key(&port) || TcpListener::bind(("127.0.0.1", port)).is_err() {
            continue;
        }
        let path = folder.join(port.to_string());
        let file = File::create(&path).context(format_args!("write {}", path.display()))?;
        if file.try_lock().is_ok() {
            chosen.insert(port, file);
            return Ok(port);
        }
    }
    Err(Error::other(format!("no free port from {FIRST} on")))
}

fn locks() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("asya-tests-{user}-ports"))
}

#[cfg(test)]
mod tests;
