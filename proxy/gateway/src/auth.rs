//! Who may come in, and for whom.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, header};
use metaclaw_chat::AgentId;

use crate::{
    config::{ConfigError, KeyConfig, ProxyConfig},
    refusal::Refusal,
    secret::Secret,
};

/// Headers in which a caller shows a key; none of them goes upstream where keys are set here.
pub(crate) const KEY_HEADERS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];

/// For which agents a caller may speak.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// For any.
    Any,
    /// For these; the first, where it does not say.
    Of(Arc<[AgentId]>),
}

/// The door: who may come in. Its keys can be changed while it is in use.
#[derive(Debug)]
pub struct Door {
    /// Address and key of all, as configured; its keys of single agents as they are now.
    config: Mutex<ProxyConfig>,
    keys: ArcSwap<Vec<(Secret, Caller)>>,
}

// === impl Door ===

impl Door {
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        Self {
            keys: ArcSwap::from_pointee(keys(config)),
            config: Mutex::new(config.clone()),
        }
    }

    /// Puts a key in, or takes the one of that name out; requests from now on go by it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] where the settings would be refused at a start; nothing has changed then.
    pub fn set_key(&self, name: &str, key: Option<KeyConfig>) -> Result<(), ConfigError> {
        // What is changed under this lock is changed at its end, at once.
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Whether callers must show a key, so that what they show is ours and no upstream's.
    pub(crate) fn is_locked(&self) -> bool {
        !self.keys.load().is_empty()
    }

    /// Lets a caller in.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let keys = self.keys.load();
        if keys.is_empty() {
            return Ok(Caller::Any);
        }
        let mut refusal = Refusal::NoKey;
        for shown in shown_keys(headers) {
            // All are compared, so that the time does not say which was near.
            let known = keys.iter().filter(|(key, _)| key.matches(shown));
            if let Some((_, caller)) = known.fold(None, |_, key| Some(key)) {
                return Ok(caller.clone());
            }
            refusal = Refusal::WrongKey;
        }
        Err(refusal)
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

/// The keys that a caller shows, in any of the ways that clients of chat APIs do: some fill two headers,
/// one from their own settings and one from their environment, and only one of the keys is ours.
pub(crate) fn shown_keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    KEY_HEADERS.into_iter().flat_map(|name| {
        let is_bearer = name == header::AUTHORIZATION;
        headers.get_all(name).iter().filter_map(move |value| {
            let value = value.to_str().ok()?.trim();
            if !is_bearer {
                return Some(value);
            }
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        })
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use http::HeaderValue;

    use super::*;

    fn door() -> Door {
        let config =
            r#"{"api_key":"master","keys":{"phone":{"key":"p","agents":["main","work"]}}}"#;
        Door::new(&serde_json::from_str(config).unwrap())
    }

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_key_opens_for_its_agents_however_it_is_shown() {
        let agents = ["main", "work"].map(|agent| agent.parse().unwrap());
        let [authorization, x_api_key, api_key] = KEY_HEADERS;
        let admit = |headers| door().admit(&headers).unwrap();
        assert_eq!(admit(with(authorization, "Bearer master")), Caller::Any);
        assert_eq!(
            admit(with(x_api_key, "p")),
            Caller::Of(agents.clone().into())
        );
        assert_eq!(admit(with(api_key, "p")), Caller::Of(agents.into()));
    }

    #[test]
    fn of_two_keys_that_are_shown_either_opens() {
        let [authorization, x_api_key, _] = KEY_HEADERS;
        let both = |bearer, key| {
            let mut headers = with(authorization.clone(), bearer);
            headers.extend(with(x_api_key.clone(), key));
            door().admit(&headers)
        };
        assert_eq!(both("Bearer theirs", "master").unwrap(), Caller::Any);
        assert_eq!(both("Bearer master", "theirs").unwrap(), Caller::Any);
        assert_eq!(both("Basic me:it", "master").unwrap(), Caller::Any);
        let neither = both("Bearer theirs", "theirs").unwrap_err();
        assert!(neither.to_string().starts_with("this key is not known"));
        let mut twice = with(x_api_key.clone(), "theirs");
        twice.append(x_api_key.clone(), HeaderValue::from_static("master"));
        assert_eq!(door().admit(&twice).unwrap(), Caller::Any);
    }

    #[test]
    fn without_the_right_key_nobody_comes_in() {
        let refuse = |headers| door().admit(&headers).unwrap_err().to_string();
        assert!(refuse(HeaderMap::new()).starts_with("no key was given"));
        assert!(
            refuse(with(header::AUTHORIZATION, "Basic master")).starts_with("no key was given")
        );
        assert!(
            refuse(with(header::AUTHORIZATION, "Bearer maste"))
                .starts_with("this key is not known")
        );
        let open = Door::new(&ProxyConfig::default());
        assert_eq!(open.admit(&HeaderMap::new()).unwrap(), Caller::Any);
    }

    #[test]
    fn keys_come_and_go_while_the_door_is_in_use() {
        let door = Door::new(&ProxyConfig::default());
        let phone = |key| with(header::AUTHORIZATION, key);
        let key = r#"{"key":"p","agents":["main"]}"#;
        let key: KeyConfig = serde_json::from_str(key).unwrap();
        door.set_key("phone", Some(key)).unwrap();
        assert!(door.is_locked() && door.admit(&HeaderMap::new()).is_err());
        let main = Caller::Of([AgentId::from_str("main").unwrap()].into());
        assert_eq!(door.admit(&phone("Bearer p")).unwrap(), main);
        let nobodys = r#"{"key":"q","agents":[]}"#;
        let nobodys = serde_json::from_str(nobodys).unwrap();
        let refused = door.set_key("other", Some(nobodys)).unwrap_err();
        insta::assert_snapshot!(refused, @"proxy.keys.other.agents is empty: name the agents that this key may speak for");
        assert!(door.admit(&phone("Bearer q")).is_err());
        door.set_key("phone", None).unwrap();
        assert_eq!(door.admit(&HeaderMap::new()).unwrap(), Caller::Any);
    }

    #[test]
    fn the_last_key_stays_where_other_machines_can_come() {
        let config = r#"{"host":"0.0.0.0","keys":{"phone":{"key":"p","agents":["main"]}}}"#;
        let door = Door::new(&serde_json::from_str(config).unwrap());
        assert!(door.set_key("phone", None).is_err());
        assert!(door.is_locked());
    }
}
