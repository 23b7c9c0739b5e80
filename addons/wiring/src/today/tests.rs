use super::*;
use crate::{profile, tests::house::House};

/// An agent, a file of its owner, variables, and what it asks: address, model and key.
struct Case {
    agent: &'static str,
    file: &'static str,
    text: &'static str,
    variables: &'static [(&'static str, &'static str)],
    asks: Option<&'static str>,
}

const fn case(
    agent: &'static str,
    file: &'static str,
    text: &'static str,
    asks: &'static str,
) -> Case {
    Case {
        agent,
        file,
        text,
        variables: &[],
        asks: Some(asks),
    }
}

fn asked(house: &House, agent: &str) -> Option<String> {
    let asked = profile(agent)
        .unwrap()
        .asked_today(&house.surroundings)
        .unwrap()?;
    let key = asked.key.as_ref().map_or("-", Secret::expose);
    let model = asked.model.as_deref().unwrap_or("-");
    Some(format!(
        "{} {} {model} {key}",
        asked.url,
        asked.api.as_str()
    ))
}

const CLAUDE: &str = ".claude/settings.json";
const CODEX: &str = ".codex/config.toml";
const LOGIN: &str = ".codex/auth.json";

static CASES: &[Case] = &[
    case(
        "claude-code",
        CLAUDE,
        "{}",
        "https://api.anthropic.com anthropic-messages - -",
    ),
    case(
        "claude-code",
        CLAUDE,
        r#"{"model": "opus", "env": {"ANTHROPIC_BASE_URL": "http://a.example"}}"#,
        "http://a.example anthropic-messages opus -",
    ),
    Case {
        variables: &[
            ("ANTHROPIC_BASE_URL", "http://b.example"),
            ("ANTHROPIC_MODEL", "m"),
        ],
        ..case(
            "claude-code",
            CLAUDE,
            "{}",
            "http://b.example anthropic-messages m -",
        )
    },
    Case {
        asks: None,
        ..case(
            "claude-code",
            CLAUDE,
            r#"{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}"#,
            "",
        )
    },
    case(
        "codex",
        CODEX,
        "model = \"gpt-5.5\"",
        "https://api.openai.com/v1 openai-responses gpt-5.5 -",
    ),
    case(
        "codex",
        LOGIN,
        r#"{"auth_mode": "chatgpt", "tokens": {"access_token": "t"}}"#,
        "https://chatgpt.com/backend-api/codex openai-responses - -",
    ),
    case(
        "codex",
        CODEX,
        "model_provider = \"work\"\n[model_providers.work]\nbase_url = \"https://w.example/v1\"",
        "https://w.example/v1 openai-responses - -",
    ),
    case(
        "codex",
        CODEX,
        "model_provider = \"ollama\"",
        "http://127.0.0.1:11434/v1 openai-responses - -",
    ),
    Case {
        asks: None,
        ..case("codex", CODEX, "model_provider = \"amazon-bedrock\"", "")
    },
    Case {
        variables: &[("WORK", "sk-w")],
        ..case(
            "opencode",
            ".config/opencode/opencode.json",
            r#"{"model": "work/big", "provider": {"work": {"options": {"baseURL": "http://w/v1", "apiKey": "{env:WORK}"}}}}"#,
            "http://w/v1 openai-completions work/big sk-w",
        )
    },
    Case {
        variables: &[("ANTHROPIC_API_KEY", "sk-a")],
        ..case(
            "opencode",
            ".config/opencode/opencode.json",
            r#"{"model": "anthropic/claude-opus-5"}"#,
            "https://api.anthropic.com anthropic-messages anthropic/claude-opus-5 sk-a",
        )
    },
    case(
        "hermes",
        ".hermes/config.yaml",
        "model: {default: m, provider: custom, base_url: 'http://h/v1', api_key: sk-h}",
        "http://h/v1 openai-completions m sk-h",
    ),
    case(
        "nanobot",
        ".nanobot/config.json",
        r#"{"agents": {"defaults": {"provider": "p.q", "model": "m"}}, "providers": {"p.q": {"apiBase": "http://n/v1", "apiKey": "sk-n"}}}"#,
        "http://n/v1 openai-completions m sk-n",
    ),
    case(
        "aider",
        ".aider.conf.yml",
        "model: openai/m\nopenai-api-base: http://i/v1\nopenai-api-key: sk-i\n",
        "http://i/v1 openai-completions openai/m sk-i",
    ),
    Case {
        asks: None,
        ..case("aider", ".aider.conf.yml", "model: sonnet", "")
    },
    Case {
        asks: None,
        ..case("llm", ".config/io.datasette.llm/default_model.txt", "m", "")
    },
];

#[test]
fn what_an_agent_asks_is_read_from_its_own_settings() {
    for case in CASES {
        let mut house = House::with(case.file, case.text);
        let variables = case.variables.iter();
        house.surroundings.variables = variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let asks = asked(&house, case.agent);
        assert_eq!(asks.as_deref(), case.asks, "{} {}", case.agent, case.text);
    }
}

#[test]
fn a_key_beside_the_settings_is_found_by_the_providers_name() {
    let house = House::with(
        ".hermes/config.yaml",
        "model: {default: m, provider: openrouter}",
    );
    house.put(".hermes/.env", "OPENROUTER_API_KEY=sk-o\n");
    let asks = "https://openrouter.ai/api/v1 openai-completions m sk-o";
    assert_eq!(asked(&house, "hermes").as_deref(), Some(asks));
    let house = House::with(
        ".config/opencode/opencode.json",
        r#"{"model": "deepseek/d"}"#,
    );
    house.put(
        ".local/share/opencode/auth.json",
        r#"{"deepseek": {"type": "api", "key": "sk-d"}}"#,
    );
    let asks = "https://api.deepseek.com openai-completions deepseek/d sk-d";
    assert_eq!(asked(&house, "opencode").as_deref(), Some(asks));
}
