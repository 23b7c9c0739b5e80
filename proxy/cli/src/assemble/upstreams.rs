//! Upstream settings from other places than `upstreams.*`: `llm.*`, and the environment's proxies.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use metaclaw_aws::CredentialSource;
use metaclaw_control::costs::ModelPrices;
use metaclaw_gateway::{
    Api, EnvironmentProxies, GatewayConfig, LLM, POLICY, Provider, UpstreamConfig,
};
use metaclaw_settings::{
    Config, Llm, Policy,
    address::{is_here, user_folder},
};

use crate::environment::Environment;

/// This provider expects its key in a header of its own. It also has OpenAI's chat completions, with which it can be
/// tested.
const ANTHROPIC: &str = "api.anthropic.com";

/// Removes the policy model from the order if there is none; an agent for which it is the only upstream would otherwise
/// get no answer.
pub(super) fn without_policy(config: &mut GatewayConfig) -> anyhow::Result<()> {
    config.routing.order.retain(|name| name != POLICY);
    for (agent, own) in &config.agents {
        let is_asked = own.upstream.iter().any(|name| name == POLICY);
        ensure!(
            !is_asked,
            "agents.{agent}.upstream: there is no policy model: set trainer.model or rl.remote_url, or name another upstream"
        );
    }
    Ok(())
}

pub(super) fn add_llm(upstreams: &mut BTreeMap<String, UpstreamConfig>, llm: &Llm) {
    let Some(url) = &llm.api_base else {
        return;
    };
    let is_described = upstreams.contains_key(LLM);
    let upstream = upstreams.entry(LLM.to_owned()).or_default();
    upstream.url.clone_from(url);
    if let Some(key) = &llm.api_key {
        upstream.keys.insert(0, key.expose().into());
    }
    if llm.model_id.is_some() {
        upstream.model.clone_from(&llm.model_id);
    }
    let host = url.split("://").nth(1).and_then(|it| it.split('/').next());
    if host == Some(ANTHROPIC) && !is_described {
        upstream.dialect = Provider::Anthropic;
        upstream.speaks = Some(vec![Api::Chat, Api::Messages]);
    }
}

/// What models cost, and which upstreams are on this machine.
pub(crate) fn model_prices(config: &Config, policy: &Policy) -> ModelPrices {
    let named = config.gateway.upstreams.iter();
    let named = named.filter_map(|(name, own)| Some((name.as_str(), own.address()?)));
    let llm = config.llm.api_base.as_deref().map(|url| (LLM, url));
    let here = named.chain(llm).filter(|(_, url)| is_here(url));
    let mut here: BTreeSet<String> = here.map(|(name, _)| name.to_owned()).collect();
    let is_policy_here = match policy {
        Policy::Local { .. } => true,
        Policy::Remote { url, .. } => is_here(url),
        Policy::None | Policy::Cloud(_) => false,
    };
    here.extend(is_policy_here.then(|| POLICY.to_owned()));
    ModelPrices {
        own: config.budget.prices.clone(),
        here,
    }
}

pub(super) fn credentials(environment: &Environment) -> CredentialSource {
    CredentialSource::from_variables(|name| environment.get(name), Some(&user_folder()))
}

/// Reads `HTTP_PROXY` and the related variables. Programs that a web server runs must ignore the variable for `http://`
/// in capitals, because it may contain a visitor's `Proxy` header; this program is not run by a web server.
pub(super) fn environment(environment: &Environment) -> EnvironmentProxies {
    let text = |names: [&str; 2]| names.into_iter().find_map(|name| environment.get(name));
    EnvironmentProxies {
        http: text(["http_proxy", "HTTP_PROXY"]).map(Into::into),
        https: text(["https_proxy", "HTTPS_PROXY"]).map(Into::into),
        all: text(["all_proxy", "ALL_PROXY"]).map(Into::into),
        no: text(["no_proxy", "NO_PROXY"])
            .unwrap_or_default()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llm(url: &str) -> Llm {
        Llm {
            api_base: Some(url.to_owned()),
            model_id: Some("m".to_owned()),
            api_key: Some("k".to_owned().into()),
            ..Llm::default()
        }
    }

    #[test]
    fn llm_is_an_upstream_and_upstreams_llm_adds_to_it() {
        let mut upstreams = BTreeMap::new();
        add_llm(&mut upstreams, &Llm::default());
        assert!(upstreams.is_empty());
        let given = r#"{"llm":{"keys":["second"],"dialect":"azure","api_version":"v"}}"#;
        let mut upstreams = serde_json::from_str(given).unwrap();
        add_llm(&mut upstreams, &llm("https://x.openai.azure.com"));
        let it = &upstreams[LLM];
        assert_eq!(it.keys, ["k".into(), "second".into()]);
        assert_eq!(
            (it.dialect, it.api_version.as_deref()),
            (Provider::Azure, Some("v"))
        );
        assert_eq!(it.model.as_deref(), Some("m"));
    }

    #[test]
    fn anthropics_own_address_is_known() {
        let mut upstreams = BTreeMap::new();
        add_llm(&mut upstreams, &llm("https://api.anthropic.com/v1"));
        assert_eq!(upstreams[LLM].dialect, Provider::Anthropic);
        add_llm(&mut upstreams, &llm("https://api.example/v1"));
        let mut upstreams = BTreeMap::new();
        add_llm(&mut upstreams, &llm("https://api.anthropic.com.example/v1"));
        assert_eq!(upstreams[LLM].dialect, Provider::Openai);
    }

    #[test]
    fn an_agent_is_not_sent_to_a_policy_model_that_is_not_there() {
        let given = r#"{"agents":{"work":{"upstream":["llm"]}}}"#;
        let mut config: GatewayConfig = serde_json::from_str(given).unwrap();
        without_policy(&mut config).unwrap();
        assert_eq!(config.routing.order, [LLM]);
        let given = r#"{"agents":{"work":{"upstream":["policy","llm"]}}}"#;
        let mut config: GatewayConfig = serde_json::from_str(given).unwrap();
        insta::assert_snapshot!(without_policy(&mut config).unwrap_err(), @"agents.work.upstream: there is no policy model: set trainer.model or rl.remote_url, or name another upstream");
    }
}
