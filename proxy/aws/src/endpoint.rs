//! Bedrock's addresses.

/// The region and the service that a signature names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BedrockEndpoint {
    pub region: String,
    /// The name of the service in signatures.
    pub service: &'static str,
}

/// The beginning and the end of a host's name, and the name of its service in signatures.
const HOSTS: [(&str, &str, &str); 2] = [
    ("bedrock-runtime.", ".amazonaws.com", "bedrock"),
    ("bedrock-mantle.", ".api.aws", "bedrock-mantle"),
];

// === impl BedrockEndpoint ===

impl BedrockEndpoint {
    /// Returns the endpoint of a host without a port, or `None` if Bedrock does not have this host.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_aws::BedrockEndpoint;
    ///
    /// let endpoint = BedrockEndpoint::of_host("bedrock-runtime.eu-west-1.amazonaws.com").unwrap();
    /// assert_eq!((endpoint.region.as_str(), endpoint.service), ("eu-west-1", "bedrock"));
    /// assert_eq!(BedrockEndpoint::of_host("api.openai.com"), None);
    /// ```
    pub fn of_host(host: &str) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let found = HOSTS.iter().find_map(|(start, end, service)| {
            let region = host.strip_prefix(start)?.strip_suffix(end)?;
            Some((region.to_owned(), *service))
        });
        let (region, service) = found?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_region = !region.is_empty() && region.chars().all(is_name);
        is_region.then_some(Self { region, service })
    }

    /// Returns the base address at which a region answers chats with `model`: Anthropic's messages for Claude, OpenAI's
    /// chat completions for any other.
    pub fn address(region: &str, model: &str) -> String {
        let path = if model.contains("anthropic.") {
            "anthropic/v1"
        } else {
            "openai/v1"
        };
        format!("https://bedrock-runtime.{region}.amazonaws.com/{path}")
    }

    /// Returns whether an address is that of Anthropic's messages at Bedrock.
    pub fn is_messages(url: &str) -> bool {
        url.trim_end_matches('/')
            .trim_end_matches("/v1")
            .ends_with("/anthropic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_and_a_service_are_read_from_bedrocks_hosts_alone() {
        let of = |host| BedrockEndpoint::of_host(host).map(|it| (it.region, it.service));
        let mantle = ("us-east-2".to_owned(), "bedrock-mantle");
        assert_eq!(of("Bedrock-Mantle.us-east-2.api.aws"), Some(mantle));
        for other in [
            "bedrock-runtime..amazonaws.com",
            "bedrock-runtime.a.b.amazonaws.com",
            "bedrock-runtime.us-east-1.amazonaws.com.example",
            "x.bedrock-runtime.us-east-1.amazonaws.com",
            "bedrock.us-east-1.amazonaws.com",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn claude_is_asked_in_its_own_api_and_others_in_openais() {
        let base = "https://bedrock-runtime.us-east-1.amazonaws.com";
        for (model, path) in [
            ("us.anthropic.claude-sonnet-4-6", "anthropic/v1"),
            ("anthropic.claude-opus-4-8", "anthropic/v1"),
            ("openai.gpt-oss-120b-1:0", "openai/v1"),
            ("qwen.qwen3-32b", "openai/v1"),
        ] {
            let address = BedrockEndpoint::address("us-east-1", model);
            assert_eq!(address, format!("{base}/{path}"));
            assert_eq!(BedrockEndpoint::is_messages(&address), path != "openai/v1");
        }
        assert!(BedrockEndpoint::is_messages("https://h/anthropic/v1/"));
    }
}
