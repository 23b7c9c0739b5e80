//! AWS: who we are there, and signatures of requests to Amazon Bedrock (Signature Version 4).
//!
//! Bedrock has OpenAI's chat completions and Anthropic's messages under addresses of its own. It takes a Bedrock API key
//! as any provider does. Without one, each request is signed by credentials of AWS. This crate uses no network.

mod credentials;
mod endpoint;
mod signature;

pub use self::{
    credentials::{AwsCredentials, CredentialError, CredentialSource},
    endpoint::BedrockEndpoint,
    signature::{RequestToSign, SigningFailed, sign},
};
