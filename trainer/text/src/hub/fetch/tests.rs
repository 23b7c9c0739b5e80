//! Tests with a server that answers like the hub.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, Once},
};

use metaclaw_test_kit::{Reply, Request, Server, gone};
use reqwest::redirect;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;
use crate::hub::{server::ENDPOINT, store::digits};

mod weights;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const CONFIG: &[u8] = b"{\"a\": 1}";
const TOKENIZER: &[u8] = b"{\"model\": \"not small\"}";

/// The server's files and behaviour.
#[derive(Default)]
struct Site {
    small: BTreeMap<&'static str, &'static [u8]>,
    /// Files at another server. The hub redirects to it.
    large: BTreeMap<&'static str, &'static [u8]>,
    /// The status of every answer instead, and its error code.
    refuses: Option<(u16, &'static str)>,
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
}

impl Site {
    /// Makes a model with a small configuration and a tokenizer at another server.
    fn usual() -> Self {
        Self {
            small: [("config.json", CONFIG), ("tokenizer_config.json", b"{}")].into(),
            large: [("tokenizer.json", TOKENIZER)].into(),
            ..Self::default()
        }
    }

    fn answer(&self, request: &Request) -> Reply {
        let path = request.path();
        if let Some((status, code)) = self.refuses {
            return Reply::status(status, "").header("x-error-code", code);
        }
        if let Some(file) = path.strip_prefix("/bytes/") {
            let mut reply = self.body(self.large[file], request);
            if let Some(cut) = self.cuts.lock().unwrap().pop_front() {
                reply = reply.cut(cut);
            }
            *self.n_sent.lock().unwrap() += reply.n_bytes();
            return reply;
        }
        // The model was renamed: its old name redirects to the new one.
        if let Some(rest) = path.strip_prefix("/old/tiny/") {
            return Reply::status(307, "").header("location", format!("/own/tiny/{rest}"));
        }
        let file = path.rsplit('/').next().unwrap();
        if let Some(bytes) = self.large.get(file) {
            let (mut size, hash) = (bytes.len(), digest(bytes));
            if self.huge == Some(file) {
                size = 1_000_000_000_000_000;
            }
            let host = request.header("host").unwrap();
            let port = host.rsplit(':').next().unwrap();
            return Reply::status(302, "")
                .header("x-repo-commit", COMMIT)
                .header("x-linked-size", size)
                .header("x-linked-etag", format!("\"{hash}\""))
                .header("location", format!("http://localhost:{port}/bytes/{file}"));
        }
        let Some(bytes) = self.small.get(file) else {
            return Reply::status(404, "").header("x-error-code", "EntryNotFound");
        };
        let etag = format!("W/\"git-{}\"", bytes.len());
        let reply = self.body(bytes, request);
        reply.header("x-repo-commit", COMMIT).header("etag", etag)
    }

    fn body(&self, bytes: &[u8], request: &Request) -> Reply {
        let mut file = bytes.to_vec();
        if self.lies {
            file.reverse();
        }
        let reply = Reply::file(&file, request);
        let is_asked = request.method() == "GET";
        match self.cut.lock().unwrap().take_if(|_| is_asked) {
            Some(cut) => reply.cut(cut),
            None => reply,
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

/// A server, and a cache that is filled from it.
struct Rig {
    site: Arc<Site>,
    server: Server,
    hub: Hub,
    folder: TempDir,
}

fn rig(site: Site, token: Option<&str>) -> Rig {
    let site = Arc::new(site);
    let serving = Arc::clone(&site);
    let server = Server::new(move |request| serving.answer(request));
    let endpoint = format!("{}/", server.url());
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("hub").display().to_string();
    let env = [("HF_ENDPOINT", &endpoint[..]), ("HF_HUB_CACHE", &cache)];
    let hub = hub(env
        .into_iter()
        .chain(token.map(|token| ("HF_TOKEN", token))));
    Rig {
        site,
        server,
        hub,
        folder,
    }
}

fn hub<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>) -> Hub {
    let env: BTreeMap<&str, &str> = env.into_iter().collect();
    let read = |name: &str| env.get(name).map(|&value| value.to_owned());
    let mut hub = Hub::from_env(client(), &read).unwrap();
    hub.pause = Duration::ZERO;
    hub
}

fn tiny() -> HubName {
    "own/tiny".parse().unwrap()
}

#[track_caller]
fn holds(folder: &Path, file: &str, bytes: &[u8]) {
    assert_eq!(std::fs::read(folder.join(file)).unwrap(), bytes, "{file}");
}

fn client() -> Client {
    static ONCE: Once = Once::new();
    let provider = rustls::crypto::ring::default_provider;
    ONCE.call_once(|| provider().install_default().unwrap());
    let builder = Client::builder().redirect(redirect::Policy::none());
    builder.no_proxy().build().unwrap()
}

impl Rig {
    /// Returns the requests as `METHOD path`.
    fn asked(&self) -> Vec<String> {
        let asked = self.server.asked();
        let line = |request: &Request| format!("{} {}", request.method(), request.target());
        asked.iter().map(line).collect()
    }

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

    /// Returns the place of what is fetched of a file.
    fn partial(&self, bytes: &[u8]) -> PathBuf {
        self.model()
            .join(format!("blobs/{}.incomplete", digest(bytes)))
    }
}

#[tokio::test]
async fn text_files_are_fetched_into_the_layout_of_huggingface_hub() {
    let rig = rig(Site::usual(), Some("hf_secret"));
    let seen = Mutex::new(Vec::new());
    let told = |progress: Progress<'_>| {
        let file = progress.file.to_owned();
        let seen_now = (file, progress.done, progress.total);
        seen.lock().unwrap().push(seen_now);
    };
    let folder = rig.hub.fetch(&tiny(), &told).await.unwrap();
    assert_eq!(folder, rig.model().join("snapshots").join(COMMIT));
    holds(&folder, "tokenizer.json", TOKENIZER);
    let link = std::fs::read_link(folder.join("tokenizer.json")).unwrap();
    assert_eq!(link, Path::new("../../blobs").join(digest(TOKENIZER)));
    holds(&folder, "config.json", CONFIG);
    assert!(!folder.join("chat_template.jinja").exists());
    holds(&rig.model(), "refs/main", COMMIT.as_bytes());
    let size = TOKENIZER.len() as u64;
    let last = ("tokenizer.json".to_owned(), size, Some(size));
    assert_eq!(seen.lock().unwrap().last(), Some(&last));
    // All files are of the same commit as the first one.
    let asked = rig.asked();
    assert_eq!(asked[0], "HEAD /own/tiny/resolve/main/config.json");
    let is_of_commit = |line: &String| line.contains(COMMIT) || line.contains("/bytes/");
    assert!(asked[2..].iter().all(is_of_commit), "{asked:?}");
    assert!(!asked.iter().any(|line| line.contains("tiktoken")));
    // The token is only for the hub, not for the server that it redirects to.
    for Request { head, .. } in rig.server.asked() {
        let has_token = head.contains("Bearer hf_secret");
        assert_eq!(has_token, !head.contains("/bytes/"), "{head}");
    }
    // Existing files are not requested again.
    let n_asked = asked.len();
    assert_eq!(rig.fetch("own/tiny").await.unwrap(), folder);
    assert_eq!(rig.asked().len(), n_asked);
}

#[tokio::test]
async fn a_file_that_broke_off_goes_on_where_it_ended() {
    let rig = rig(Site::usual(), None);
    // An earlier process has left bytes on the disk.
    let partial = rig.partial(TOKENIZER);
    std::fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::fs::write(&partial, &TOKENIZER[..5]).unwrap();
    // Then a connection is cut after 4 more bytes.
    let cut = |progress: Progress<'_>| {
        if progress.file == "tokenizer_config.json" {
            *rig.site.cut.lock().unwrap() = Some(4);
        }
    };
    let folder = rig.hub.fetch(&tiny(), &cut).await.unwrap();
    holds(&folder, "tokenizer.json", TOKENIZER);
    assert!(!partial.exists());
    let mut seen = rig.server.asked();
    seen.retain(|request| request.path().starts_with("/bytes/"));
    for range in ["range: bytes=5-", "range: bytes=9-"] {
        let has_range = |request: &Request| request.text().to_lowercase().contains(range);
        assert!(seen.iter().any(has_range), "{range}: {seen:?}");
    }
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
    holds(&folder, "tokenizer.json", TOKENIZER);
}

/// The cache may have weights of an older commit, which must stay the meaning of `main`.
#[tokio::test]
async fn a_commit_that_is_in_the_cache_is_not_changed_for_another() {
    let rig = rig(Site::usual(), None);
    let older = "fedcba";
    std::fs::create_dir_all(rig.model().join("refs")).unwrap();
    std::fs::write(rig.model().join("refs/main"), older).unwrap();
    rig.fetch("own/tiny").await.unwrap();
    let asked = rig.asked();
    assert!(asked[0].contains("/resolve/fedcba/"), "{asked:?}");
    holds(&rig.model(), "refs/main", older.as_bytes());
}

#[tokio::test]
async fn a_refusal_says_what_is_to_be_done() {
    let (gated, private) = ((403, "GatedRepo"), (401, "RepoNotFound"));
    let mut told = String::new();
    for (refusal, token) in [
        (gated, None),
        (gated, Some("hf_secret")),
        (private, None),
        (private, Some("hf_secret")),
        ((404, "RevisionNotFound"), None),
        ((500, ""), None),
        ((200, ""), None),
    ] {
        let site = Site {
            refuses: Some(refusal),
            ..Site::default()
        };
        told += &rig(site, token).error().await;
        told += "\n";
    }
    let small = Site::usual().small;
    let nothing = rig(
        Site {
            small,
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
    let gone = gone();
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().display().to_string();
    for (offline, words) in [
        ("0", &["cannot be reached", "refused"][..]),
        ("1", &["HF_HUB_OFFLINE is set"]),
    ] {
        let env = [
            ("HF_ENDPOINT", &gone[..]),
            ("HF_HUB_CACHE", &cache),
            ("HF_HUB_OFFLINE", offline),
        ];
        let error = hub(env)
            .fetch(&tiny(), &|_| {})
            .await
            .unwrap_err()
            .to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn the_token_is_that_of_huggingface_hub() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "hf_kept\n").unwrap();
    let home = folder.path().display().to_string();
    let kept = hub([("HF_HOME", &home[..])]);
    assert_eq!(kept.server.token.as_deref(), Some("hf_kept"));
    assert_eq!(kept.server.endpoint, ENDPOINT);
    assert!(!format!("{kept:?}").contains("hf_kept"));
    let own = hub([("HF_HOME", &home[..]), ("HF_TOKEN", "hf_own")]);
    assert_eq!(own.server.token.as_deref(), Some("hf_own"));
}
