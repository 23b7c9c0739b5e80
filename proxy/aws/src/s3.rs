//! A folder in a bucket of S3, or of a service with the same API: its addresses, and what such a service answers.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>

use std::fmt;

use metaclaw_chat::excerpt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

const MAX_DEPTH: usize = 8;
/// Every byte except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The most folders in one answer to a list request.
const PAGE: &str = "1000";

/// `s3://bucket/prefix`, and the server that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    bucket: String,
    /// Empty, or with a slash at its end.
    prefix: String,
    /// The address of a service other than AWS's, without a slash at its end.
    endpoint: Option<String>,
    region: String,
}

/// Why a place in a bucket cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum S3LocationError {
    #[error(
        "{value:?} is no place in a bucket: s3://BUCKET or s3://BUCKET/PREFIX, where a bucket has 3 to 63 of a-z 0-9 . -, and a prefix A-Z a-z 0-9 . _ - and single slashes"
    )]
    Place { value: String },
    #[error(
        "{value:?} is no endpoint: https://HOST or http://HOST, with a port if needed, and no path"
    )]
    Endpoint { value: String },
    #[error("{value:?} is no region: a name such as eu-west-1")]
    Region { value: String },
}

/// One page of the folders below a location.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Listing {
    /// Names as anybody may have written them.
    pub folders: Vec<String>,
    /// With which the next page is requested.
    pub continuation: Option<String>,
}

/// What a service answers to a request that it refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Refusal {
    /// `NoSuchKey`, `AccessDenied` or another word; empty if the answer is not S3's.
    pub code: String,
    pub message: String,
}

struct XmlLeaf {
    /// The names of the elements around it and its own, with slashes.
    path: String,
    text: String,
}

// === impl S3Location ===

impl S3Location {
    /// Reads `s3://bucket/prefix`. Without an endpoint, the bucket is at AWS.
    ///
    /// # Errors
    /// Returns [`S3LocationError`] if the place, the endpoint or the region has another form.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_aws::S3Location;
    ///
    /// let aws = S3Location::parse("s3://team/skills", None, "eu-west-1").unwrap();
    /// assert_eq!(
    ///     aws.object_url(&["laptop-1", "index.json"]),
    ///     "https://team.s3.eu-west-1.amazonaws.com/skills/laptop-1/index.json"
    /// );
    /// ```
    pub fn parse(
        place: &str,
        endpoint: Option<&str>,
        region: &str,
    ) -> Result<Self, S3LocationError> {
        let (bucket, prefix) = parts(place).ok_or_else(|| S3LocationError::Place {
            value: excerpt(place).into_owned(),
        })?;
        let checked = |endpoint: &str| {
            authority(endpoint).ok_or_else(|| S3LocationError::Endpoint {
                value: excerpt(endpoint).into_owned(),
            })
        };
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if region.is_empty() || region.len() > 40 || !region.chars().all(is_word) {
            let value = excerpt(region).into_owned();
            return Err(S3LocationError::Region { value });
        }
        Ok(Self {
            bucket,
            prefix,
            endpoint: endpoint.map(checked).transpose()?,
            region: region.to_owned(),
        })
    }

    pub fn region(&self) -> &str {
        &self.region
    }

    /// Returns the address of the object whose key has these parts below the prefix.
    pub fn object_url(&self, parts: &[&str]) -> String {
        let parts: Vec<String> = parts.iter().map(|part| encoded(part)).collect();
        format!("{}/{}{}", self.base(), self.prefix, parts.join("/"))
    }

    /// Returns the name of such an object for people: `s3://bucket/key`.
    pub fn object_name(&self, parts: &[&str]) -> String {
        format!("s3://{}/{}{}", self.bucket, self.prefix, parts.join("/"))
    }

    /// Returns the address of a page of the folders below the prefix.
    pub fn folders_url(&self, continuation: Option<&str>) -> String {
        let token = continuation.map(|token| format!("continuation-token={}&", encoded(token)));
        format!(
            "{}/?{}delimiter=%2F&encoding-type=url&list-type=2&max-keys={PAGE}&prefix={}",
            self.base(),
            token.unwrap_or_default(),
            encoded(&self.prefix)
        )
    }

    /// Reads the answer to a request for [`Self::folders_url`].
    ///
    /// # Errors
    /// Returns in words why it is none.
    pub fn folders(&self, answer: &str) -> Result<S3Listing, String> {
        let mut listing = S3Listing::default();
        let (mut is_listing, mut is_truncated) = (false, false);
        for XmlLeaf { path, text } in leaves(answer)? {
            is_listing |= path.starts_with("ListBucketResult/");
            match path.as_str() {
                "ListBucketResult/IsTruncated" => is_truncated = text == "true",
                "ListBucketResult/NextContinuationToken" => listing.continuation = Some(text),
                "ListBucketResult/CommonPrefixes/Prefix" => {
                    // Bytes that are not UTF-8 become U+FFFD, which no valid name contains.
                    let name = percent_decode_str(&text).decode_utf8_lossy();
                    let name = name.strip_prefix(&self.prefix);
                    let name = name.and_then(|name| name.strip_suffix('/'));
                    listing.folders.extend(name.map(str::to_owned));
                }
                _ => {}
            }
        }
        if !is_listing {
            return Err("it is no ListBucketResult of S3".to_owned());
        }
        if !is_truncated {
            listing.continuation = None;
        } else if listing.continuation.is_none() {
            return Err("it is truncated and has no NextContinuationToken".to_owned());
        }
        Ok(listing)
    }

    /// Returns the address of the bucket. A service of one's own has rarely a name for each bucket, and a certificate of
    /// AWS's is not valid for a name with a dot.
    fn base(&self) -> String {
        let Self { bucket, region, .. } = self;
        let domain = if region.starts_with("cn-") {
            "amazonaws.com.cn"
        } else {
            "amazonaws.com"
        };
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}"),
            None if bucket.contains('.') => format!("https://s3.{region}.{domain}/{bucket}"),
            None => format!("https://{bucket}.s3.{region}.{domain}"),
        }
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix.trim_end_matches('/');
        write!(f, "s3://{}/{prefix}", self.bucket)?;
        let endpoint = self.endpoint.as_ref();
        endpoint.map_or(Ok(()), |endpoint| write!(f, " at {endpoint}"))
    }
}

// === impl S3Refusal ===

impl S3Refusal {
    /// Reads the body of an answer with an error's status. What it quotes of it is short and of one line.
    pub fn read(body: &str) -> Self {
        let mut refusal = Self::default();
        for XmlLeaf { path, text } in leaves(body).unwrap_or_default() {
            let told = text.replace(|c: char| c.is_control(), " ");
            match path.as_str() {
                "Error/Code" => refusal.code = excerpt(&told).into_owned(),
                "Error/Message" => refusal.message = excerpt(&told).into_owned(),
                _ => {}
            }
        }
        refusal
    }
}

fn parts(place: &str) -> Option<(String, String)> {
    let place = place.strip_prefix("s3://")?;
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_bucket = (3..=63).contains(&bucket.len())
        && bucket.starts_with(is_end)
        && bucket.ends_with(is_end)
        && !bucket.contains("..")
        && bucket.chars().all(|c| is_end(c) || c == '.' || c == '-');
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(legal);
    let is_prefix = prefix.is_empty() || prefix.len() <= 500 && prefix.split('/').all(is_part);
    let prefix = if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    };
    (is_bucket && is_prefix).then(|| (bucket.to_owned(), prefix))
}

fn authority(endpoint: &str) -> Option<String> {
    let endpoint = endpoint.trim_end_matches('/');
    let uri: http::Uri = endpoint.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let scheme = uri.scheme_str()?;
    let is_bare = matches!(scheme, "http" | "https") && !authority.contains('@');
    (is_bare && endpoint == format!("{scheme}://{authority}")).then(|| endpoint.to_owned())
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Returns the texts of an XML document. Entities that it defines are not used.
fn leaves(xml: &str) -> Result<Vec<XmlLeaf>, String> {
    let mut reader = Reader::from_str(xml);
    let mut leaves = Vec::new();
    let mut around: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                around.push(name);
                if around.len() > MAX_DEPTH {
                    return Err(format!("more than {MAX_DEPTH} elements are in one another"));
                }
                text.clear();
            }
            Ok(Event::Text(part)) => {
                text += &part.decode().map_err(|error| error.to_string())?;
            }
            Ok(Event::GeneralRef(reference)) => {
                let name = reference.decode().map_err(|error| error.to_string())?;
                match reference.resolve_char_ref() {
                    Ok(Some(c)) => text.push(c),
                    Ok(None) => text += resolve_predefined_entity(&name).unwrap_or_default(),
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ok(Event::End(_)) => {
                leaves.push(XmlLeaf {
                    path: around.join("/"),
                    text: std::mem::take(&mut text).trim().to_owned(),
                });
                around.pop();
            }
            Ok(Event::Eof) if around.is_empty() => return Ok(leaves),
            Ok(Event::Eof) => return Err("it ends too early".to_owned()),
            Ok(
                Event::Empty(_)
                | Event::CData(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_),
            ) => {}
            Err(error) => return Err(format!("it is no XML: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
