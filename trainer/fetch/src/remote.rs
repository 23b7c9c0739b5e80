//! Reads one remote file by ranges. A server may also answer a range with the whole file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// If no byte arrives for this long, the connection counts as dead.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct RemoteFile {
    agent: Agent,
    url: String,
}

pub(crate) enum Answer {
    /// The range, of a file with `total` bytes.
    Part { body: Box<dyn Read>, total: u64 },
    /// The whole file from its first byte, because the server does not support ranges.
    Whole { body: Box<dyn Read>, total: u64 },
}

#[derive(Debug)]
pub(crate) struct RemoteError {
    pub(crate) error: anyhow::Error,
    pub(crate) may_pass: bool,
}

/// What the disk refuses, or a file that has changed, does not pass.
impl From<anyhow::Error> for RemoteError {
    fn from(error: anyhow::Error) -> Self {
        Self {
            error,
            may_pass: false,
        }
    }
}

impl RemoteFile {
    /// Prepares the client. No request is sent yet.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let tls = TlsConfig::builder()
            .root_certs(root_certificates()?)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // Without compression, offsets count bytes of the file itself.
            .accept_encoding("identity")
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        Ok(Self {
            agent: config.into(),
            url: url.to_owned(),
        })
    }

    /// Requests `range`, which must not be empty.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Answer, RemoteError> {
        if let Some(path) = self.url.strip_prefix("file://") {
            return Ok(local(Path::new(path), &range)?);
        }
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let response = self
            .agent
            .get(&self.url)
            .header("range", header)
            .call()
            .map_err(|error| {
                let error = anyhow::Error::new(error).context(format!("cannot fetch {}", self.url));
                RemoteError {
                    error,
                    may_pass: true,
                }
            })?;
        let status = response.status().as_u16();
        match read_answer(response, range.start) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(RemoteError {
                error: error.context(format!("cannot fetch {}", self.url)),
                may_pass: status == 408 || status == 429 || status >= 500,
            }),
        }
    }
}

fn read_answer(response: Response<ureq::Body>, start: u64) -> Result<Answer> {
    let status = response.status();
    match status.as_u16() {
        206 => {
            let range = response.headers().get("content-range");
            let range = range
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            let (first, total) = parse_content_range(&range).with_context(|| {
                format!("the server answers a range with `content-range: {range}`")
            })?;
            if first != start {
                bail!("the server was asked for bytes from {start} and sends them from {first}");
            }
            Ok(Answer::Part {
                body: unlimited(response),
                total,
            })
        }
        200 => {
            let total = response.body().content_length();
            let total = total
                .context("the server knows no ranges and does not say how long the file is")?;
            Ok(Answer::Whole {
                body: unlimited(response),
                total,
            })
        }
        401 | 403 => {
            bail!("the server says {status}; if a login is needed there, fetch the file by hand")
        }
        _ => bail!("the server says {status}"),
    }
}

fn unlimited(response: Response<ureq::Body>) -> Box<dyn Read> {
    Box::new(
        response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader(),
    )
}

/// Parses `bytes 0-99/1234` (RFC 9110, 14.4) into the first byte and the length of the whole file.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, total.parse().ok()?))
}

fn local(path: &Path, range: &Range<u64>) -> Result<Answer> {
    let open = || -> std::io::Result<(File, u64)> {
        let about = path.metadata()?;
        if !about.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let (mut file, total) = (File::open(path)?, about.len());
        file.seek(SeekFrom::Start(range.start))?;
        Ok((file, total))
    };
    let (file, total) = open().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Answer::Part {
        body: Box::new(file.take(range.end - range.start)),
        total,
    })
}

/// Returns the root certificates that pip would trust: those of a configured bundle, as behind a company's proxy, else
/// Mozilla's.
fn root_certificates() -> Result<RootCerts> {
    let named = ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]
        .into_iter()
        .find_map(|name| {
            Some((
                name,
                std::env::var_os(name).filter(|path| Path::new(path).is_file())?,
            ))
        });
    let Some((name, path)) = named else {
        return Ok(RootCerts::WebPki);
    };
    let pem = std::fs::read(&path).with_context(|| {
        format!(
            "cannot read {}, named by {name}",
            Path::new(&path).display()
        )
    })?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(RootCerts::from(certificates))
}

#[cfg(test)]
mod tests {
    use super::{Path, local, parse_content_range};

    #[test]
    fn only_a_regular_file_is_a_local_source() {
        for path in ["/dev/zero", "/"] {
            let error = local(Path::new(path), &(0..9)).err().unwrap();
            assert!(
                format!("{error:#}").ends_with("no regular file"),
                "{error:#}"
            );
        }
    }

    #[test]
    fn reads_content_range() {
        assert_eq!(parse_content_range("bytes 5-99/1234"), Some((5, 1234)));
        for bad in ["", "bytes */1234", "bytes 5-99/*", "items 5-99/1234"] {
            assert_eq!(parse_content_range(bad), None, "{bad}");
        }
    }
}
