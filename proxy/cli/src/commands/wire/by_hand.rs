//! The settings that a person makes by hand (`metaclaw wire --show`).

use metaclaw_wiring::{Api, Surroundings, Target, profile};

/// Returns the new content of each file for a known agent. For any other agent, returns the address, the key and the
/// header.
pub(super) fn text(name: &str, surroundings: &Surroundings, target: &Target) -> String {
    let settings = profile(name).and_then(|agent| agent.settings(surroundings, target).ok());
    match settings {
        Some(settings) => settings.by_hand(target),
        None => format!("{}{}", any_agent(name, target), commands_of(name, target)),
    }
}

fn any_agent(name: &str, target: &Target) -> String {
    let key = match (&target.key, target.has_provider_key) {
        (Some(_), _) => {
            "a key of MetaClaw's own: proxy.api_key, or one that `metaclaw keys add` made"
        }
        (None, true) => "any text: MetaClaw asks for none, and has the provider's",
        (None, false) => "the provider's: MetaClaw passes it on",
    };
    let model = target.model.as_deref().map_or_else(
        || "the provider's name of it".to_owned(),
        |model| format!("any name: MetaClaw asks for {model}"),
    );
    format!(
        "\
OpenAI's APIs    {chat}
                 as OPENAI_BASE_URL, OPENAI_API_BASE, or the \"base URL\" of an OpenAI-compatible provider
Anthropic's API  {messages}
                 as ANTHROPIC_BASE_URL, without /v1
key              {key}
model            {model}
header           X-Agent-Id: {name}
                 With it, the agent has lessons of its own. Without it, it shares those of all that send none
fallback         if it has a list of providers: the one that it uses today, as the next one",
        chat = target.base_url(Api::OpenaiCompletions),
        messages = target.base_url(Api::AnthropicMessages),
    )
}

/// Returns the commands for an agent that has no settings file for it.
fn commands_of(name: &str, target: &Target) -> String {
    if name != "nemoclaw" {
        return String::new();
    }
    let base_url = target.base_url(Api::OpenaiCompletions);
    let model = target.model.as_deref().unwrap_or("MODEL");
    format!(
        "\n\nNemoClaw, by its documentation; not tried:
  openshell provider create --name metaclaw --type openai --credential OPENAI_API_KEY=KEY --config OPENAI_BASE_URL={base_url}
  openshell inference set --provider metaclaw --model {model}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, key: Option<&str>) -> String {
        let target = Target {
            origin: "http://127.0.0.1:30000".to_owned(),
            key: key.map(Into::into),
            has_provider_key: true,
            model: Some("gpt-5.2".to_owned()),
            upstream: None,
            context_window: None,
        };
        let surroundings = Surroundings {
            variables: Vec::new(),
            home: "/nonexistent".into(),
        };
        text(name, &surroundings, &target)
    }

    #[test]
    fn an_agent_that_is_known_gets_its_file() {
        insta::assert_snapshot!(shown("codex", Some("sk-ours-123456")), @r#"
        /nonexistent/.codex/config.toml:
          model_provider = "metaclaw"

          [model_providers.metaclaw]
          name = "MetaClaw"
          base_url = "http://127.0.0.1:30000/v1"
          wire_api = "responses"
          http_headers = { X-Agent-Id = "codex" }
          experimental_bearer_token = "(the proxy's key)"
        "#);
    }

    #[test]
    fn any_other_gets_address_key_and_name() {
        let text = shown("mine", None);
        for part in [
            "http://127.0.0.1:30000/v1",
            "X-Agent-Id: mine",
            "asks for gpt-5.2",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(shown("nemoclaw", None).contains("openshell inference set"));
        assert!(!shown("mine", Some("sk-ours-123456")).contains("sk-ours"));
    }
}
