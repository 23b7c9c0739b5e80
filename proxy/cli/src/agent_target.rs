//! Where agents are searched for, and the proxy as they reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaclaw_settings::{
    Config, Policy,
    address::{is_bedrock, user_folder},
};
use metaclaw_wiring::{Surroundings, Target};

use crate::environment::Environment;

/// The agent whose key OpenClaw sends, if several callers have keys.
const MAIN_AGENT: &str = "main";

/// The name under which agents use the policy model, which answers to every name.
const POLICY: &str = "metaclaw";

/// Returns the variables and the folder in which agents are searched for.
pub(crate) fn surroundings(environment: &Environment) -> Surroundings {
    Surroundings {
        variables: environment.variables().to_vec(),
        home: user_folder(),
    }
}

/// Returns the proxy as OpenClaw's main agent reaches it.
pub(crate) fn target(config: &Config, policy: &Policy, proxy: SocketAddr) -> Target {
    target_of(MAIN_AGENT, config, policy, proxy)
}

/// Returns the proxy as an agent of this name reaches it. If several callers have keys, it uses one that is valid for
/// this agent.
pub(crate) fn target_of(
    agent: &str,
    config: &Config,
    policy: &Policy,
    proxy: SocketAddr,
) -> Target {
    let listen = &config.gateway.proxy;
    let mut keys = listen.keys.values();
    let may_speak =
        |it: &&metaclaw_gateway::KeyConfig| it.agents.iter().any(|own| own.as_str() == agent);
    let named = keys.clone().find(may_speak).or_else(|| keys.next());
    let signs = config.llm.api_base.as_deref().is_some_and(is_bedrock);
    let names_upstreams = config.llm.api_base.is_none() && !config.gateway.upstreams.is_empty();
    Target {
        origin: origin(proxy),
        key: (listen.api_key.clone()).or_else(|| named.map(|it| it.key.clone())),
        has_provider_key: config.llm.api_key.is_some()
            || policy.is_some()
            || names_upstreams
            || signs,
        model: (config.llm.model_id.clone())
            .or_else(|| policy.is_some().then(|| POLICY.to_owned())),
        upstream: config.llm.api_base.clone(),
        context_window: config.context_window.filter(|it| *it > 0),
    }
}

/// Returns `http://` and the address at which this machine reaches the proxy.
pub(crate) fn origin(proxy: SocketAddr) -> String {
    let ip = match proxy.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, proxy.port()))
}
