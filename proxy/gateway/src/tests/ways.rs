//! The ways to an upstream: TLS with an authority of its own, HTTP/2, proxies, deadlines.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use metaclaw_chat::Span;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::harness::{CHAT, Harness, SetUp, Upstream, completion, json_reply, post_chat};
use crate::{Secret, UpstreamConfig, UpstreamDialect};

/// A server behind TLS; its authority's certificate lies in `ca`.
struct Encrypted {
    address: SocketAddr,
    ca: tempfile::NamedTempFile,
}

impl Encrypted {
    /// Answers every chat with the version of HTTP that it was asked in.
    async fn start(tasks: &TaskTracker, alpn: &[&str]) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_no_client_auth();
        let mut config = config
            .with_single_cert(vec![certificate.into()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // A client that does not trust it hangs up.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let builder = auto::Builder::new(TokioExecutor::new());
                        let service = service_fn(version);
                        builder
                            .serve_connection(TokioIo::new(stream), service)
                            .await
                            .ok();
                    }
                });
            }
        });
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), authority.pem()).unwrap();
        Self { address, ca }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }

    fn trusted(&self) -> UpstreamConfig {
        UpstreamConfig {
            url: self.url(),
            ca: Some(self.ca.path().to_owned()),
            ..UpstreamConfig::default()
        }
    }
}

async fn version(request: Request<Incoming>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let version = match request.version() {
        Version::HTTP_2 => "two",
        _ => "one",
    };
    request.into_body().collect().await.ok();
    Ok(Response::new(Full::from(completion(version))))
}

/// A gateway whose one upstream is as configured.
async fn before(llm: UpstreamConfig) -> Harness {
    let mut set_up = SetUp {
        no_llm: true,
        ..SetUp::default()
    };
    set_up.config.upstreams.insert("llm".into(), llm);
    Harness::with(set_up).await
}

#[tokio::test]
async fn an_authority_of_its_own_is_trusted_where_it_is_configured_and_nowhere_else() {
    let tasks = TaskTracker::new();
    for (alpn, version) in [(&["h2", "http/1.1"][..], "two"), (&["http/1.1"][..], "one")] {
        let server = Encrypted::start(&tasks, alpn).await;
        let harness = before(server.trusted()).await;
        for _ in 0..2 {
            assert_eq!(
                harness.refused(&post_chat(CHAT)).await.text(),
                completion(version)
            );
        }
    }
    let server = Encrypted::start(&tasks, &["h2"]).await;
    let llm = UpstreamConfig {
        ca: None,
        ..server.trusted()
    };
    let seen = before(llm).await.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 502);
    assert!(seen.text().contains("certificate"), "{}", seen.text());
}

#[tokio::test]
async fn a_proxy_forwards_what_is_in_the_clear() {
    let mut proxy = Upstream::start(&TaskTracker::new()).await;
    let llm = UpstreamConfig {
        url: "http://model.example:8080/v1".into(),
        proxy: Some(Secret::from(format!(
            "http://me:secret%21@{}",
            proxy.address
        ))),
        ..UpstreamConfig::default()
    };
    let harness = before(llm).await;
    let mut client = harness.client().await;
    client.send(&post_chat(CHAT)).await;
    let mut exchange = proxy.next().await;
    let line = exchange.head.lines().next().unwrap();
    assert_eq!(
        line,
        "POST http://model.example:8080/v1/chat/completions HTTP/1.1"
    );
    assert_eq!(
        exchange.header("host").as_deref(),
        Some("model.example:8080")
    );
    let shown = exchange.header("proxy-authorization");
    assert_eq!(shown.as_deref(), Some("Basic bWU6c2VjcmV0IQ=="));
    exchange.send(json_reply(&completion("x")).as_bytes()).await;
    assert_eq!(client.read().await.text(), completion("x"));
}

#[tokio::test]
async fn a_proxy_opens_a_tunnel_for_what_is_encrypted() {
    let tasks = TaskTracker::new();
    let mut proxy = Upstream::start(&tasks).await;
    let server = Encrypted::start(&tasks, &["h2"]).await;
    let llm = UpstreamConfig {
        proxy: Some(Secret::from(format!("http://me:secret@{}", proxy.address))),
        ..server.trusted()
    };
    let harness = before(llm).await;
    let mut client = harness.client().await;
    client.send(&post_chat(CHAT)).await;
    let mut exchange = proxy.next().await;
    let asked = format!("CONNECT localhost:{} HTTP/1.1", server.address.port());
    assert_eq!(exchange.head.lines().next(), Some(asked.as_str()));
    assert!(exchange.header("proxy-authorization").is_some());
    exchange.send(b"HTTP/1.1 200 Connected\r\n\r\n").await;
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let llm = UpstreamConfig {
        url: "http://model.example/v1".into(),
        proxy: Some(Secret::from(format!(
            "socks5://{}",
            listener.local_addr().unwrap()
        ))),
        ..UpstreamConfig::default()
    };
    let harness = before(llm).await;
    let mut client = harness.client().await;
    client.send(&post_chat(CHAT)).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    stream.read_exact(&mut methods).await.unwrap();
    stream.write_all(&[5, 0]).await.unwrap();
    let mut asked = [0; 5 + "model.example".len() + 2];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked[5..18], b"model.example");
    stream
        .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut head = vec![0; 4];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head, b"POST");
    stream
        .write_all(json_reply(&completion("x")).as_bytes())
        .await
        .unwrap();
    assert_eq!(client.read().await.text(), completion("x"));
}

#[tokio::test]
async fn the_deadline_of_a_connection_counts_its_greetings() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let llm = UpstreamConfig {
        url: format!(
            "https://localhost:{}/v1",
            silent.local_addr().unwrap().port()
        ),
        connect: Span::millis(200),
        ..UpstreamConfig::default()
    };
    let seen = before(llm).await.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 502);
    assert!(
        seen.text().contains("no connection within 200ms"),
        "{}",
        seen.text()
    );
}

#[tokio::test]
async fn azure_is_asked_at_its_own_routes_with_its_own_key() {
    let mut proxy = Upstream::start(&TaskTracker::new()).await;
    let llm = UpstreamConfig {
        url: "http://x.openai.azure.com".into(),
        dialect: UpstreamDialect::Azure,
        api_version: Some("2024-10-21".into()),
        keys: vec![Secret::from("k")],
        proxy: Some(Secret::from(format!("http://{}", proxy.address))),
        ..UpstreamConfig::default()
    };
    let harness = before(llm).await;
    let mut client = harness.client().await;
    client.send(&post_chat(CHAT)).await;
    let mut exchange = proxy.next().await;
    let line = exchange.head.lines().next().unwrap();
    assert_eq!(
        line,
        "POST http://x.openai.azure.com/openai/deployments/m/chat/completions?api-version=2024-10-21 HTTP/1.1"
    );
    assert_eq!(exchange.header("api-key").as_deref(), Some("k"));
    assert_eq!(exchange.header("authorization"), None);
    assert_eq!(exchange.body(), CHAT);
    exchange.send(json_reply(&completion("x")).as_bytes()).await;
    assert_eq!(client.read().await.status(), 200);
}
