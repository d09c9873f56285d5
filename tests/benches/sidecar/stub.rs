//! A runtime that replies at once, on a thread of this process.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use asya_tests::{Error, Result};
use asya_wire::socket::{READY_FILE, SOCKET};

use crate::messages::reply;

/// The runtime. Its thread ends with the process.
#[derive(Clone)]
pub struct Stub {
    first: Arc<Mutex<Option<Instant>>>,
}

impl Stub {
    /// Listens in a folder, and becomes ready.
    pub fn start(folder: &Path) -> Result<Self> {
        let listener = UnixListener::bind(folder.join(SOCKET)).map_err(Error::other)?;
        std::fs::write(folder.join(READY_FILE), "ready\nconcurrency=1\n").map_err(Error::other)?;
        let stub = Self {
            first: Arc::default(),
        };
        let serving = stub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A probe connects without sending anything, and a mover may be killed meanwhile.
                let _ = serving.serve(stream);
            }
        });
        Ok(stub)
    }

    /// When the first call since the previous query arrived.
    pub fn take_first_call(&self) -> Option<Instant> {
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn serve(&self, mut stream: UnixStream) -> std::io::Result<()> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let now = Instant::now();
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(now);
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request)?;
        let body = reply(&request).unwrap_or_default();
        let mut frame = u32::try_from(body.len())
            .unwrap_or_default()
            .to_be_bytes()
            .to_vec();
        frame.extend(body);
        stream.write_all(&frame)
    }
}
