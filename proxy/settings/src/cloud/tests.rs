//! Tests of which service is used, its key, and its model's tokenizer.

use std::path::Path;

use super::{super::*, *};

/// Reads the settings from a file of this text below `folder`, with these environment variables.
fn loaded(folder: &Path, text: &str, variables: &[(&str, &str)]) -> Loaded {
    let sources = Sources::in_folder(folder, variables);
    std::fs::write(&sources.file, text).unwrap();
    load(sources).unwrap()
}

/// Returns the policy model that a start would use.
fn policy(text: &str, variables: &[(&str, &str)]) -> Result<Policy, policy::PolicyError> {
    let folder = tempfile::tempdir().unwrap();
    let loaded = loaded(folder.path(), text, variables);
    Policy::from_config(&loaded.config, folder.path())
}

/// Returns the service that a start would use: its name, its address and its key.
fn chosen(rl: &str, variables: &[(&str, &str)]) -> (Service, String, String) {
    let text = format!("mode: rl\nrl: {{model: Qwen/Qwen3-8B, {rl}}}\n");
    match policy(&text, variables).unwrap() {
        Policy::Cloud(cloud) => (cloud.service, cloud.url, cloud.key.expose().to_owned()),
        other => panic!("{rl}: {other:?}"),
    }
}

#[test]
fn each_service_has_its_own_address_and_its_own_variables() {
    let variables = [
        ("TINKER_API_KEY", "tml-1"),
        ("MINT_API_KEY", "sk-mint-1"),
        ("WEAVER_API_KEY", "sk-w-1"),
        ("MINT_BASE_URL", "https://mint.example/"),
    ];
    for (word, service, url, key) in [
        (
            "tinker",
            Service::Tinker,
            // The only address in the environment belongs to another service, and is used as in the Python original.
            "https://mint.example",
            "tml-1",
        ),
        ("mint", Service::Mint, "https://mint.example", "sk-mint-1"),
        ("weaver", Service::Weaver, "https://mint.example", "sk-w-1"),
    ] {
        let found = chosen(&format!("backend: {word}"), &variables);
        assert_eq!(found, (service, url.to_owned(), key.to_owned()));
    }
    for service in Service::ALL {
        let rl = format!("backend: {}, tinker_api_key: k", service.word());
        let expected = (service, service.address().to_owned(), "k".to_owned());
        assert_eq!(chosen(&rl, &[]), expected);
    }
}

#[test]
fn auto_tells_services_apart_by_key_and_address() {
    #[rustfmt::skip]
    let cases = [
        ("tinker_api_key: tml-1", Service::Tinker),
        ("tinker_api_key: sk-mint-1", Service::Mint),
        ("tinker_api_key: k, tinker_base_url: 'https://mint.example'", Service::Mint),
        ("tinker_api_key: k, tinker_base_url: 'https://weaver.example'", Service::Weaver),
        ("tinker_api_key: k, tinker_base_url: 'http://127.0.0.1:8000'", Service::Tinker),
        // These are the names in the Python original.
        ("api_key: sk-mint-1", Service::Mint),
    ];
    for (rl, service) in cases {
        assert_eq!(chosen(rl, &[]).0, service, "{rl}");
    }
}

#[test]
fn what_the_settings_say_stands_above_the_environment() {
    let variables = [
        ("TINKER_API_KEY", "of-environment"),
        ("TINKER_BASE_URL", "https://environment.example"),
    ];
    let own = "backend: tinker, tinker_api_key: own, tinker_base_url: 'https://own.example'";
    let (_, url, key) = chosen(own, &variables);
    assert_eq!((url.as_str(), key.as_str()), ("https://own.example", "own"));
    let (_, url, key) = chosen("backend: tinker", &variables);
    assert_eq!(url, "https://environment.example");
    assert_eq!(key, "of-environment");
}

#[test]
fn variables_alone_choose_no_service() {
    let llm = "llm: {api_base: 'https://a.example/v1'}\n";
    for rl in ["", "rl: {model: Qwen/Qwen3-8B}\n"] {
        let found = policy(&format!("{llm}{rl}"), &[("TINKER_API_KEY", "tml-1")]);
        assert_eq!(found, Ok(Policy::None), "{rl}");
    }
}

#[test]
fn without_key_or_model_the_refusal_says_what_to_set() {
    #[rustfmt::skip]
    let cases = [
        ("backend: mint, model: Qwen/Qwen3-8B", "MinT needs a key: set rl.tinker_api_key, or the variable MINT_API_KEY (docs/training/tinker.md)"),
        ("backend: tinker, tinker_api_key: k", "Tinker needs the name of a model that it offers: set rl.model"),
        (
            "backend: tinker, model: m, tinker_base_url: 'http://10.0.0.5:8000'",
            "the training server at 10.0.0.5:8000 needs a key: set rl.tinker_api_key, or the variable TINKER_API_KEY (docs/training/tinker.md); if it asks for none, set tml-none",
        ),
    ];
    for (rl, said) in cases {
        let refused = policy(&format!("mode: rl\nrl: {{{rl}}}\n"), &[]).unwrap_err();
        assert!(refused.to_string().starts_with(said), "{refused}");
    }
}

#[test]
fn without_a_name_the_model_of_llm_is_taken_if_it_is_offered() {
    let unnamed = || match policy("mode: rl\nrl: {backend: tinker, tinker_api_key: k}\n", &[]) {
        Err(policy::PolicyError::Cloud(CloudError::NoModel { unnamed, .. })) => *unnamed,
        other => panic!("{other:?}"),
    };
    let two = ["acme/Qwen3-8B", "Qwen/Qwen3-8B", "meta/Llama-3.1-8B"];
    for (llms, chosen) in [
        (Some("Qwen/Qwen3-8B"), Ok("Qwen/Qwen3-8B")),
        (Some("meta/llama-3.1-8b"), Ok("meta/Llama-3.1-8B")),
        (
            Some("llama-3.1-70b"),
            Err("; the nearest to llm.model_id llama-3.1-70b is meta/Llama-3.1-8B"),
        ),
        (None, Err("")),
    ] {
        let is = unnamed().choose(&two.map(str::to_owned), llms);
        let expected = chosen.map(str::to_owned).map_err(|end| {
            format!(
                "Tinker needs the name of a model that it offers: set rl.model to one of {}{end}",
                two.join(", ")
            )
        });
        assert_eq!(is.map_err(|error| error.to_string()), expected, "{llms:?}");
    }
    let none = unnamed().choose(&[], Some("acme")).unwrap_err().to_string();
    assert!(
        none.ends_with("set rl.model, as its documentation names them"),
        "{none}"
    );
}

#[test]
fn a_service_has_its_name_only_at_an_address_of_its_own() {
    for service in Service::ALL {
        assert!(service.is_at(service.address()), "{service:?}");
        assert!(service.address().starts_with("https://"), "{service:?}");
        assert_eq!(service.name().to_uppercase(), service.prefix());
        assert_eq!(service.word().to_uppercase(), service.prefix());
    }
    assert!(Service::Mint.is_at("https://mint-cn.macaron.xin/"));
    for other in [
        "https://mint.example",
        "http://10.0.0.5:8000",
        "https://macaron.xin.example",
        "https://not-macaron.xin",
    ] {
        let name = Service::Mint.name_at(other);
        assert!(name.starts_with("the training server at "), "{name}");
    }
}

/// Returns the tokenizer of a service's model, by its settings, in a folder that has one at `whole` and none at
/// `empty`.
fn tokenizer_of(rl: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["whole", "empty"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    for file in ["whole/tiktoken.model", "model.gguf"] {
        std::fs::write(folder.path().join(file), "x").unwrap();
    }
    let text = format!("mode: rl\nrl: {{backend: tinker, tinker_api_key: k, {rl}}}\n");
    let loaded = loaded(folder.path(), &text, &[]);
    let neutral = |text: String| text.replace(&*folder.path().to_string_lossy(), "FOLDER");
    match Policy::from_config(&loaded.config, folder.path()) {
        Ok(Policy::Cloud(cloud)) => Ok(neutral(cloud.tokenizer.display().to_string())),
        Ok(other) => panic!("{rl}: {other:?}"),
        Err(error) => Err(neutral(error.to_string())),
    }
}

#[test]
fn a_tokenizer_is_a_folder_or_a_name_at_the_hub() {
    for (rl, found) in [
        ("model: Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("model: own, tokenizer: Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("model: own, tokenizer: whole", "FOLDER/whole"),
    ] {
        assert_eq!(tokenizer_of(rl).as_deref(), Ok(found), "{rl}");
    }
}

#[test]
fn what_is_no_tokenizer_is_refused_with_what_is_allowed() {
    let refused = |rl: &str| tokenizer_of(rl).unwrap_err();
    for given in ["model.gguf", "empty", "nowhere"] {
        let told = refused(&format!("model: Qwen/Qwen3-8B, tokenizer: {given}"));
        assert_eq!(
            told,
            format!(
                "rl.tokenizer: FOLDER/{given} is not allowed: give a folder that has tokenizer.json or tiktoken.model, or a model's name at the Hugging Face hub, as in Qwen/Qwen3-8B"
            )
        );
    }
    let told = refused("model: own");
    assert!(
        told.starts_with("rl.tokenizer is missing: rl.model ") && told.contains("own is neither"),
        "{told}"
    );
}
