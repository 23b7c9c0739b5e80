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
use metaclaw_llm::{http_client, loopback_client};
use metaclaw_settings::address::is_here;
use metaclaw_skills::{ShareConfig, ShareFile, ShareStore, WriterId};
use reqwest::{Method, Url};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::super::{plan::StartPlan, upstreams};
use crate::environment::Environment;

/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest list that is read, in bytes. A page of 1,000 folders has about 100 KiB.
const MAX_LIST: u64 = 4 << 20;
/// The most pages of a list.
const MAX_PAGES: usize = 10;
/// The most bytes of an error that are read.
const MAX_ERROR: u64 = 64 * 1024;

/// A folder in a bucket.
#[derive(Debug)]
pub(super) struct BucketStore {
    location: S3Location,
    credentials: CredentialSource,
    http: reqwest::Client,
    /// Where requests run, while the thread of the look waits.
    runtime: Handle,
    /// Ends a request.
    ending: CancellationToken,
}

/// One request to the bucket.
struct BucketRequest<'a> {
    method: Method,
    url: String,
    body: &'a str,
    /// The largest answer in bytes.
    max: u64,
}

/// What the service answered.
struct BucketAnswer {
    status: StatusCode,
    /// The bucket's region, if the service names it.
    region: Option<String>,
    body: Vec<u8>,
}

// === impl BucketStore ===

impl BucketStore {
    /// Uses `place`, `s3://bucket/prefix`. It sends nothing yet.
    ///
    /// # Errors
    /// Returns an error if a setting is wrong.
    pub(super) fn new(
        plan: &StartPlan,
        place: &str,
        ending: CancellationToken,
    ) -> anyhow::Result<Self> {
        let location = location(&plan.loaded.config.skills.share, place, &plan.environment)?;
        // Services on this machine are reached without a proxy.
        let url = location.folders_url(None);
        let http = if url.starts_with("http://") && is_here(&url) {
            loopback_client()?
        } else {
            http_client(&plan.roots)?
        };
        Ok(Self {
            location,
            credentials: upstreams::credentials(&plan.environment),
            http,
            runtime: Handle::current(),
            ending,
        })
    }

    /// Sends a request and waits for the answer, on a thread where waiting is allowed.
    fn send(&self, request: &BucketRequest<'_>) -> io::Result<BucketAnswer> {
        let sent = self.ending.run_until_cancelled(self.answer(request));
        let sent = self.runtime.block_on(sent);
        sent.unwrap_or_else(|| Err(io::Error::other("not asked: the proxy ends")))
    }

    async fn answer(&self, request: &BucketRequest<'_>) -> io::Result<BucketAnswer> {
        // The path is signed as it is sent.
        let url = Url::parse(&request.url).map_err(io::Error::other)?;
        let credentials = self.credentials.load().map_err(io::Error::other)?;
        let to_sign = RequestToSign {
            method: request.method.as_str(),
            uri: url.as_str(),
            body: request.body.as_bytes(),
        };
        let region = self.location.region();
        let headers = sign_s3(to_sign, region, &credentials, SystemTime::now());
        let mut call = self
            .http
            .request(request.method.clone(), url)
            .timeout(TIMEOUT)
            .headers(headers.map_err(io::Error::other)?.into_iter().collect());
        if request.method == Method::PUT {
            call = call.body(request.body.to_owned());
        }
        let mut response = call.send().await.map_err(failed)?;
        let status = response.status();
        let region = response.headers().get("x-amz-bucket-region");
        let region = region.and_then(|it| it.to_str().ok());
        let is_word = |it: &&str| it.len() <= 40 && !it.contains(|c: char| !is_of_region(c));
        let region = region.filter(is_word).map(str::to_owned);
        let max = if status.is_success() {
            request.max
        } else {
            MAX_ERROR
        };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > max {
                return Err(io::Error::other(format!(
                    "it has more than {max} bytes, which is the limit"
                )));
            }
        }
        Ok(BucketAnswer {
            status,
            region,
            body,
        })
    }

    /// Sends a request about one file.
    fn send_for(
        &self,
        parts: &[&str],
        method: Method,
        body: &str,
        max: u64,
    ) -> io::Result<BucketAnswer> {
        let request = BucketRequest {
            method,
            url: self.location.object_url(parts),
            body,
            max,
        };
        let name = self.location.object_name(parts);
        let named = |error| in_words(&request.method, &name, &error);
        self.send(&request).map_err(named)
    }

    /// Returns the error of an answer with another status than those of success.
    fn refused(&self, method: &Method, name: &str, answer: &BucketAnswer) -> io::Error {
        let S3Refusal { code, message } = S3Refusal::read(&String::from_utf8_lossy(&answer.body));
        let mut why = format!("answered {}", answer.status.as_u16());
        for part in [code, message] {
            if !part.is_empty() {
                why = format!("{why} {part}");
            }
        }
        let ours = self.location.region();
        match &answer.region {
            Some(region) if region != ours => {
                why = format!("{why} (set skills.share.region to {region}; it is {ours})");
            }
            Some(_) | None => {}
        }
        in_words(method, name, &io::Error::other(why))
    }
}

impl ShareStore for BucketStore {
    fn writers(&self) -> io::Result<Vec<WriterId>> {
        let name = self.location.to_string();
        let mut writers = Vec::new();
        let mut continuation = None;
        for _ in 0..MAX_PAGES {
            let request = BucketRequest {
                method: Method::GET,
                url: self.location.folders_url(continuation.as_deref()),
                body: "",
                max: MAX_LIST,
            };
            let told = |error: &io::Error| in_words(&Method::GET, &name, error);
            let answer = self.send(&request).map_err(|error| told(&error))?;
            if answer.status != StatusCode::OK {
                return Err(self.refused(&Method::GET, &name, &answer));
            }
            let text = String::from_utf8(answer.body)
                .map_err(|error| told(&io::Error::other(error.utf8_error())))?;
            let page = self.location.folders(&text);
            let page = page.map_err(|why| told(&io::Error::other(why)))?;
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
        let parts = parts(writer, file);
        let answer = self.send_for(&parts, Method::GET, "", max)?;
        let name = self.location.object_name(&parts);
        if answer.status == StatusCode::OK {
            let text = String::from_utf8(answer.body);
            let text = text.map_err(|error| {
                in_words(&Method::GET, &name, &io::Error::other(error.utf8_error()))
            });
            return text.map(Some);
        }
        let refusal = S3Refusal::read(&String::from_utf8_lossy(&answer.body));
        if answer.status == StatusCode::NOT_FOUND && refusal.code == "NoSuchKey" {
            return Ok(None);
        }
        Err(self.refused(&Method::GET, &name, &answer))
    }

    /// S3 shows an object as it was before or as it is after, never a part of it.
    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()> {
        let parts = parts(writer, file);
        let answer = self.send_for(&parts, Method::PUT, text, MAX_ERROR)?;
        if answer.status.is_success() {
            return Ok(());
        }
        let name = self.location.object_name(&parts);
        Err(self.refused(&Method::PUT, &name, &answer))
    }

    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()> {
        let parts = parts(writer, file);
        let answer = self.send_for(&parts, Method::DELETE, "", MAX_ERROR)?;
        let refusal = S3Refusal::read(&String::from_utf8_lossy(&answer.body));
        let is_gone = answer.status == StatusCode::NOT_FOUND && refusal.code == "NoSuchKey";
        if answer.status.is_success() || is_gone {
            return Ok(());
        }
        let name = self.location.object_name(&parts);
        Err(self.refused(&Method::DELETE, &name, &answer))
    }
}

/// Reads the settings of a bucket.
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

fn parts<'a>(writer: &'a WriterId, file: &'a ShareFile) -> Vec<&'a str> {
    let mut parts = vec![writer.as_str()];
    parts.extend(file.parts());
    parts
}

fn is_of_region(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// Describes an error of the network with its causes.
fn failed(error: reqwest::Error) -> io::Error {
    io::Error::other(anyhow::Error::from(error.without_url()).context("no answer"))
}

fn in_words(method: &Method, name: &str, error: &io::Error) -> io::Error {
    let why = error.get_ref().map(|inner| {
        let mut why = inner.to_string();
        let mut source = inner.source();
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        why
    });
    let why = why.unwrap_or_else(|| error.to_string());
    io::Error::other(format!("{method} {name}: {why}"))
}

#[cfg(test)]
mod tests;
