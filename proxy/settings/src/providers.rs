//! Providers that can be named instead of an address, as in the Python original's wizard.

use std::sync::LazyLock;

use crate::address::host;

/// A provider of chat models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatProvider {
    /// Its name in `llm.provider`.
    pub name: &'static str,
    /// Its common name.
    pub title: &'static str,
    /// Its address, for `llm.api_base`.
    pub api_base: &'static str,
    /// A model that it had when this was written; empty if the owner has to choose.
    pub model: &'static str,
}

/// The providers that have an address of their own. `custom` has none.
pub static PROVIDERS: LazyLock<Vec<ChatProvider>> = LazyLock::new(|| {
    let lines = include_str!("../data/providers.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#'));
    rows.filter_map(provider).collect()
});

fn provider(row: &'static str) -> Option<ChatProvider> {
    let mut fields = row.split('|').map(str::trim);
    Some(ChatProvider {
        name: fields.next()?,
        title: fields.next()?,
        api_base: fields.next()?,
        model: fields.next()?,
    })
}

/// The provider whose address depends on the region and the model, and who needs no key.
pub(crate) const BEDROCK: &str = "bedrock";

/// The names that a key `provider` takes.
pub(crate) fn names() -> Vec<&'static str> {
    let names = PROVIDERS.iter().map(|provider| provider.name);
    names.chain(["custom", BEDROCK]).collect()
}

/// Returns the provider of a name.
pub fn named(name: &str) -> Option<&'static ChatProvider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// Returns the provider with this address.
pub fn at(url: &str) -> Option<&'static ChatProvider> {
    PROVIDERS.iter().find(|it| host(it.api_base) == host(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_hosts_are_each_found_again() {
        for it in PROVIDERS.iter() {
            assert_eq!(named(it.name), Some(it));
            assert_eq!(host(at(it.api_base).unwrap().api_base), host(it.api_base));
        }
        let found = host("https://user:pass@h.example:8443/v1");
        assert_eq!(found, "h.example:8443");
        assert_eq!(at("https://api.openai.com.example/v1"), None);
    }
}
