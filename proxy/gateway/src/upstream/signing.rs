//! Signatures of requests to Amazon Bedrock.

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use metaclaw_aws::{BedrockEndpoint, CredentialSource, RequestToSign, sign};
use tokio::task::spawn_blocking;

use crate::address::UpstreamAddress;

#[derive(Debug)]
pub(super) struct RequestSigner {
    endpoint: BedrockEndpoint,
    credentials: CredentialSource,
}

// === impl RequestSigner ===

impl RequestSigner {
    /// Returns the signer for an address, or `None` if requests there are not signed.
    pub(super) fn for_upstream(
        address: &UpstreamAddress,
        credentials: &CredentialSource,
    ) -> Option<Self> {
        Some(Self {
            endpoint: BedrockEndpoint::of_host(address.name())?,
            credentials: credentials.clone(),
        })
    }

    /// Adds the signature of a request. It reads the credentials, which may be in a file.
    ///
    /// # Errors
    /// Returns why there is none, in words.
    pub(super) async fn add(
        &self,
        headers: &mut HeaderMap,
        method: &Method,
        uri: &Uri,
        body: &[Bytes],
    ) -> Result<(), String> {
        let source = self.credentials.clone();
        let found = spawn_blocking(move || source.load()).await;
        let found = found.map_err(|error| error.to_string())?;
        let credentials = found.map_err(|error| error.to_string())?;
        let request = RequestToSign {
            method: method.as_str(),
            uri: &uri.to_string(),
            body: &body.concat(),
        };
        let signed = sign(request, &self.endpoint, &credentials, SystemTime::now());
        headers.extend(signed.map_err(|error| error.to_string())?);
        Ok(())
    }
}
