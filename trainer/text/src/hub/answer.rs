//! The hub's information about a file before it is downloaded.

use reqwest::{Response, StatusCode, header::HeaderMap};

use super::{
    error::HubError,
    place::{HubName, is_part},
};

/// Information about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileMeta {
    /// The commit that it belongs to.
    pub(super) commit: String,
    /// The hash of its content: SHA-256 of a large file, git's hash of a small one.
    pub(super) etag: String,
    /// Its size in bytes, if it is given.
    pub(super) size: Option<u64>,
}

/// Reads the headers of an answer, which is the file or a redirection to it.
///
/// # Errors
/// Returns [`HubError::Unreadable`] if a header is missing that a hub sends.
pub(super) fn meta(url: &str, response: &Response) -> Result<FileMeta, HubError> {
    let headers = response.headers();
    let unreadable = |why: &str| HubError::Unreadable {
        url: url.to_owned(),
        why: why.to_owned(),
    };
    let commit = text(headers, "x-repo-commit");
    let commit = commit.filter(|commit| is_part(commit));
    let etag = text(headers, "x-linked-etag").or_else(|| text(headers, "etag"));
    let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
    let size = text(headers, "x-linked-size").or_else(|| text(headers, "content-length"));
    Ok(FileMeta {
        commit: commit.ok_or_else(|| unreadable("no X-Repo-Commit"))?,
        etag: etag
            .filter(|etag| is_part(etag))
            .ok_or_else(|| unreadable("no ETag"))?,
        // The length of a redirection is not that of the file.
        size: size
            .filter(|_| {
                !response.status().is_redirection() || headers.contains_key("x-linked-size")
            })
            .and_then(|size| size.parse().ok()),
    })
}

/// Returns whether the model exists but not this file.
pub(super) fn is_absent(response: &Response) -> bool {
    let code = text(response.headers(), "x-error-code");
    response.status() == StatusCode::NOT_FOUND && code.is_none_or(|code| code == "EntryNotFound")
}

/// Makes the error of a failed request.
pub(super) async fn refusal(
    model: &HubName,
    url: &str,
    has_token: bool,
    response: Response,
) -> HubError {
    let code = text(response.headers(), "x-error-code");
    let (model, url) = (model.to_string(), url.to_owned());
    let status = response.status().as_u16();
    match (status, code.as_deref()) {
        (401 | 403, Some("GatedRepo")) => HubError::Gated {
            model,
            url,
            status,
            has_token,
        },
        (401 | 403, _) => HubError::Unauthorized {
            model,
            url,
            status,
            has_token,
        },
        (404, _) => HubError::NoModel { model, url },
        _ => {
            let text = response.text().await.unwrap_or_default();
            let line = text.lines().next().unwrap_or("nothing more is said");
            HubError::Status {
                url,
                status,
                message: line.chars().take(200).collect(),
            }
        }
    }
}

pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}
