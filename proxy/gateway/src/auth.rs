//! Authenticates callers, and decides for which agents they may speak.

pub(crate) mod caller;
pub(crate) mod layer;
pub(crate) mod names;
mod stored;

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use http::HeaderMap;
use metaclaw_chat::Secret;

use self::{
    caller::{AuthError, Caller, KeyName, shown_keys},
    names::AgentNames,
};
use crate::{
    config::{ConfigError, KeyConfig, ProxyConfig},
    lock::lock,
};

/// Knows the valid keys. The keys can be changed while it is in use.
#[derive(Debug)]
pub struct Authenticator {
    config: Mutex<ProxyConfig>,
    keys: ArcSwap<Vec<(Secret, Caller)>>,
    /// The names that callers may use while no key is needed.
    names: AgentNames,
}

// === impl Authenticator ===

impl Authenticator {
    pub(crate) fn new(config: &ProxyConfig, names: AgentNames) -> Self {
        Self {
            keys: ArcSwap::from_pointee(keys(config)),
            config: Mutex::new(config.clone()),
            names,
        }
    }

    /// Adds a key, or removes the one with this name. Later requests use the change.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a start with these settings would be refused. In that case nothing has changed.
    pub fn set_key(&self, name: &str, key: Option<KeyConfig>) -> Result<(), ConfigError> {
        // Changes under this lock take effect at once at its end.
        let mut config = lock(&self.config);
        let mut changed = config.clone();
        match key {
            Some(key) => changed.keys.insert(name.to_owned(), key),
            None => changed.keys.remove(name),
        };
        changed.check()?;
        self.keys.store(Arc::new(keys(&changed)));
        *config = changed;
        Ok(())
    }

    /// Returns whether callers must send a key of this proxy. Then what they send is not for an upstream.
    pub(crate) fn requires_key(&self) -> bool {
        !self.keys.load().is_empty()
    }

    pub(crate) fn name_of_key(&self, headers: &HeaderMap) -> Option<KeyName> {
        let config = lock(&self.config);
        let is_shown = |key: &KeyConfig| shown_keys(headers).any(|shown| key.key.matches(shown));
        let named = config.keys.iter().find(|(_, key)| is_shown(key));
        named.map(|(name, _)| KeyName(name.clone()))
    }

    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, AuthError> {
        let keys = self.keys.load();
        if keys.is_empty() {
            return Ok(Caller::Anyone(self.names.clone()));
        }
        let mut error = AuthError::NoKey;
        for shown in shown_keys(headers) {
            // All keys are compared, so that the time does not reveal which one was close.
            let known = keys.iter().filter(|(key, _)| key.matches(shown));
            if let Some((_, caller)) = known.fold(None, |_, key| Some(key)) {
                return Ok(caller.clone());
            }
            error = AuthError::WrongKey;
        }
        Err(error)
    }
}

fn keys(config: &ProxyConfig) -> Vec<(Secret, Caller)> {
    let any = config.api_key.iter().map(|key| (key.clone(), Caller::Any));
    let single = config.keys.values().map(|key| {
        let agents = key.agents.as_slice().into();
        (key.key.clone(), Caller::Of(agents))
    });
    any.chain(single).collect()
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use http::{HeaderName, HeaderValue, header};
    use metaclaw_chat::AgentId;

    use super::{caller::KEY_HEADERS, *};

    fn with_config(config: &ProxyConfig) -> Authenticator {
        Authenticator::new(config, AgentNames::default())
    }

    fn anyone() -> Caller {
        Caller::Anyone(AgentNames::default())
    }

    fn authenticator() -> Authenticator {
        let config =
            r#"{"api_key":"master","keys":{"phone":{"key":"p","agents":["main","work"]}}}"#;
        with_config(&serde_json::from_str(config).unwrap())
    }

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_key_is_good_for_its_agents_however_it_is_shown() {
        let agents = ["main", "work"].map(|agent| agent.parse().unwrap());
        let phone = Caller::Of(agents.into());
        let [authorization, x_api_key, api_key] = KEY_HEADERS;
        for (name, value, caller) in [
            (authorization, "Bearer master", Caller::Any),
            (x_api_key, "p", phone.clone()),
            (api_key, "p", phone),
        ] {
            let admitted = authenticator().authenticate(&with(name, value));
            assert_eq!(admitted.unwrap(), caller);
        }
    }

    #[test]
    fn of_two_keys_that_are_shown_either_will_do() {
        let [authorization, x_api_key, _] = KEY_HEADERS;
        let both = |bearer, key| {
            let mut headers = with(authorization.clone(), bearer);
            headers.extend(with(x_api_key.clone(), key));
            authenticator().authenticate(&headers)
        };
        for (bearer, key) in [
            ("Bearer theirs", "master"),
            ("Bearer master", "theirs"),
            ("Basic me:it", "master"),
        ] {
            assert_eq!(both(bearer, key).unwrap(), Caller::Any);
        }
        let neither = both("Bearer theirs", "theirs").unwrap_err();
        assert!(neither.to_string().starts_with("this key is not known"));
        let mut twice = with(x_api_key.clone(), "theirs");
        twice.append(x_api_key.clone(), HeaderValue::from_static("master"));
        assert_eq!(authenticator().authenticate(&twice).unwrap(), Caller::Any);
    }

    #[test]
    fn without_the_right_key_nobody_comes_in() {
        let [unknown, none] = ["this key is not known", "no key was given"];
        for (headers, why) in [
            (HeaderMap::new(), none),
            (with(header::AUTHORIZATION, "Basic master"), none),
            (with(header::AUTHORIZATION, "Bearer maste"), unknown),
        ] {
            let refused = authenticator().authenticate(&headers).unwrap_err();
            assert!(refused.to_string().starts_with(why), "{refused}");
        }
        let open = with_config(&ProxyConfig::default());
        assert_eq!(open.authenticate(&HeaderMap::new()).unwrap(), anyone());
    }

    #[test]
    fn keys_come_and_go_while_they_are_in_use() {
        let auth = with_config(&ProxyConfig::default());
        let phone = |key| with(header::AUTHORIZATION, key);
        let key = r#"{"key":"p","agents":["main"]}"#;
        let key: KeyConfig = serde_json::from_str(key).unwrap();
        auth.set_key("phone", Some(key)).unwrap();
        assert!(auth.requires_key() && auth.authenticate(&HeaderMap::new()).is_err());
        let main = Caller::Of([AgentId::from_str("main").unwrap()].into());
        assert_eq!(auth.authenticate(&phone("Bearer p")).unwrap(), main);
        let nobodys = r#"{"key":"q","agents":[]}"#;
        let nobodys = serde_json::from_str(nobodys).unwrap();
        let refused = auth.set_key("other", Some(nobodys)).unwrap_err();
        insta::assert_snapshot!(refused, @"proxy.keys.other.agents is empty: name the agents that this key may speak for");
        assert!(auth.authenticate(&phone("Bearer q")).is_err());
        auth.set_key("phone", None).unwrap();
        assert_eq!(auth.authenticate(&HeaderMap::new()).unwrap(), anyone());
    }

    #[test]
    fn the_last_key_stays_where_other_machines_can_come() {
        let config = r#"{"host":"0.0.0.0","keys":{"phone":{"key":"p","agents":["main"]}}}"#;
        let auth = with_config(&serde_json::from_str(config).unwrap());
        assert!(auth.set_key("phone", None).is_err());
        assert!(auth.requires_key());
    }
}
