//! Tests of connections to an upstream: TLS with an authority of its own, HTTP/2, proxies, deadlines.

use metaclaw_test_kit::has;
use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use metaclaw_chat::Span;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional, sink},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::TaskTracker;

use super::harness::{
    CHAT, Harness, SOON, Seen, SetUp, Upstream, bare, completion, post_chat, says,
};
use crate::{Provider, UpstreamConfig};

/// A server behind TLS. The file `ca` has the certificate of its authority.
struct Encrypted {
    address: SocketAddr,
    ca: tempfile::NamedTempFile,
}

impl Encrypted {
    /// Answers every chat with the version of HTTP that it was asked in.
    async fn start(tasks: &TaskTracker, alpn: &[&str]) -> Self {
        Self::with(tasks, alpn, serve).await
    }

    /// Serves each connection as `serve` does.
    async fn with<F>(
        tasks: &TaskTracker,
        alpn: &[&str],
        serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let own = own.signed_by(&key, &ca).unwrap();
        Self::showing(tasks, own, &key, &ca.pem(), alpn, serve).await
    }

    /// Shows a certificate that is trusted by `ca`.
    async fn showing<F>(
        tasks: &TaskTracker,
        certificate: Certificate,
        key: &KeyPair,
        ca_pem: &str,
        alpn: &[&str],
        serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust it hangs up.
                if let Ok(stream) = acceptor.accept(stream).await {
                    connections.spawn(serve(stream));
                }
            }
        });
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), ca_pem).unwrap();
        Self { address, ca }
    }

    fn trusted(&self) -> UpstreamConfig {
        UpstreamConfig {
            ca: Some(self.ca.path().to_owned()),
            ..at(format!("https://localhost:{}/v1", self.address.port()))
        }
    }
}

fn at(url: impl Into<String>) -> UpstreamConfig {
    UpstreamConfig {
        url: url.into(),
        ..UpstreamConfig::default()
    }
}

/// Listens on a port, and returns its address for settings.
async fn listen() -> (TcpListener, UpstreamConfig) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, at(format!("http://{address}/v1")))
}

/// A reply whose connection stays open.
fn kept_alive() -> String {
    says("x").replace("connection: close\r\n", "")
}

async fn serve(stream: TlsStream<TcpStream>) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), service_fn(version));
    served.await.ok();
}

async fn version(request: Request<Incoming>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let version = match request.version() {
        Version::HTTP_2 => "two",
        _ => "one",
    };
    request.into_body().collect().await.ok();
    Ok(Response::new(Full::from(completion(version))))
}

/// Makes a gateway with one upstream of this configuration.
async fn before(llm: UpstreamConfig) -> Harness {
    Harness::with(SetUp {
        no_llm: true,
        ..SetUp::before(llm)
    })
    .await
}

async fn chat(harness: &Harness) -> Seen {
    harness.refused(&post_chat(CHAT)).await
}

#[tokio::test]
async fn an_authority_of_its_own_is_trusted_where_it_is_configured_and_nowhere_else() {
    let tasks = TaskTracker::new();
    for (alpn, version) in [(&["h2", "http/1.1"][..], "two"), (&["http/1.1"][..], "one")] {
        let server = Encrypted::start(&tasks, alpn).await;
        let harness = before(server.trusted()).await;
        for _ in 0..2 {
            assert_eq!(chat(&harness).await.text(), completion(version));
        }
    }
    let server = Encrypted::start(&tasks, &["h2"]).await;
    let llm = UpstreamConfig {
        ca: None,
        ..server.trusted()
    };
    let seen = chat(&before(llm).await).await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["certificate"]);
}

/// Makes a configuration that is reached by this proxy.
fn by_proxy(llm: UpstreamConfig, proxy: String) -> UpstreamConfig {
    UpstreamConfig {
        proxy: Some(proxy.into()),
        ..llm
    }
}

#[tokio::test]
async fn a_proxy_forwards_what_is_in_the_clear() {
    let mut proxy = Upstream::start(&TaskTracker::new()).await;
    let with_password = format!("http://me:secret%21@{}", proxy.address);
    let llm = by_proxy(at("http://model.example:8080/v1"), with_password);
    let harness = before(llm).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let exchange = proxy.answer(&says("x")).await;
    let line = "POST http://model.example:8080/v1/chat/completions HTTP/1.1";
    assert_eq!(exchange.line(), line);
    assert_eq!(exchange.header("host"), Some("model.example:8080"));
    let shown = exchange.header("proxy-authorization");
    assert_eq!(shown, Some("Basic bWU6c2VjcmV0IQ=="));
    assert_eq!(client.read().await.text(), completion("x"));
}

#[tokio::test]
async fn a_proxy_opens_a_tunnel_for_what_is_encrypted() {
    let tasks = TaskTracker::new();
    let mut proxy = Upstream::start(&tasks).await;
    let server = Encrypted::start(&tasks, &["h2"]).await;
    let with_password = format!("http://me:secret@{}", proxy.address);
    let harness = before(by_proxy(server.trusted(), with_password)).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let connected = "HTTP/1.1 200 Connected\r\n\r\n";
    let mut exchange = proxy.answer(connected).await;
    let line = format!("CONNECT localhost:{} HTTP/1.1", server.address.port());
    assert_eq!(exchange.line(), line);
    assert!(exchange.header("proxy-authorization").is_some());
    tasks.spawn(async move {
        let mut onward = TcpStream::connect(server.address).await.unwrap();
        copy_bidirectional(&mut exchange.stream, &mut onward)
            .await
            .ok();
    });
    assert_eq!(client.read().await.text(), completion("two"));
}

#[tokio::test]
async fn a_socks_proxy_looks_the_name_up() {
    let (listener, _) = listen().await;
    let socks = format!("socks5://{}", listener.local_addr().unwrap());
    let harness = before(by_proxy(at("http://model.example/v1"), socks)).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    stream.read_exact(&mut methods).await.unwrap();
    stream.write_all(&[5, 0]).await.unwrap();
    let mut asked = [0; 5 + "model.example".len() + 2];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked[5..18], b"model.example");
    let granted = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    stream.write_all(&granted).await.unwrap();
    let mut head = vec![0; 4];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head, b"POST");
    stream.write_all(says("x").as_bytes()).await.unwrap();
    assert_eq!(client.read().await.text(), completion("x"));
}

#[tokio::test]
async fn the_deadline_of_a_connection_counts_its_greetings() {
    let (silent, _) = listen().await;
    let port = silent.local_addr().unwrap().port();
    let llm = UpstreamConfig {
        connect: Span::millis(200),
        ..at(format!("https://localhost:{port}/v1"))
    };
    let seen = chat(&before(llm).await).await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["no connection within 200ms"]);
}

#[tokio::test]
async fn azure_is_asked_at_its_own_routes_with_its_own_key() {
    let mut harness = Harness::before(UpstreamConfig {
        dialect: Provider::Azure,
        api_version: Some("2024-10-21".into()),
        keys: vec!["k".into()],
        ..at("http://x.openai.azure.com")
    })
    .await;
    let exchange = harness.chat("", CHAT, "x").await;
    let line = "POST http://x.openai.azure.com/openai/deployments/m/chat/completions?api-version=2024-10-21 HTTP/1.1";
    assert_eq!(exchange.line(), line);
    assert_eq!(exchange.header("api-key"), Some("k"));
    assert_eq!(exchange.header("authorization"), None);
    assert_eq!(exchange.body(), CHAT);
}

/// A server that closes each connection as a second request comes on it.
#[derive(Clone, Default)]
struct Closing {
    n_requests: Arc<AtomicUsize>,
    resets: bool,
}

impl Closing {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let second = Arc::new(Notify::new());
        let (n_here, came) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&second));
        let answer = move |request| {
            self.n_requests.fetch_add(1, Ordering::Relaxed);
            let is_second = n_here.fetch_add(1, Ordering::Relaxed) > 0;
            let came = Arc::clone(&came);
            async move {
                if is_second {
                    came.notify_one();
                    pending::<()>().await;
                }
                version(request).await
            }
        };
        let builder = auto::Builder::new(TokioExecutor::new());
        let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
        tokio::select! {
            _ = serving => {}
            () = second.notified() => {}
        }
    }

    async fn in_the_clear(self) -> UpstreamConfig {
        let (listener, llm) = listen().await;
        TaskTracker::new().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if self.resets {
                    let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    linger.unwrap();
                }
                TaskTracker::new().spawn(self.clone().serve(stream));
            }
        });
        llm
    }

    /// Checks that all chats are answered, every second one at the second try.
    async fn is_of_no_consequence(&self, llm: UpstreamConfig) {
        const CHATS: usize = 20;
        let harness = before(llm).await;
        for n in 0..CHATS {
            let seen = chat(&harness).await;
            assert_eq!(seen.status(), 200, "chat {n}: {}", seen.text());
        }
        let n_requests = self.n_requests.load(Ordering::Relaxed);
        assert!(n_requests > CHATS, "none was asked twice");
        assert!(n_requests <= 2 * CHATS, "{n_requests}");
    }
}

#[tokio::test]
async fn a_connection_that_closes_as_the_next_request_comes_is_replaced() {
    for resets in [false, true] {
        let closing = Closing {
            resets,
            ..Closing::default()
        };
        let llm = closing.clone().in_the_clear().await;
        closing.is_of_no_consequence(llm).await;
    }
    for alpn in [&["http/1.1"][..], &["h2"]] {
        let closing = Closing::default();
        let tasks = TaskTracker::new();
        let each = closing.clone();
        let server = Encrypted::with(&tasks, alpn, move |stream| each.clone().serve(stream)).await;
        closing.is_of_no_consequence(server.trusted()).await;
    }
}

#[tokio::test]
async fn servers_that_close_what_lies_idle_are_asked_without_a_failure() {
    const IDLE: Duration = Duration::from_millis(3);
    let (listener, llm) = listen().await;
    let tasks = TaskTracker::new();
    let connections = tasks.clone();
    let reply = kept_alive();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let reply = reply.clone();
            connections.spawn(async move {
                let mut asked = [0; 4 << 10];
                while let Ok(Ok(1..)) = timeout(IDLE, stream.read(&mut asked)).await {
                    stream.write_all(reply.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let harness = before(llm).await;
    for n in 0..300u64 {
        let seen = chat(&harness).await;
        assert_eq!(seen.status(), 200, "chat {n}: {}", seen.text());
        // The pause is what is tried: around what the server allows.
        sleep(IDLE * 2 / 3 + Duration::from_micros(n * 7)).await;
    }
}

#[tokio::test]
async fn idle_connections_are_closed_before_their_server_does() {
    let mut set_up = SetUp::default();
    let llm = set_up.llm();
    assert_eq!(llm.pool_idle, Span::secs(4), "uvicorn and Node: 5 s");
    llm.pool_idle = Span::millis(100);
    let mut harness = Harness::with(set_up).await;
    let (mut exchange, _) = harness.exchange(&post_chat(CHAT), &kept_alive()).await;
    assert!(exchange.is_closed().await);
}

#[tokio::test]
async fn what_was_begun_or_asked_on_a_new_connection_is_not_asked_again() {
    let mut harness = Harness::start().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    drop(harness.upstream.next().await);
    let seen = client.read().await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["sent no reply"]);
    assert!(harness.upstream.is_unasked());
    // One that has answered before, and breaks off within its second reply.
    let (mut exchange, _) = harness.exchange(&post_chat(CHAT), &kept_alive()).await;
    client.send(&post_chat(CHAT)).await;
    exchange.read_more().await;
    exchange.send("HTTP/1.1 200 O").await;
    drop(exchange);
    assert_eq!(client.read().await.status(), 502);
    assert!(harness.upstream.is_unasked());
}

/// Once, a reply that the client did not read yet stopped its upload.
#[tokio::test]
async fn a_server_that_answers_while_it_is_asked_is_read_meanwhile() {
    const SIZE: usize = 30 << 20;
    let (listener, llm) = listen().await;
    // Not the harness's upstream: that one has read a request to its end before it answers.
    TaskTracker::new().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut asked, mut answer) = stream.split();
        assert_ne!(asked.read(&mut [0; 4 << 10]).await.unwrap(), 0);
        let answering = async {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
            answer.write_all(head.as_bytes()).await?;
            answer.write_all(&vec![b'r'; SIZE]).await
        };
        let reading = async { copy(&mut asked, &mut sink()).await };
        tokio::join!(answering, reading)
    });
    let harness = before(llm).await;
    let length = format!("content-length: {SIZE}\r\n");
    let head = bare("POST", "/v1/files", &length);
    let mut client = harness.sent(&head).await;
    // It reads nothing before all has gone up.
    let body = vec![b'u'; SIZE];
    let uploaded = timeout(SOON, client.stream.write_all(&body)).await;
    uploaded.expect("no end").unwrap();
    assert_eq!(client.read().await.body.len(), SIZE);
}

#[tokio::test]
async fn a_fault_is_told_as_that_of_whoever_made_it() {
    let mut harness = Harness::start().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    harness
        .upstream
        .answer("+OK POP3 server ready\r\n\r\n")
        .await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["something that is not HTTP"]);
    let chunked = bare("POST", "/v1/files", "transfer-encoding: chunked\r\n");
    let broken = [&chunked, &b"xyz\r\n"[..]].concat();
    let seen = harness.refused(&broken).await;
    assert_eq!(seen.status(), 400, "{}", seen.text());
}

/// As `openssl req -x509` makes it, and as it should.
#[tokio::test]
async fn a_server_that_signed_its_own_certificate_is_trusted_or_told_what_to_do() {
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for (is_ca, status) in [(IsCa::ExplicitNoCa, 200), (ca, 502)] {
        let mut own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        own.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let own = own.self_signed(&key).unwrap();
        let (pem, tasks) = (own.pem(), TaskTracker::new());
        let server = Encrypted::showing(&tasks, own, &key, &pem, &["h2"], serve).await;
        let seen = chat(&before(server.trusted()).await).await;
        let is_told = seen.text().contains("CA:FALSE");
        assert_eq!((seen.status(), is_told), (status, status == 502));
    }
}
