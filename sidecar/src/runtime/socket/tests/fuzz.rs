//! Replies of arbitrary bytes, in arbitrary pieces (SC-100).

use asya_fuzz::input::damaged;
use asya_fuzz::proptest::collection::vec;
use asya_fuzz::proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof};
use asya_fuzz::{check, fail};
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::super::read;
use crate::runtime::CallError;

const LARGEST: usize = 40_000;

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("fits");
    [&length.to_be_bytes(), body].concat()
}

/// Frames, almost frames, and anything else.
fn replies() -> impl Strategy<Value = Vec<u8>> {
    let (long, longer) = ([7].repeat(20_000), [7].repeat(50_000));
    let frames = [&b""[..], b"[]", b"[{}]", &long, &longer];
    prop_oneof![
        damaged(frames.into_iter().map(frame).collect()),
        vec(any::<u8>(), 0..64),
        vec(any::<u8>(), 0..64).prop_map(|body| frame(&body)),
    ]
}

/// The expected result for these bytes.
fn expected(bytes: &[u8]) -> Result<Bytes, CallError> {
    let (length, body) = bytes.split_first_chunk().ok_or(CallError::Ended)?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > LARGEST {
        return Err(CallError::TooLarge(length));
    }
    let body = body.get(..length).ok_or(CallError::Ended)?;
    Ok(Bytes::copy_from_slice(body))
}

/// SC-47, SC-49, SC-100
#[test]
fn any_reply_is_the_frame_that_it_begins_with_or_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    check(&(replies(), 1..5_000_usize), |(bytes, piece)| {
        let found = runtime.block_on(async {
            let (mut ours, mut theirs) = UnixStream::pair()?;
            let writing = async {
                for part in bytes.chunks(piece) {
                    // The sidecar hangs up once it has read enough.
                    if theirs.write_all(part).await.is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                drop(theirs);
            };
            let reading = async {
                let found = read(&mut ours, LARGEST).await;
                drop(ours);
                found
            };
            Ok(tokio::join!(reading, writing).0)
        });
        prop_assert_eq!(
            found.map_err(|error: std::io::Error| fail(error))?,
            expected(&bytes)
        );
        Ok(())
    });
}
