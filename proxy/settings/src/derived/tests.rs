use super::*;
use crate::{
    Loaded,
    auth_profiles::{Method, Profile},
    testing::cases,
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
    let token = "sk-ant-oat01-t";
    for (llm, expected) in [
        ("provider: anthropic", token),
        ("api_base: 'https://api.anthropic.com/v1'", token),
        ("provider: anthropic, api_key: own", "own"),
        (
            "provider: anthropic, api_key: own, auth_method: oauth_token",
            token,
        ),
        ("provider: mine, api_base: 'http://h/v1'", "k-mine"),
    ] {
        let used = key(&format!("llm: {{{llm}}}\n")).0;
        assert_eq!(used.as_deref(), Some(expected), "{llm}");
    }
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
    for (text, address) in cases(
        "
        llm: {provider: qwen} => https://dashscope.aliyuncs.com/compatible-mode/v1
        llm: {provider: qwen, api_base: 'http://h/v1'} => none
        llm: {provider: custom} => none
        judge: {provider: qwen, key: k} => https://dashscope.aliyuncs.com/compatible-mode/v1
        rl: {prm_provider: openai, prm_api_key: ''} => none
        llm: {provider: bedrock, model_id: us.anthropic.claude-sonnet-4-6, bedrock_region: eu-west-1} => https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic/v1
        rl: {prm_provider: bedrock, prm_model: qwen.qwen3-32b} => https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1
        ",
    ) {
        let key = if text.starts_with("llm") { "llm.api_base" } else { "judge.url" };
        let found = addresses(&[file(text)]);
        assert_eq!(self::text(&[found], key).unwrap_or("none"), address, "{text}");
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

/// The evolver that a start would ask, with the variables of Azure's programs, and what it would say of them.
fn azures(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("AZURE_OPENAI_ENDPOINT", "https://x.openai.azure.com/"),
        ("AZURE_OPENAI_API_KEY", "k"),
    ];
    let sources = crate::Sources::in_folder(folder.path(), &variables);
    std::fs::write(&sources.file, text).unwrap();
    let loaded = crate::load(sources).unwrap();
    let evolver = loaded.config.evolver.address;
    let key = evolver.key.map(|key| key.expose().to_owned());
    let unread = loaded
        .notices
        .iter()
        .filter(|notice| notice.starts_with("AZURE_OPENAI_"));
    let unread = unread
        .filter(|notice| notice.contains("evolver.provider azure"))
        .count();
    format!(
        "{} {} {unread}",
        evolver.url.unwrap_or_default(),
        key.unwrap_or_default()
    )
}

#[test]
fn variables_of_azure_count_if_it_is_the_provider_and_are_else_told_of() {
    for (text, expected) in cases(
        "
        evolver: {provider: azure, model: o3} => https://x.openai.azure.com/ k 0
        evolver: {provider: azure, model: o3, key: own} => https://x.openai.azure.com/ own 0
        evolver: {provider: azure, url: 'https://y.openai.azure.com', model: o3} => https://y.openai.azure.com k 0
        judge: {provider: azure, model: o3} =>   0
        evolver: {model: o3} =>   2
        ",
    ) {
        assert_eq!(azures(text).trim(), expected.trim(), "{text}");
    }
    let refused = Loaded::new(vec![file("evolver: {provider: azure}\n")]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("for another server, set evolver.url to its address")
    );
}

#[test]
fn two_older_keys_stand_for_a_mode_where_none_is_set() {
    for (text, said) in cases(
        "
        {rl: {enabled: false}, scheduler: {enabled: true}} => skills_only
        {rl: {enabled: true}, scheduler: {enabled: true}} => auto
        {rl: {enabled: true}, scheduler: {enabled: false}} => rl
        rl: {enabled: false} => skills_only
        rl: {enabled: true} => none
        {mode: rl, rl: {enabled: false}} => none
        ",
    ) {
        let layer = mode(&[file(text)]);
        let mode = layer
            .as_ref()
            .and_then(|layer| layer.values()["mode"].as_str());
        assert_eq!(mode.unwrap_or("none"), said, "{text}");
    }
}
