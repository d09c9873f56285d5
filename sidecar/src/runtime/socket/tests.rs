//! The protocol against misbehaving runtimes.

mod fuzz;

use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{CallError, Socket, open};

const REQUEST: &[u8] = b"{\"id\":\"1\"}";

/// A unique socket path in the temporary directory.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("asya-sidecar-{}-{number}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self { path }
    }

    fn socket(&self) -> Socket {
        Socket {
            path: self.path.clone(),
            timeout: Duration::from_secs(5),
            largest: 1 << 20,
        }
    }

    /// A runtime that serves one connection.
    fn serve<F>(&self, serve: impl FnOnce(UnixStream) -> F + Send + 'static) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send,
    {
        let listener = UnixListener::bind(&self.path).expect("a listener");
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            serve(stream).await;
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn request(stream: &mut UnixStream) -> Vec<u8> {
    let length = stream.read_u32().await.expect("a length");
    let mut request = vec![0; length as usize];
    stream.read_exact(&mut request).await.expect("a request");
    request
}

/// SC-47, RUN-10
#[tokio::test]
async fn request_and_its_reply_are_one_frame_each() {
    let place = Place::new();
    let served = place.serve(|mut stream| async move {
        let request = request(&mut stream).await;
        stream.write_u32(4 + 2).await.expect("a length");
        for part in [&request[..4], b"\xc3", b"\xbc"] {
            stream.write_all(part).await.expect("a part");
            stream.flush().await.expect("on its way");
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(
        place.socket().call(REQUEST).await,
        Ok(Bytes::from_static("{\"idü".as_bytes()))
    );
    served.await.expect("served");
}

/// SC-47, RUN-21
#[tokio::test]
async fn large_messages_pass_with_partial_writes() {
    let place = Place::new();
    let large: Vec<u8> = (0..8 << 20)
        .map(|index: u32| index.to_le_bytes()[0])
        .collect();
    place.serve(|mut stream| async move {
        let request = request(&mut stream).await;
        stream
            .write_u32(u32::try_from(request.len()).expect("fits"))
            .await
            .expect("a length");
        stream.write_all(&request).await.expect("a reply");
    });
    let socket = Socket {
        largest: 8 << 20,
        ..place.socket()
    };
    let reply = socket.call(&large).await.expect("a reply");
    assert!(reply == large, "{} bytes came back", reply.len());
}

/// SC-48
#[tokio::test]
async fn unread_request_is_reported_as_not_read() {
    let place = Place::new();
    assert_eq!(
        place.socket().call(REQUEST).await,
        Err(CallError::NotRead),
        "there is no socket"
    );
    let listener = std::os::unix::net::UnixListener::bind(&place.path).expect("a listener");
    drop(listener);
    assert_eq!(
        place.socket().call(REQUEST).await,
        Err(CallError::NotRead),
        "no listener"
    );

    let place = Place::new();
    let listener = UnixListener::bind(&place.path).expect("a listener");
    let socket = place.socket();
    let call = tokio::spawn(async move { socket.call(REQUEST).await });
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(listener);
    assert_eq!(
        call.await.expect("a call"),
        Err(CallError::NotRead),
        "it was not accepted"
    );

    let place = Place::new();
    place.serve(|stream| async move { drop(stream) });
    assert_eq!(
        place.socket().call(REQUEST).await,
        Err(CallError::NotRead),
        "it was not read"
    );

    let place = Place::new();
    place.serve(|mut stream| async move {
        stream.read_u32().await.expect("a length");
    });
    assert_eq!(
        place.socket().call(REQUEST).await,
        Err(CallError::NotRead),
        "half of it was not read"
    );

    let place = Place::new();
    place.serve(|mut stream| async move {
        stream.read_u32().await.expect("a length");
    });
    let large = vec![b' '; 8 << 20];
    assert_eq!(
        place.socket().call(&large).await,
        Err(CallError::NotRead),
        "the runtime terminated during the write"
    );
}

/// A listener with a full backlog, and the connections in it.
fn full_listener(place: &Place) -> (UnixListener, Vec<BlockingStream>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let listener = listener.expect("a socket");
    bind(
        &listener,
        &SocketAddrUnix::new(&place.path).expect("an address"),
    )
    .expect("bound");
    listen(&listener, 0).expect("listening");
    let waiting = std::iter::from_fn(|| open(&place.path).ok()).collect();
    let listener = UnixListener::from_std(listener.into());
    (listener.expect("a listener"), waiting)
}

/// SC-48
#[tokio::test]
async fn call_waits_while_too_many_connections_wait_to_be_accepted() {
    let place = Place::new();
    let (listener, waiting) = full_listener(&place);
    let socket = place.socket();
    let call = tokio::spawn(async move { socket.call(REQUEST).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in waiting {
        listener.accept().await.expect("one that waits");
    }
    let accepted = timeout(Duration::from_secs(5), listener.accept()).await;
    let (mut stream, _) = accepted.expect("in time").expect("the call");
    request(&mut stream).await;
    stream.write_all(b"\0\0\0\x02[]").await.expect("a reply");
    assert_eq!(
        call.await.expect("a call"),
        Ok(Bytes::from_static(b"[]")),
        "the runtime is only busy"
    );
}

/// SC-48, SC-51
#[tokio::test]
async fn call_that_never_connects_was_not_read() {
    let place = Place::new();
    let _full = full_listener(&place);
    let socket = Socket {
        timeout: Duration::from_millis(100),
        ..place.socket()
    };
    let started = Instant::now();
    assert_eq!(socket.call(REQUEST).await, Err(CallError::NotRead));
    assert!(started.elapsed() >= socket.timeout);
}

/// SC-48, SC-51
#[tokio::test]
async fn request_that_was_not_read_by_the_deadline_is_not_read() {
    let short = |place: &Place| Socket {
        timeout: Duration::from_millis(100),
        ..place.socket()
    };
    let large = vec![b' '; 8 << 20];
    for request in [REQUEST, &vec![b' '; 10_000], &large] {
        let place = Place::new();
        let _listener = UnixListener::bind(&place.path).expect("a listener");
        assert_eq!(
            short(&place).call(request).await,
            Err(CallError::NotRead),
            "nothing accepts"
        );
    }
    for request in [REQUEST, &large] {
        let place = Place::new();
        let (called, hung_up) = oneshot::channel::<()>();
        place.serve(|mut stream| async move {
            stream.read_u32().await.expect("a length");
            hung_up.await.expect("the end of the call");
        });
        assert_eq!(
            short(&place).call(request).await,
            Err(CallError::NotRead),
            "only the length was read"
        );
        called.send(()).expect("a runtime");
    }
}

/// SC-12
#[tokio::test]
async fn runtime_answers_only_once_it_accepts_and_closes() {
    let place = Place::new();
    let socket = place.socket();
    assert!(!socket.answers().await, "there is no socket");
    let listener = UnixListener::bind(&place.path).expect("a listener");
    let probe = tokio::spawn(async move { socket.answers().await });
    let (mut stream, _) = listener.accept().await.expect("a probe");
    let read = stream.read(&mut [0]).await.expect("an end of stream");
    assert_eq!(read, 0, "a probe sends nothing");
    assert!(!probe.is_finished(), "the runtime may still fail");
    drop(stream);
    assert!(probe.await.expect("a probe"));

    let socket = place.socket();
    let probe = tokio::spawn(async move { socket.answers().await });
    tokio::task::yield_now().await;
    drop(listener);
    assert!(!probe.await.expect("a probe"), "it was not accepted");
}

/// SC-49
#[tokio::test]
async fn runtime_that_terminates_after_reading_the_request_has_crashed() {
    for sent in [&b""[..], b"\0\0", b"\0\0\0\x05ab"] {
        let place = Place::new();
        place.serve(move |mut stream| async move {
            request(&mut stream).await;
            stream.write_all(sent).await.expect("a part");
        });
        assert_eq!(
            place.socket().call(REQUEST).await,
            Err(CallError::Ended),
            "{sent:?}"
        );
    }
}

/// SC-51
#[tokio::test]
async fn one_deadline_covers_the_whole_call() {
    for sent in [&b""[..], b"\0\0\0\x05ab"] {
        let place = Place::new();
        let served = place.serve(move |mut stream| async move {
            request(&mut stream).await;
            stream.write_all(sent).await.expect("a part");
            let mut rest = Vec::new();
            let closed = stream.read_to_end(&mut rest).await;
            closed.expect("end of stream");
        });
        let socket = Socket {
            timeout: Duration::from_millis(100),
            ..place.socket()
        };
        assert_eq!(
            socket.call(REQUEST).await,
            Err(CallError::TimedOut),
            "{sent:?}"
        );
        served.await.expect("the connection was closed");
    }
}

/// SC-47, SC-84
#[tokio::test]
async fn announced_length_allocates_nothing_and_is_bounded() {
    let place = Place::new();
    place.serve(|mut stream| async move {
        request(&mut stream).await;
        stream.write_u32(u32::MAX).await.expect("a length");
    });
    let announced = usize::try_from(u32::MAX).expect("fits");
    assert_eq!(
        place.socket().call(REQUEST).await,
        Err(CallError::TooLarge(announced))
    );
}
