//! Shared skills in a bucket of S3, or of a service with its API.
//!
//! Anybody who may write into the bucket may have written what is read: folders must have a home's name, keys are made
//! of parsed names, and each answer has a limit.

use std::{
    io,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow};
use http::StatusCode;
use metaclaw_aws::{CredentialSource, RequestToSign, S3Location, S3Refusal, sign_s3};
use metaclaw_llm::{bounded_body, http_client, loopback_client};
use metaclaw_settings::address::is_here;
use metaclaw_skills::{ShareConfig, ShareFile, ShareStore, WriterId};
use reqwest::{Method, Url};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::super::upstreams;
use crate::{environment::Environment, site::Site};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest list that is read, in bytes. A page of 1,000 folders has about 100 KiB.
const MAX_LIST: u64 = 4 << 20;
const MAX_PAGES: usize = 10;
const MAX_ERROR: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct BucketStore {
    location: S3Location,
    credentials: CredentialSource,
    http: reqwest::Client,
    runtime: Handle,
    ending: CancellationToken,
}

// === impl BucketStore ===

impl BucketStore {
    /// Uses `place`, `s3://bucket/prefix`. It sends nothing yet.
    ///
    /// # Errors
    /// Returns an error if a setting is wrong.
    pub(super) fn new(
        config: &ShareConfig,
        site: &Site,
        place: &str,
        ending: CancellationToken,
    ) -> anyhow::Result<Self> {
        let location = location(config, place, &site.environment)?;
        // Services on this machine are reached without a proxy.
        let url = location.folders_url(None);
        let http = if url.starts_with("http://") && is_here(&url) {
            loopback_client()?
        } else {
            http_client(&site.roots)?
        };
        Ok(Self {
            location,
            credentials: upstreams::credentials(&site.environment),
            http,
            runtime: Handle::current(),
            ending,
        })
    }

    /// Sends a request about `name` and waits for the answer, on a thread where waiting is allowed. Returns `None` if
    /// there is no such object.
    fn ask(
        &self,
        method: &Method,
        url: &str,
        name: &str,
        body: &str,
        max: u64,
    ) -> io::Result<Option<String>> {
        let answer = self.answer(method, url, body, max);
        let answer = self.ending.run_until_cancelled(answer);
        let answer = self.runtime.block_on(answer);
        let answer = answer.unwrap_or_else(|| Err(anyhow!("not asked: the proxy ends")));
        answer.map_err(|error| io::Error::other(format!("{method} {name}: {error:#}")))
    }

    async fn answer(
        &self,
        method: &Method,
        url: &str,
        body: &str,
        max: u64,
    ) -> anyhow::Result<Option<String>> {
        // The path is signed as it is sent.
        let url = Url::parse(url)?;
        let to_sign = RequestToSign {
            method: method.as_str(),
            uri: url.as_str(),
            body: body.as_bytes(),
        };
        let ours = self.location.region();
        let headers = sign_s3(to_sign, ours, &self.credentials.load()?, SystemTime::now())?;
        let mut call = self
            .http
            .request(method.clone(), url)
            .timeout(TIMEOUT)
            .headers(headers.into_iter().collect());
        if *method == Method::PUT {
            call = call.body(body.to_owned());
        }
        let response = call.send().await.map_err(no_answer)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let max = if status.is_success() { max } else { MAX_ERROR };
        let most = usize::try_from(max).unwrap_or(usize::MAX);
        let body = bounded_body(response, most).await.map_err(no_answer)?;
        let body =
            body.with_context(|| format!("it has more than {max} bytes, which is the limit"))?;
        if status.is_success() {
            let text = String::from_utf8(body);
            return Ok(Some(text.map_err(|error| error.utf8_error())?));
        }
        let S3Refusal { code, message } = S3Refusal::read(&String::from_utf8_lossy(&body));
        if status == StatusCode::NOT_FOUND && code == "NoSuchKey" && *method != Method::PUT {
            return Ok(None);
        }
        let mut why = format!("answered {}", status.as_u16());
        for part in [code, message].iter().filter(|part| !part.is_empty()) {
            why = format!("{why} {part}");
        }
        let region = headers.get("x-amz-bucket-region");
        let region = region.and_then(|region| region.to_str().ok());
        let is_word = |text: &&str| text.len() <= 40 && !text.contains(|c: char| !is_of_region(c));
        if let Some(region) = region.filter(is_word).filter(|region| *region != ours) {
            why = format!("{why} (set skills.share.region to {region}; it is {ours})");
        }
        Err(anyhow!(why))
    }

    fn ask_for(
        &self,
        writer: &WriterId,
        file: &ShareFile,
        method: &Method,
        body: &str,
        max: u64,
    ) -> io::Result<Option<String>> {
        let mut parts = vec![writer.as_str()];
        parts.extend(file.parts());
        let (url, name) = (
            self.location.object_url(&parts),
            self.location.object_name(&parts),
        );
        self.ask(method, &url, &name, body, max)
    }
}

impl ShareStore for BucketStore {
    fn writers(&self) -> io::Result<Vec<WriterId>> {
        let name = self.location.to_string();
        let mut writers = Vec::new();
        let mut continuation = None;
        for _ in 0..MAX_PAGES {
            let url = self.location.folders_url(continuation.as_deref());
            let text = self.ask(&Method::GET, &url, &name, "", MAX_LIST)?;
            let page = self.location.folders(&text.unwrap_or_default());
            let page = page.map_err(|why| io::Error::other(format!("GET {name}: {why}")))?;
            writers.extend(page.folders.iter().filter_map(|name| name.parse().ok()));
            continuation = page.continuation;
            if continuation.is_none() {
                writers.sort();
                return Ok(writers);
            }
        }
        Err(io::Error::other(format!(
            "{name} has more than {MAX_PAGES},000 folders: use a prefix that only shared skills have"
        )))
    }

    fn read(&self, writer: &WriterId, file: &ShareFile, max: u64) -> io::Result<Option<String>> {
        self.ask_for(writer, file, &Method::GET, "", max)
    }

    /// S3 shows an object as it was before or as it is after, never a part of it.
    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()> {
        self.ask_for(writer, file, &Method::PUT, text, MAX_ERROR)?;
        Ok(())
    }

    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()> {
        self.ask_for(writer, file, &Method::DELETE, "", MAX_ERROR)?;
        Ok(())
    }
}

fn location(
    config: &ShareConfig,
    place: &str,
    environment: &Environment,
) -> anyhow::Result<S3Location> {
    let endpoint = config.endpoint.as_deref();
    let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter();
    let mut variables = variables.filter_map(|name| environment.get(name));
    let region = config.region.as_deref().or_else(|| variables.next());
    // Services of one's own have this region unless they were told another one.
    let region = region.or_else(|| endpoint.map(|_| "us-east-1")).ok_or_else(|| {
        anyhow!(
            "skills.share.bucket is {place}, and its region is not known: set skills.share.region, as in eu-west-1"
        )
    })?;
    S3Location::parse(place, endpoint, region)
        .context("skills.share.bucket, skills.share.endpoint or skills.share.region is wrong")
}

fn is_of_region(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn no_answer(error: reqwest::Error) -> anyhow::Error {
    anyhow::Error::from(error.without_url()).context("no answer")
}

#[cfg(test)]
mod tests;
