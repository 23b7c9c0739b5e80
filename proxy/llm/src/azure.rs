//! Azure's addresses, interpreted as the gateway does for chats: a resource, a deployment, or `/openai/v1`.

use reqwest::Url;

const HOSTS: [&str; 3] = [
    ".openai.azure.com",
    ".cognitiveservices.azure.com",
    ".services.ai.azure.com",
];
const API_VERSION: &str = "api-version=";
const ROUTE: &str = "/chat/completions";

/// Returns whether an address is one of Azure's.
pub fn is_azure(url: &str) -> bool {
    let url: Option<Url> = url.parse().ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.is_some_and(|host| HOSTS.iter().any(|azure| host.ends_with(azure)))
}

pub(crate) fn endpoint(base: &str, model: &str, version: Option<&str>) -> Result<Url, String> {
    let mut url: Url = base.parse().map_err(|error| format!("{error}"))?;
    let in_query = match url.query() {
        Some(query) => {
            let version = query.strip_prefix(API_VERSION);
            Some(
                version
                    .ok_or("it has a query other than api-version")?
                    .to_owned(),
            )
        }
        None => None,
    };
    let version = version.map(str::to_owned).or(in_query);
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix(ROUTE).unwrap_or(path).to_owned();
    if path.contains("/deployments/") && version.is_none() {
        let why = "a deployment needs an api_version, as in 2024-10-21; an address that ends in /openai/v1 needs none";
        return Err(why.to_owned());
    }
    let is_resource = matches!(path.as_str(), "" | "/openai");
    url.set_path(match (is_resource, &version) {
        (true, Some(_)) => "/openai/deployments",
        (true, None) => "/openai/v1",
        (false, _) => &path,
    });
    let mut segments = url.path_segments_mut().map_err(|()| "it is no address")?;
    if is_resource && version.is_some() {
        segments.push(model);
    }
    segments.extend(["chat", "completions"]);
    drop(segments);
    let query = version.map(|version| format!("{API_VERSION}{version}"));
    url.set_query(query.as_deref());
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azures_addresses_are_completed_as_for_chats() {
        let of = |base, version| endpoint(base, "gpt 5", version).map(String::from);
        let resource = "https://x.openai.azure.com";
        let deployment = "https://x.openai.azure.com/openai/deployments/d";
        let whole = format!("{deployment}/chat/completions?api-version=v");
        assert_eq!(of(deployment, Some("v")).unwrap(), whole);
        assert_eq!(of(&whole, None).unwrap(), whole);
        assert_eq!(
            of(resource, Some("v")).unwrap(),
            "https://x.openai.azure.com/openai/deployments/gpt%205/chat/completions?api-version=v"
        );
        for v1 in [resource, "https://x.openai.azure.com/openai/v1"] {
            let expected = "https://x.openai.azure.com/openai/v1/chat/completions";
            assert_eq!(of(v1, None).unwrap(), expected);
        }
        assert!(
            of(deployment, None)
                .unwrap_err()
                .contains("needs an api_version")
        );
        assert!(
            of("https://x.openai.azure.com?a=b", None)
                .unwrap_err()
                .contains("query")
        );
    }

    #[test]
    fn azures_hosts_are_known() {
        assert!(is_azure("https://x.openai.azure.com/openai/v1"));
        for other in [
            "https://api.openai.com/v1",
            "https://openai.azure.com.example/v1",
            "x",
        ] {
            assert!(!is_azure(other), "{other}");
        }
    }
}
