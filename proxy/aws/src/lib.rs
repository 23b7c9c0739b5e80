//! AWS: who we are there, and signatures of requests to Amazon Bedrock and S3 (Signature Version 4).
//!
//! Bedrock has OpenAI's chat completions and Anthropic's messages under addresses of its own. It takes a Bedrock API key
//! as any provider does. Without one, each request is signed by credentials of AWS. A bucket's requests always are. This crate uses no network.

mod credentials;
mod endpoint;
mod s3;
mod signature;

pub use self::{
    credentials::{AwsCredentials, CredentialError, CredentialSource},
    endpoint::BedrockEndpoint,
    s3::{S3Listing, S3Location, S3LocationError, S3Refusal},
    signature::{RequestToSign, SigningFailed, sign, sign_s3},
};
