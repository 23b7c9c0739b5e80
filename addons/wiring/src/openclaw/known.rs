//! Providers that OpenClaw supports without an entry in its file: address, API, and the variable with the key. The data
//! is from its provider pages.

use crate::found::Api;

/// A provider of OpenClaw's own catalog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    name: &'static str,
    pub(crate) base_url: &'static str,
    pub(crate) api: Api,
    /// The environment variable with its key.
    pub(crate) variable: &'static str,
    /// Whether all of its models accept images.
    pub(crate) sees: bool,
}

const fn known(
    name: &'static str,
    base_url: &'static str,
    api: Api,
    variable: &'static str,
    sees: bool,
) -> Known {
    Known {
        name,
        base_url,
        api,
        variable,
        sees,
    }
}

use Api::{AnthropicMessages as Messages, OpenaiCompletions as Chat, OpenaiResponses as Responses};

const KNOWN: &[Known] = &[
    known(
        "anthropic",
        "https://api.anthropic.com",
        Messages,
        "ANTHROPIC_API_KEY",
        true,
    ),
    known(
        "openai",
        "https://api.openai.com/v1",
        Responses,
        "OPENAI_API_KEY",
        true,
    ),
    known(
        "openrouter",
        "https://openrouter.ai/api/v1",
        Chat,
        "OPENROUTER_API_KEY",
        false,
    ),
    known(
        "deepseek",
        "https://api.deepseek.com",
        Chat,
        "DEEPSEEK_API_KEY",
        false,
    ),
    known(
        "groq",
        "https://api.groq.com/openai/v1",
        Chat,
        "GROQ_API_KEY",
        false,
    ),
    known(
        "mistral",
        "https://api.mistral.ai/v1",
        Chat,
        "MISTRAL_API_KEY",
        false,
    ),
    known(
        "moonshot",
        "https://api.moonshot.ai/v1",
        Chat,
        "MOONSHOT_API_KEY",
        false,
    ),
    known(
        "xai",
        "https://api.x.ai/v1",
        Responses,
        "XAI_API_KEY",
        false,
    ),
];

/// Finds the provider with this name.
pub(crate) fn provider(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|it| it.name.eq_ignore_ascii_case(name))
}
