//! Tests with a server that answers like the hub.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, Once},
};

use reqwest::redirect;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;
use crate::hub::{ask::ENDPOINT, store::digits};

mod weights;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKENIZER: &[u8] = b"{\"model\": \"not small\"}";

/// The server's files and behaviour.
#[derive(Default)]
struct Site {
    small: BTreeMap<&'static str, &'static [u8]>,
    /// Files at another server. The hub redirects to it.
    large: BTreeMap<&'static str, &'static [u8]>,
    /// The answer to every request instead.
    refuses: Option<&'static str>,
    /// Number of bytes after which the next body breaks off.
    cut: Mutex<Option<usize>>,
    /// The same for each body of a large file in turn.
    cuts: Mutex<VecDeque<usize>>,
    /// A file that claims to be larger than any disk.
    huge: Option<&'static str>,
    /// Number of bytes of large files that were sent.
    n_sent: Mutex<usize>,
    /// Whether bodies differ from the announced ones.
    lies: bool,
    /// The head of each request.
    seen: Mutex<Vec<String>>,
}

impl Site {
    /// Makes a model with a small configuration and a tokenizer at another server.
    fn usual() -> Self {
        Self {
            small: [
                ("config.json", &b"{\"a\": 1}"[..]),
                ("tokenizer_config.json", b"{}"),
            ]
            .into(),
            large: [("tokenizer.json", TOKENIZER)].into(),
            ..Self::default()
        }
    }

    fn answer(&self, head: &str, address: SocketAddr) -> Vec<u8> {
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        if let Some(refusal) = self.refuses {
            return refusal.into();
        }
        if let Some(file) = path.strip_prefix("/bytes/") {
            let mut answer = self.body(self.large[file], head, "");
            let begin = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
            if let Some(cut) = self.cuts.lock().unwrap().pop_front() {
                answer.truncate(begin + cut);
            }
            *self.n_sent.lock().unwrap() += answer.len() - begin;
            return answer;
        }
        // The model was renamed: its old name redirects to the new one.
        if let Some(rest) = path.strip_prefix("/old/tiny/") {
            return format!("HTTP/1.1 307 Moved\r\nlocation: /own/tiny/{rest}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into();
        }
        let file = path.rsplit('/').next().unwrap();
        let commit = format!("x-repo-commit: {COMMIT}\r\n");
        if let Some(bytes) = self.large.get(file) {
            let (mut size, hash) = (bytes.len(), digest(bytes));
            if self.huge == Some(file) {
                size = 1_000_000_000_000_000;
            }
            let port = address.port();
            return format!("HTTP/1.1 302 Found\r\n{commit}x-linked-size: {size}\r\nx-linked-etag: \"{hash}\"\r\nlocation: http://localhost:{port}/bytes/{file}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into();
        }
        let Some(bytes) = self.small.get(file) else {
            return "HTTP/1.1 404 Not Found\r\nx-error-code: EntryNotFound\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".into();
        };
        let headers = format!("{commit}etag: W/\"git-{}\"\r\n", bytes.len());
        if method == "HEAD" {
            let size = bytes.len();
            return format!(
                "HTTP/1.1 200 OK\r\n{headers}content-length: {size}\r\nconnection: close\r\n\r\n"
            )
            .into();
        }
        self.body(bytes, head, &headers)
    }

    fn body(&self, bytes: &[u8], head: &str, headers: &str) -> Vec<u8> {
        let range = head.to_ascii_lowercase();
        let from = range.split_once("range: bytes=").map_or(0, |(_, rest)| {
            rest.split_once('-').unwrap().0.parse::<usize>().unwrap()
        });
        let (status, range) = match from {
            0 => ("200 OK", String::new()),
            from => {
                let (last, size) = (bytes.len() - 1, bytes.len());
                let range = format!("content-range: bytes {from}-{last}/{size}\r\n");
                ("206 Partial Content", range)
            }
        };
        let mut rest = bytes[from..].to_vec();
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}{range}content-length: {}\r\nconnection: close\r\n\r\n",
            rest.len()
        );
        if self.lies {
            rest.reverse();
        }
        if let Some(cut) = self.cut.lock().unwrap().take() {
            rest.truncate(cut);
        }
        [head.into_bytes(), rest].concat()
    }

    /// Returns the requests as `METHOD path`, without the configuration's files.
    fn asked(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let line = |head: &String| head.split(" HTTP").next().unwrap().to_owned();
        seen.iter().map(line).collect()
    }
}

fn digest(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

/// A server, and a cache that is filled from it.
struct Rig {
    site: Arc<Site>,
    hub: Hub,
    folder: TempDir,
}

fn rig(site: Site, token: Option<&str>) -> Rig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let site = Arc::new(site);
    let serving = Arc::clone(&site);
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer_one(&serving, stream.unwrap(), address);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("hub").display().to_string();
    let env = |name: &str| match name {
        "HF_ENDPOINT" => Some(format!("http://{address}/")),
        "HF_HUB_CACHE" => Some(cache.clone()),
        "HF_TOKEN" => token.map(str::to_owned),
        _ => None,
    };
    let mut hub = Hub::from_env(client(), &env).unwrap();
    hub.pause = Duration::ZERO;
    Rig { site, hub, folder }
}

fn answer_one(site: &Site, mut stream: TcpStream, address: SocketAddr) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let answer = site.answer(&head, address);
    site.seen.lock().unwrap().push(head);
    // The client may have disconnected.
    let _ = stream.write_all(&answer);
}

fn client() -> Client {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .unwrap();
    });
    let builder = Client::builder().redirect(redirect::Policy::none());
    builder.no_proxy().build().unwrap()
}

impl Rig {
    async fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        self.hub.fetch(&name.parse().unwrap(), &|_| {}).await
    }

    /// Returns the error's message without parts that differ from run to run.
    async fn error(&self) -> String {
        let error = self.fetch("own/tiny").await.unwrap_err().to_string();
        let error = error.replace(&self.hub.server.endpoint, "[hub]");
        error.replace(&self.folder.path().display().to_string(), "[folder]")
    }

    fn model(&self) -> PathBuf {
        self.hub.cache().join("models--own--tiny")
    }
}

#[tokio::test]
async fn text_files_are_fetched_into_the_layout_of_huggingface_hub() {
    let rig = rig(Site::usual(), Some("hf_secret"));
    let seen = Mutex::new(Vec::new());
    let told = |progress: Progress<'_>| {
        let file = progress.file.to_owned();
        seen.lock()
            .unwrap()
            .push((file, progress.done, progress.total));
    };
    let folder = rig
        .hub
        .fetch(&"own/tiny".parse().unwrap(), &told)
        .await
        .unwrap();
    assert_eq!(folder, rig.model().join("snapshots").join(COMMIT));
    assert_eq!(
        std::fs::read(folder.join("tokenizer.json")).unwrap(),
        TOKENIZER
    );
    let link = std::fs::read_link(folder.join("tokenizer.json")).unwrap();
    assert_eq!(link, Path::new("../../blobs").join(digest(TOKENIZER)));
    assert_eq!(
        std::fs::read(folder.join("config.json")).unwrap(),
        b"{\"a\": 1}"
    );
    assert!(!folder.join("chat_template.jinja").exists());
    assert_eq!(
        std::fs::read_to_string(rig.model().join("refs/main")).unwrap(),
        COMMIT
    );
    let size = TOKENIZER.len() as u64;
    assert_eq!(
        seen.lock().unwrap().last(),
        Some(&("tokenizer.json".to_owned(), size, Some(size)))
    );
    // All files are of the same commit as the first one.
    let asked = rig.site.asked();
    assert_eq!(asked[0], "HEAD /own/tiny/resolve/main/config.json");
    assert!(
        asked[2..]
            .iter()
            .all(|it| it.contains(COMMIT) || it.contains("/bytes/")),
        "{asked:?}"
    );
    assert!(!asked.iter().any(|it| it.contains("tiktoken")));
    // The token is only for the hub, not for the server that it redirects to.
    for head in rig.site.seen.lock().unwrap().iter() {
        let has_token = head.contains("Bearer hf_secret");
        assert_eq!(has_token, !head.contains("/bytes/"), "{head}");
    }
    // Existing files are not requested again.
    let n_asked = asked.len();
    assert_eq!(rig.fetch("own/tiny").await.unwrap(), folder);
    assert_eq!(rig.site.asked().len(), n_asked);
}

#[tokio::test]
async fn a_file_that_broke_off_goes_on_where_it_ended() {
    let rig = rig(Site::usual(), None);
    // An earlier process has left bytes on the disk.
    let partial = rig
        .model()
        .join("blobs")
        .join(format!("{}.incomplete", digest(TOKENIZER)));
    std::fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::fs::write(&partial, &TOKENIZER[..5]).unwrap();
    // Then a connection is cut after 4 more bytes.
    let cut = |progress: Progress<'_>| {
        if progress.file == "tokenizer_config.json" {
            *rig.site.cut.lock().unwrap() = Some(4);
        }
    };
    let folder = rig
        .hub
        .fetch(&"own/tiny".parse().unwrap(), &cut)
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(folder.join("tokenizer.json")).unwrap(),
        TOKENIZER
    );
    assert!(!partial.exists());
    let seen = rig.site.seen.lock().unwrap();
    let from = |n: usize| format!("range: bytes={n}-");
    let ranges: Vec<bool> = [from(5), from(9)]
        .iter()
        .map(|range| {
            seen.iter()
                .any(|head| head.contains("/bytes/") && head.to_ascii_lowercase().contains(range))
        })
        .collect();
    assert_eq!(ranges, [true, true], "{seen:?}");
}

#[tokio::test]
async fn kimis_tokenizer_is_fetched_where_there_is_no_other() {
    let mut site = Site::usual();
    site.large = [("tiktoken.model", &b"IQ== 0\n"[..])].into();
    let rig = rig(site, None);
    let folder = rig.fetch("own/tiny").await.unwrap();
    assert!(folder.join("tiktoken.model").is_file());
}

#[tokio::test]
async fn a_model_that_was_renamed_is_found() {
    let rig = rig(Site::usual(), None);
    let folder = rig.fetch("old/tiny").await.unwrap();
    assert_eq!(
        std::fs::read(folder.join("tokenizer.json")).unwrap(),
        TOKENIZER
    );
}

/// The cache may have weights of an older commit, which must stay the meaning of `main`.
#[tokio::test]
async fn a_commit_that_is_in_the_cache_is_not_changed_for_another() {
    let rig = rig(Site::usual(), None);
    let older = "fedcba";
    std::fs::create_dir_all(rig.model().join("refs")).unwrap();
    std::fs::write(rig.model().join("refs/main"), older).unwrap();
    rig.fetch("own/tiny").await.unwrap();
    assert!(
        rig.site.asked()[0].contains("/resolve/fedcba/"),
        "{:?}",
        rig.site.asked()
    );
    assert_eq!(
        std::fs::read_to_string(rig.model().join("refs/main")).unwrap(),
        older
    );
}

#[tokio::test]
async fn a_refusal_says_what_is_to_be_done() {
    const GATED: &str = "HTTP/1.1 403 Forbidden\r\nx-error-code: GatedRepo\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const PRIVATE: &str = "HTTP/1.1 401 Unauthorized\r\nx-error-code: RepoNotFound\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const NO_REVISION: &str = "HTTP/1.1 404 Not Found\r\nx-error-code: RevisionNotFound\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const BROKEN: &str = "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const OTHER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n";
    let mut told = String::new();
    for (refusal, token) in [
        (GATED, None),
        (GATED, Some("hf_secret")),
        (PRIVATE, None),
        (PRIVATE, Some("hf_secret")),
        (NO_REVISION, None),
        (BROKEN, None),
        (OTHER, None),
    ] {
        let site = Site {
            refuses: Some(refusal),
            ..Site::default()
        };
        told += &rig(site, token).error().await;
        told += "\n";
    }
    let nothing = rig(
        Site {
            small: Site::usual().small,
            ..Site::default()
        },
        None,
    );
    told += &nothing.error().await;
    assert!(!told.contains("hf_secret"));
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn what_is_not_what_was_announced_is_not_kept() {
    let mut site = Site::usual();
    site.small.clear();
    site.lies = true;
    let rig = rig(site, None);
    let error = rig.error().await;
    assert!(error.contains("its SHA-256 is"), "{error}");
    let blobs = std::fs::read_dir(rig.model().join("blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_told_in_words() {
    // Nothing listens on this port any more.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().display().to_string();
    let hub = |offline: &'static str| {
        let env = |name: &str| match name {
            "HF_ENDPOINT" => Some(format!("http://{gone}")),
            "HF_HUB_CACHE" => Some(cache.clone()),
            "HF_HUB_OFFLINE" => Some(offline.to_owned()),
            _ => None,
        };
        let mut hub = Hub::from_env(client(), &env).unwrap();
        hub.pause = Duration::ZERO;
        hub
    };
    let name: HubName = "own/tiny".parse().unwrap();
    let error = hub("0")
        .fetch(&name, &|_| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot be reached") && error.contains("refused"),
        "{error}"
    );
    let error = hub("1")
        .fetch(&name, &|_| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("HF_HUB_OFFLINE is set"), "{error}");
}

#[test]
fn the_token_is_that_of_huggingface_hub() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "hf_kept\n").unwrap();
    let home = folder.path().display().to_string();
    let hub = |token: Option<&'static str>| {
        let env = |name: &str| match name {
            "HF_HOME" => Some(home.clone()),
            "HF_TOKEN" => token.map(str::to_owned),
            _ => None,
        };
        Hub::from_env(client(), &env).unwrap()
    };
    assert_eq!(hub(None).server.token.as_deref(), Some("hf_kept"));
    assert_eq!(hub(Some("hf_own")).server.token.as_deref(), Some("hf_own"));
    assert_eq!(hub(None).server.endpoint, ENDPOINT);
    assert!(!format!("{:?}", hub(None)).contains("hf_kept"));
}
