//! The address of a rollout: `/rollout/ID/v1/..` stands for `/v1/..` in that rollout.

use http::{Request, uri::PathAndQuery};
use metaclaw_dialects::Api;

use crate::route::respelled;

const PREFIX: &str = "rollout/";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RolloutPath(pub(crate) String);

/// Takes a rollout's part of the address away, and puts it beside the request. A route of ours in another spelling gets
/// its own. Any other request is not changed.
pub(crate) fn strip_path<B>(mut request: Request<B>) -> Request<B> {
    let path = request.uri().path();
    if Api::of_path(path).is_some() {
        return request;
    }
    let (id, below) = match split(path) {
        Some((id, below)) => (Some(RolloutPath(id.to_owned())), below),
        None => (None, path),
    };
    let route = match (respelled(below), &id) {
        (Some(route), _) => route,
        (None, Some(_)) if below.starts_with("/v1/") => below.to_owned(),
        (None, _) => return request,
    };
    let route = match request.uri().query() {
        Some(query) => format!("{route}?{query}"),
        None => route,
    };
    let Ok(route) = route.parse::<PathAndQuery>() else {
        return request;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(route);
    // It was a valid address, and its path is still one.
    if let Ok(uri) = parts.try_into() {
        *request.uri_mut() = uri;
        if let Some(id) = id {
            request.extensions_mut().insert(id);
        }
    }
    request
}

fn split(path: &str) -> Option<(&str, &str)> {
    let rest = path.trim_start_matches('/').strip_prefix(PREFIX)?;
    Some(rest.split_at(rest.find('/')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(address: &str) -> (String, Option<String>) {
        let request = Request::builder().uri(address).body(()).unwrap();
        let request = strip_path(request);
        let id = request.extensions().get::<RolloutPath>();
        (request.uri().to_string(), id.map(|it| it.0.clone()))
    }

    #[test]
    fn only_the_address_of_a_rollout_is_shortened() {
        let rollout = |id: &str| Some(id.to_owned());
        #[rustfmt::skip]
        let cases = [
            ("/rollout/ab/v1/models?x=1", "/v1/models?x=1", rollout("ab")),
            ("http://h:1/rollout/ab/v1/messages", "http://h:1/v1/messages", rollout("ab")),
            ("/rollout//v1/messages", "/v1/messages", rollout("")),
            ("/rollout/ab/v1", "/rollout/ab/v1", None),
            ("/rollout/ab/v2/x", "/rollout/ab/v2/x", None),
            ("/rollout/ab", "/rollout/ab", None),
            ("/v1/rollout/ab/v1/x", "/v1/rollout/ab/v1/x", None),
            // A route of ours in another spelling.
            ("/rollout/ab//v1//messages/?b=1", "/v1/messages?b=1", rollout("ab")),
            ("//rollout/ab/v1/v1/Messages", "/v1/messages", rollout("ab")),
            ("/rollout/ab/v1/chat%2Fcompletions", "/v1/chat/completions", rollout("ab")),
            ("/rollout/ab/v1//feedback", "/v1/feedback", rollout("ab")),
            ("/v1/models/", "/v1/models", None),
            ("/v1//models?limit=1", "/v1/models?limit=1", None),
            ("/v1/Memory/Search", "/v1/memory/Search", None),
            ("/v1//rollouts/R1/", "/v1/rollouts/R1", None),
            ("/v1/memory/a%2Fb/", "/v1/memory/a%2Fb/", None),
            // Other routes are as they came.
            ("/rollout/ab//v1/files", "/rollout/ab//v1/files", None),
            ("/rollout/ab/v1//files", "/v1//files", rollout("ab")),
            ("/v1//files/a%2Fb/", "/v1//files/a%2Fb/", None),
            ("/v1/messages/batches", "/v1/messages/batches", None),
            ("/v1/memorys", "/v1/memorys", None),
            ("/v1/x/../messages", "/v1/x/../messages", None),
            ("/messages", "/messages", None),
        ];
        for (given, path, id) in cases {
            assert_eq!(stripped(given), (path.to_owned(), id), "{given}");
        }
    }
}
