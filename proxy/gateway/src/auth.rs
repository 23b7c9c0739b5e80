//! Who may come in, and for whom.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};
use metaclaw_chat::AgentId;

use crate::{config::ProxyConfig, refusal::Refusal, secret::Secret};

/// Headers in which a caller shows a key; none of them goes upstream where keys are set here.
pub(crate) const KEY_HEADERS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];

/// For which agents a caller may speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// For any.
    Any,
    /// For these; the first, where it does not say.
    Of(Arc<[AgentId]>),
}

/// The keys of the door.
#[derive(Debug)]
pub(crate) struct Door {
    keys: Vec<(Secret, Caller)>,
}

// === impl Door ===

impl Door {
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let any = config.api_key.iter().map(|key| (key.clone(), Caller::Any));
        let single = config.keys.values().map(|key| {
            let agents = key.agents.as_slice().into();
            (key.key.clone(), Caller::Of(agents))
        });
        Self {
            keys: any.chain(single).collect(),
        }
    }

    /// Whether callers must show a key, so that what they show is ours and no upstream's.
    pub(crate) fn is_locked(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Lets a caller in.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        if !self.is_locked() {
            return Ok(Caller::Any);
        }
        let shown = shown_key(headers).ok_or(Refusal::NoKey)?;
        // All are compared, so that the time does not say which was near.
        let known = self.keys.iter().filter(|(key, _)| key.matches(shown));
        let caller = known.fold(None, |_, (_, caller)| Some(caller));
        caller.cloned().ok_or(Refusal::WrongKey)
    }
}

/// The key that a caller shows, in any of the ways that clients of chat APIs do.
pub(crate) fn shown_key(headers: &HeaderMap) -> Option<&str> {
    KEY_HEADERS.iter().find_map(|name| {
        let value = headers.get(name)?.to_str().ok()?.trim();
        if *name != header::AUTHORIZATION {
            return Some(value);
        }
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    })
}

#[cfg(test)]
mod tests {
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
}
