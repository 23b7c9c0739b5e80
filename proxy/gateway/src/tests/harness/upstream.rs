//! An upstream that speaks plain bytes and hands each request to the test.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::messages::{END, SOON, begun, chunk, find, header, json_reply, says};

/// The models of a vLLM: a base model and an adapter.
pub(crate) const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","root":"/m","parent":null},{"id":"px","object":"model","root":"/a/px","parent":"m"}]}"#;

/// A server that hands each request to the test.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    exchanges: mpsc::Receiver<Exchange>,
    /// Its own answer to a request for its models. Without it, the test gets that request too.
    pub(crate) models: Arc<Mutex<Option<String>>>,
}

/// One request at the upstream, and the connection to answer on.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Request line and headers, as they came.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) stream: TcpStream,
}

impl Upstream {
    pub(crate) async fn start(tasks: &TaskTracker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exchanges) = mpsc::channel(1_000);
        let models = Arc::new(Mutex::new(None));
        let own = Arc::clone(&models);
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One request a connection; what is asked on it later is the test's to read.
                let mut exchange = Exchange::read(stream).await;
                let models: Option<String> = own.lock().unwrap().clone();
                if let (Ok(exchange), Some(models)) = (&mut exchange, models)
                    && exchange.head.starts_with("GET /v1/models ")
                {
                    let answer = json_reply(&models);
                    exchange.send(&answer).await;
                    continue;
                }
                if let Ok(exchange) = exchange
                    && sender.send(exchange).await.is_err()
                {
                    return;
                }
            }
        });
        Self {
            address,
            exchanges,
            models,
        }
    }

    pub(crate) async fn next(&mut self) -> Exchange {
        timeout(SOON, self.exchanges.recv())
            .await
            .expect("a request at the upstream")
            .unwrap()
    }

    /// Answers the next request with these bytes.
    pub(crate) async fn answer(&mut self, reply: &(impl AsRef<[u8]> + ?Sized)) -> Exchange {
        let mut exchange = self.next().await;
        exchange.send(reply).await;
        exchange
    }

    /// Returns the address as settings have it, with `/v1`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn is_unasked(&mut self) -> bool {
        self.exchanges.try_recv().is_err()
    }
}

impl Exchange {
    async fn read(mut stream: TcpStream) -> io::Result<Self> {
        let mut buffer = Vec::new();
        let end = loop {
            if let Some(end) = find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
        let mut body = buffer.split_off(end);
        if let Some(n_bytes) = header(&head, "content-length") {
            let n_bytes: usize = n_bytes.parse().unwrap();
            while body.len() < n_bytes {
                if stream.read_buf(&mut body).await? == 0 {
                    break;
                }
            }
        }
        Ok(Self { head, body, stream })
    }

    pub(crate) async fn send(&mut self, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Answers with this whole body.
    pub(crate) async fn answer(&mut self, body: &str) {
        self.send(&json_reply(body)).await;
    }

    /// Answers with a completion that says this.
    pub(crate) async fn say(&mut self, text: &str) {
        self.send(&says(text)).await;
    }

    /// Begins a streamed answer that says this.
    pub(crate) async fn begin(&mut self, text: &str) {
        self.send(&begun(text)).await;
    }

    /// Ends a streamed answer with these events.
    pub(crate) async fn end(&mut self, events: &str) {
        self.send(&format!("{}{END}", chunk(events))).await;
    }

    /// Reads the next request on the same connection.
    pub(crate) async fn read_more(&mut self) {
        let mut asked = [0; 4 << 10];
        assert_ne!(self.stream.read(&mut asked).await.unwrap(), 0);
    }

    pub(crate) fn body(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns whether the gateway closes the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = [0; 64];
        match timeout(SOON, self.stream.read(&mut rest)).await {
            Ok(Ok(n_bytes)) => n_bytes == 0,
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }
}
