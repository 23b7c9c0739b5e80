//! Tests with a server that answers as S3 does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use metaclaw_test_kit::{Reply, Request, Server};
use tokio::task::spawn_blocking;

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

#[derive(Debug, Clone, Default)]
struct Objects(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

struct TestBucket {
    objects: Objects,
    store: Arc<BucketStore>,
    server: Server,
}

impl Objects {
    fn insert(&self, path: &str, text: impl Into<Vec<u8>>) {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(path.to_owned(), text.into());
    }

    fn paths(&self) -> Vec<String> {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.keys().cloned().collect()
    }
}

impl TestBucket {
    fn new(place: &str) -> Self {
        let objects = Objects::default();
        let serving = objects.clone();
        let server = Server::new(move |request| answer(&serving, request));
        let endpoint = server.url();
        let keys = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIAIOSFODNN7EXAMPLE"),
            "AWS_SECRET_ACCESS_KEY" => Some(SECRET),
            _ => None,
        };
        let store = BucketStore {
            location: S3Location::parse(place, Some(&endpoint), "eu-west-1").unwrap(),
            credentials: CredentialSource::from_variables(keys, None),
            http: loopback_client().unwrap(),
            runtime: Handle::current(),
            ending: CancellationToken::new(),
        };
        Self {
            objects,
            store: Arc::new(store),
            server,
        }
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce(&BucketStore) -> T + Send + 'static,
    ) -> T {
        let store = Arc::clone(&self.store);
        spawn_blocking(move || act(&store)).await.unwrap()
    }
}

fn error(status: u16, code: &str) -> Reply {
    let body = format!("<Error><Code>{code}</Code><Message>In words.</Message></Error>");
    Reply::status(status, body).header("x-amz-bucket-region", "eu-north-1")
}

fn answer(objects: &Objects, request: &Request) -> Reply {
    let signature = request.header("authorization").unwrap_or_default();
    let path = request.path();
    if !signature.contains("AKIAIOSFODNN7EXAMPLE/") || path.starts_with("/denied/") {
        return error(403, "AccessDenied");
    }
    let mut all = objects.0.lock().unwrap_or_else(PoisonError::into_inner);
    match request.method() {
        "PUT" => drop(all.insert(path.to_owned(), request.body.clone())),
        "DELETE" => drop(all.remove(path)),
        _ if path.ends_with('/') => return page(request, all.keys()),
        _ => match all.get(path) {
            Some(text) => return Reply::bytes(text.clone()),
            None => return error(404, "NoSuchKey"),
        },
    }
    Reply::status(204, "")
}

/// Lists one folder on each page. A token is the number of the page.
fn page<'a>(request: &Request, paths: impl Iterator<Item = &'a String>) -> Reply {
    let query = request.query();
    let token = query.strip_prefix("continuation-token=");
    let token = token.and_then(|token| token.split('&').next());
    let at: usize = token.map_or(0, |one| one.parse().unwrap());
    let prefix = query.split("prefix=").nth(1).unwrap().replace("%2F", "/");
    let bucket = format!("{}{prefix}", request.path());
    let folder = |path: &String| {
        let rest = path.strip_prefix(&bucket)?;
        Some(rest.split_once('/')?.0.to_owned())
    };
    let mut folders: Vec<String> = paths.filter_map(folder).collect();
    folders.dedup();
    let mut told = String::new();
    if let Some(folder) = folders.get(at) {
        told = format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>");
    }
    let next = at + 1;
    if next < folders.len() {
        told += "<IsTruncated>true</IsTruncated>";
        told = format!("{told}<NextContinuationToken>{next}</NextContinuationToken>");
    }
    Reply::bytes(format!(
        "<ListBucketResult><Name>team</Name>{told}</ListBucketResult>"
    ))
}

fn writer(name: &str) -> WriterId {
    name.parse().unwrap()
}

fn skill() -> ShareFile {
    ShareFile::Skill {
        agent: "main".parse().unwrap(),
        name: "sql ü".parse().unwrap(),
    }
}

#[tokio::test]
async fn a_file_is_written_read_and_removed() {
    let bucket = TestBucket::new("s3://team/skills");
    let (mine, file) = (writer("laptop-1"), skill());
    let read = bucket.on_thread({
        let (mine, file) = (mine.clone(), file.clone());
        move |store| {
            assert_eq!(store.read(&mine, &file, 100).unwrap(), None);
            store.write(&mine, &file, "One.").unwrap();
            store.write(&mine, &file, "Other.").unwrap();
            store.read(&mine, &file, 100).unwrap()
        }
    });
    assert_eq!(read.await.as_deref(), Some("Other."));
    let path = "/team/skills/laptop-1/main/sql%20%C3%BC/SKILL.md";
    assert_eq!(bucket.objects.paths(), [path]);
    let removed = bucket.on_thread(move |store| {
        store.remove(&mine, &file).unwrap();
        store.remove(&mine, &file)
    });
    removed.await.unwrap();
    assert!(bucket.objects.paths().is_empty());
}

#[tokio::test]
async fn homes_are_listed_page_by_page_and_other_folders_are_not() {
    let bucket = TestBucket::new("s3://team/skills");
    for name in ["b-2", "a-1", "UPPER", "..", "-x", "c-3"] {
        bucket
            .objects
            .insert(&format!("/team/skills/{name}/index.json"), "{}");
    }
    bucket.objects.insert("/team/other-1/index.json", "{}");
    bucket.objects.insert("/team/skills/loose.md", "x");
    let writers = bucket.on_thread(|store| store.writers().unwrap()).await;
    assert_eq!(writers, ["a-1", "b-2", "c-3"].map(writer));
    for n in 0..12 {
        let path = format!("/team/skills/many-{n:02}/index.json");
        bucket.objects.insert(&path, "{}");
    }
    let error = bucket.on_thread(|store| store.writers().unwrap_err()).await;
    assert!(error.to_string().contains("more than 10,000"), "{error}");
}

#[tokio::test]
async fn a_long_answer_and_bytes_that_are_no_text_are_refused() {
    let bucket = TestBucket::new("s3://team");
    let path = "/team/laptop-1/index.json";
    let read = |max| {
        bucket.on_thread(move |store| {
            let read = store.read(&writer("laptop-1"), &ShareFile::Index, max);
            read.map_err(|error| error.to_string())
        })
    };
    bucket.objects.insert(path, "x".repeat(1_000));
    assert_eq!(read(1_000).await.unwrap().unwrap().len(), 1_000);
    assert_eq!(
        read(999).await.unwrap_err(),
        "GET s3://team/laptop-1/index.json: it has more than 999 bytes, which is the limit"
    );
    bucket.objects.insert(path, &b"\xff"[..]);
    assert!(read(999).await.unwrap_err().contains("utf-8"));
}

#[tokio::test]
async fn a_refusal_names_bucket_key_status_and_what_the_service_says_and_no_secret() {
    let bucket = TestBucket::new("s3://denied/x");
    let tried = bucket.on_thread(|store| {
        let index = ShareFile::Index;
        let mine = writer("laptop-1");
        [
            store.read(&mine, &index, 100).unwrap_err(),
            store.write(&mine, &index, "{}").unwrap_err(),
            store.remove(&mine, &index).unwrap_err(),
            store.writers().unwrap_err(),
        ]
        .map(|error| error.to_string())
    });
    let tried = tried.await;
    assert_eq!(
        tried[0],
        "GET s3://denied/x/laptop-1/index.json: answered 403 AccessDenied In words. (set skills.share.region to eu-north-1; it is eu-west-1)"
    );
    for told in tried {
        assert!(told.contains("403 AccessDenied"), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
    assert!(!format!("{:?}", bucket.store).contains(SECRET));
}

#[tokio::test]
async fn a_server_that_is_gone_and_an_end_are_errors() {
    let bucket = TestBucket::new("s3://team");
    bucket.server.set_away(true);
    let why = async |bucket: &TestBucket| {
        bucket
            .on_thread(|store| store.writers().unwrap_err().to_string())
            .await
    };
    let gone = why(&bucket).await;
    assert!(gone.contains("no answer"), "{gone}");
    bucket.store.ending.cancel();
    let ended = why(&bucket).await;
    assert!(ended.contains("the proxy ends"), "{ended}");
}

#[test]
fn a_region_is_of_the_settings_or_of_the_environment() {
    let region = |config: &ShareConfig, variable: &str| {
        let environment = Environment::from_pairs([("AWS_REGION", variable)]);
        let location = location(config, "s3://team", &environment);
        location.map(|location| location.region().to_owned())
    };
    let mut config = ShareConfig::default();
    let unknown = region(&config, "").unwrap_err().to_string();
    assert!(unknown.contains("set skills.share.region"), "{unknown}");
    assert_eq!(region(&config, "eu-west-3").unwrap(), "eu-west-3");
    config.endpoint = Some("http://127.0.0.1:9000".to_owned());
    assert_eq!(region(&config, "").unwrap(), "us-east-1");
    config.region = Some("auto".to_owned());
    assert_eq!(region(&config, "eu-west-3").unwrap(), "auto");
}
