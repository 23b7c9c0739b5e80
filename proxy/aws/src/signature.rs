//! Signature Version 4: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign as sign_request,
    },
    sign::v4,
};
use aws_smithy_runtime_api::client::identity::Identity;
use http::{HeaderName, HeaderValue};

use crate::{credentials::AwsCredentials, endpoint::BedrockEndpoint};

/// A request that is to be signed. Of its headers, only the host is signed, so that proxies on the way may change others.
#[derive(Debug, Clone, Copy)]
pub struct RequestToSign<'a> {
    pub method: &'a str,
    /// The whole address.
    pub uri: &'a str,
    pub body: &'a [u8],
}

/// Why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
#[error("a request to AWS cannot be signed: {why}")]
pub struct SigningFailed {
    why: String,
}

#[derive(Debug, Clone, Copy)]
struct SignatureScope<'a> {
    region: &'a str,
    service: &'a str,
    time: SystemTime,
}

/// Returns the headers that must be added to a request. They are valid for five minutes.
///
/// # Errors
/// Returns [`SigningFailed`] if the address is invalid, or a credential has a character that a header cannot have.
pub fn sign(
    request: RequestToSign<'_>,
    endpoint: &BedrockEndpoint,
    credentials: &AwsCredentials,
    time: SystemTime,
) -> Result<Vec<(HeaderName, HeaderValue)>, SigningFailed> {
    let scope = SignatureScope {
        region: &endpoint.region,
        service: endpoint.service,
        time,
    };
    sign_with(request, scope, credentials, SigningSettings::default())
}

/// Returns the headers that must be added to a request to S3. They are valid for 15 minutes.
///
/// S3 wants the hash of the body in a header, and takes the path as it is sent:
/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.
///
/// # Errors
/// Returns [`SigningFailed`] if the address is none, or a credential has characters that a header cannot have.
pub fn sign_s3(
    request: RequestToSign<'_>,
    region: &str,
    credentials: &AwsCredentials,
    time: SystemTime,
) -> Result<Vec<(HeaderName, HeaderValue)>, SigningFailed> {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    let scope = SignatureScope {
        region,
        service: "s3",
        time,
    };
    sign_with(request, scope, credentials, settings)
}

fn sign_with(
    request: RequestToSign<'_>,
    scope: SignatureScope<'_>,
    credentials: &AwsCredentials,
    settings: SigningSettings,
) -> Result<Vec<(HeaderName, HeaderValue)>, SigningFailed> {
    let failed = |why: String| SigningFailed { why };
    let token = credentials.session_token.as_ref();
    let identity: Identity = Credentials::new(
        credentials.access_key_id.clone(),
        credentials.secret_access_key.expose(),
        token.map(|token| token.expose().to_owned()),
        None,
        "metaclaw",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(scope.region)
        .name(scope.service)
        .time(scope.time)
        .settings(settings)
        .build()
        .map_err(|error| failed(error.to_string()))?
        .into();
    let body = SignableBody::Bytes(request.body);
    let signable = SignableRequest::new(request.method, request.uri, std::iter::empty(), body)
        .map_err(|error| failed(error.to_string()))?;
    let (instructions, _) = sign_request(signable, &params)
        .map_err(|error| failed(error.to_string()))?
        .into_parts();
    let header = |(name, value): (&str, &str)| {
        let name = HeaderName::try_from(name).map_err(|error| failed(error.to_string()))?;
        let mut value = HeaderValue::try_from(value).map_err(|error| failed(error.to_string()))?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    instructions.headers().map(header).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// AWS's published test vectors: these credentials sign at this time for this service.
    fn signed(method: &str, uri: &str, body: &str, token: Option<&str>) -> Vec<(String, String)> {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: token.map(Into::into),
        };
        let endpoint = BedrockEndpoint {
            region: "us-east-1".to_owned(),
            service: "service",
        };
        // 2015-08-30 12:36:00 UTC.
        let time = UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let request = RequestToSign {
            method,
            uri,
            body: body.as_bytes(),
        };
        let headers = sign(request, &endpoint, &credentials, time).unwrap();
        let text = |(name, value): (HeaderName, HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        headers.into_iter().map(text).collect()
    }

    fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
        let found = headers.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value)
    }

    /// `get-vanilla`, `post-vanilla` and `get-vanilla-query-order-key-case` of the Signature Version 4 test suite.
    #[test]
    fn awss_own_vectors_are_signed_as_published() {
        const SCOPE: &str = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature=";
        #[rustfmt::skip]
        let cases = [
            ("GET", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            ("GET", "?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ];
        for (method, query, signature) in cases {
            let uri = format!("https://example.amazonaws.com/{query}");
            let headers = signed(method, &uri, "", None);
            assert_eq!(header(&headers, "x-amz-date"), "20150830T123600Z");
            assert_eq!(
                header(&headers, "authorization"),
                format!("{SCOPE}{signature}"),
                "{method} {query}"
            );
        }
    }

    #[test]
    fn a_body_and_a_token_change_the_signature_and_the_token_is_sent() {
        let uri = "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1/chat/completions";
        let plain = signed("POST", uri, "{}", None);
        let other = signed("POST", uri, "{ }", None);
        assert_ne!(
            header(&plain, "authorization"),
            header(&other, "authorization")
        );
        let with_token = signed("POST", uri, "{}", Some("t"));
        assert_eq!(header(&with_token, "x-amz-security-token"), "t");
        let names = "SignedHeaders=host;x-amz-date;x-amz-security-token";
        assert!(header(&with_token, "authorization").contains(names));
    }

    /// Two examples of the S3 API reference, "Signature Calculations for the Authorization Header".
    #[test]
    fn the_examples_of_s3_are_signed_as_published() {
        const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        const SCOPE: &str = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=";
        let credentials = AwsCredentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        // 2013-05-24 00:00:00 UTC.
        let time = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        #[rustfmt::skip]
        let cases = [
            ("lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ];
        for (query, signature) in cases {
            let request = RequestToSign {
                method: "GET",
                uri: &format!("https://examplebucket.s3.amazonaws.com/?{query}"),
                body: b"",
            };
            let headers = sign_s3(request, "us-east-1", &credentials, time).unwrap();
            let get = |name: &str| {
                let found = headers.iter().find(|(it, _)| it == name);
                found.map_or("", |(_, value)| value.to_str().unwrap())
            };
            assert_eq!(get("x-amz-content-sha256"), EMPTY);
            assert_eq!(
                get("authorization"),
                format!("{SCOPE}{signature}"),
                "{query}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let credentials = AwsCredentials {
            access_key_id: "A".to_owned(),
            secret_access_key: "s".into(),
            session_token: None,
        };
        let endpoint = BedrockEndpoint {
            region: "r".to_owned(),
            service: "s",
        };
        let request = RequestToSign {
            method: "POST",
            uri: "no address",
            body: b"",
        };
        let error = sign(request, &endpoint, &credentials, UNIX_EPOCH).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("a request to AWS cannot be signed")
        );
    }
}
