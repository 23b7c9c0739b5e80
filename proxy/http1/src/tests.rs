//! Both sides over a pipe in memory.

mod client;
mod framing;
mod server;

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::mpsc,
    time::timeout,
};

use crate::BoxError;

/// Far longer than anything here takes, in a time that is paused.
const PATIENCE: Duration = Duration::from_secs(75);

type Frames = mpsc::UnboundedReceiver<Result<Frame<Bytes>, BoxError>>;

/// A body that is given piece by piece; ends when its sender is dropped.
#[derive(Debug)]
struct Fed(Frames);

/// The other end of it.
#[derive(Debug)]
struct Feed(mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx)
    }
}

impl Feed {
    fn data(&self, data: impl Into<Bytes>) {
        // Whoever has gone needs no more.
        let _ = self.0.send(Ok(Frame::data(data.into())));
    }

    fn cut(&self) {
        let _ = self.0.send(Err("cut".into()));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test sends no more than it holds"
)]
fn fed() -> (Feed, Fed) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Feed(sender), Fed(receiver))
}

/// A whole body, without a length.
fn whole(data: impl Into<Bytes>) -> Fed {
    let (feed, body) = fed();
    feed.data(data);
    body
}

/// Reads until this text is the end of what has come.
async fn until(io: &mut DuplexStream, end: &str) -> String {
    let mut seen = Vec::new();
    let read = async {
        while !seen.ends_with(end.as_bytes()) {
            assert_ne!(io.read_buf(&mut seen).await.unwrap(), 0, "it ended");
        }
    };
    let read = timeout(PATIENCE, read).await;
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(read.is_ok(), "{end:?} does not come: {seen:?}");
    seen
}

/// Reads to the end of the connection.
async fn rest(io: &mut DuplexStream) -> String {
    let mut seen = Vec::new();
    let read = timeout(PATIENCE, io.read_to_end(&mut seen)).await;
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(matches!(read, Ok(Ok(_))), "no end: {read:?} {seen:?}");
    seen
}

async fn say(io: &mut DuplexStream, text: &str) {
    io.write_all(text.as_bytes()).await.unwrap();
}

fn nothing_read() -> BytesMut {
    BytesMut::new()
}
