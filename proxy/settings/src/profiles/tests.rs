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
    let mut layers = vec![Layer::text("config.yaml".into(), text).unwrap()];
    let said = lay(&mut layers, &path).unwrap();
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
