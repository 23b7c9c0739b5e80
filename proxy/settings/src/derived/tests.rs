use super::*;
use crate::{
    Loaded,
    auth_profiles::{Method, Profile},
};

/// Returns the key in force with these settings, if a token of Anthropic's and a key of `mine` are kept.
fn key(text: &str) -> (Option<String>, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("auth-profiles.json");
    let mut profiles = Profiles::load(&path).unwrap();
    for (provider, method, secret) in [
        ("anthropic", Method::Token, "sk-ant-oat01-t"),
        ("mine", Method::ApiKey, "k-mine"),
    ] {
        profiles.put(&Profile::new(provider, method, secret.into()));
    }
    profiles.save(&path).unwrap();
    let mut layers = vec![file(text)];
    let said = lay_profile(&mut layers, &path).unwrap();
    let config = Loaded::new(layers).unwrap().config;
    (config.llm.api_key.map(|key| key.expose().to_owned()), said)
}

#[test]
fn a_profile_is_used_where_llm_has_no_key() {
    let used = |text: &str| key(text).0;
    let token = Some("sk-ant-oat01-t");
    assert_eq!(used("llm: {provider: anthropic}\n").as_deref(), token);
    let base = "llm: {api_base: 'https://api.anthropic.com/v1'}\n";
    assert_eq!(used(base).as_deref(), token);
    let own = "llm: {provider: anthropic, api_key: own}\n";
    assert_eq!(used(own).as_deref(), Some("own"));
    let meant = "llm: {provider: anthropic, api_key: own, auth_method: oauth_token}\n";
    assert_eq!(used(meant).as_deref(), token);
    let named = "llm: {provider: mine, api_base: 'http://h/v1'}\n";
    assert_eq!(used(named).as_deref(), Some("k-mine"));
}

#[test]
fn a_profile_goes_to_no_other_address() {
    for text in [
        "llm: {provider: anthropic, api_base: 'https://other.example/v1'}\n",
        "llm: {api_base: 'https://other.example/v1'}\n",
        "mode: skills_only\n",
    ] {
        assert_eq!(key(text), (None, None), "{text}");
    }
}

#[test]
fn a_token_that_is_asked_for_and_not_there_is_missed() {
    let none = key("llm: {provider: gemini, auth_method: oauth_token}\n");
    insta::assert_snapshot!(none.1.unwrap(), @"llm.auth_method oauth_token: no token of gemini is kept: `metaclaw auth paste-token --provider gemini`");
    let whose = key("llm: {auth_method: oauth_token, api_base: 'http://h/v1'}\n");
    assert!(whose.1.unwrap().contains("does not say whose"));
}

fn file(text: &str) -> Layer {
    Layer::text("config.yaml".into(), text).unwrap()
}

#[test]
fn a_provider_stands_for_its_address_where_none_is_given() {
    let qwen = "https://dashscope.aliyuncs.com/compatible-mode/v1";
    let bedrock = "https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic/v1";
    for (text, key, address) in [
        ("llm: {provider: qwen}", "llm.api_base", Some(qwen)),
        (
            "llm: {provider: qwen, api_base: 'http://h/v1'}",
            "llm.api_base",
            None,
        ),
        ("llm: {provider: custom}", "llm.api_base", None),
        ("judge: {provider: qwen, key: k}", "judge.url", Some(qwen)),
        (
            "rl: {prm_provider: openai, prm_api_key: ''}",
            "judge.url",
            None,
        ),
        // The address of Bedrock is made of the region and the model.
        (
            "llm: {provider: bedrock, model_id: us.anthropic.claude-sonnet-4-6, bedrock_region: eu-west-1}",
            "llm.api_base",
            Some(bedrock),
        ),
        (
            "rl: {prm_provider: bedrock, prm_model: qwen.qwen3-32b}",
            "judge.url",
            Some("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
        ),
    ] {
        assert_eq!(
            self::text(&[addresses(&[file(text)])], key),
            address,
            "{text}"
        );
    }
}

#[test]
fn variables_of_bedrock_count_if_it_is_the_provider() {
    let environment = [
        ("AWS_REGION".to_owned(), "us-west-2".to_owned()),
        ("AWS_BEARER_TOKEN_BEDROCK".to_owned(), "k".to_owned()),
    ];
    let said = service_variables(&[file("llm: {provider: bedrock}\n")], &environment);
    assert_eq!(said.values()[REGION], "us-west-2");
    assert_eq!(said.values()["llm.api_key"], "k");
    let other = service_variables(&[file("llm: {provider: openai}\n")], &environment);
    assert!(other.values().is_empty());
}

#[test]
fn two_older_keys_stand_for_a_mode_where_none_is_set() {
    for (text, said) in [
        (
            "{rl: {enabled: false}, scheduler: {enabled: true}}",
            Some("skills_only"),
        ),
        (
            "{rl: {enabled: true}, scheduler: {enabled: true}}",
            Some("auto"),
        ),
        (
            "{rl: {enabled: true}, scheduler: {enabled: false}}",
            Some("rl"),
        ),
        ("rl: {enabled: false}", Some("skills_only")),
        ("rl: {enabled: true}", None),
        ("{mode: rl, rl: {enabled: false}}", None),
    ] {
        let layer = mode(&[file(text)]);
        let mode = layer
            .as_ref()
            .and_then(|layer| layer.values()["mode"].as_str());
        assert_eq!(mode, said, "{text}");
    }
}
