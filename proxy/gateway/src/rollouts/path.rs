//! The address of a rollout: `/rollout/ID/v1/..` stands for `/v1/..` in that rollout.

use http::{Request, uri::PathAndQuery};

const PREFIX: &str = "/rollout/";

/// The id in the address that a request was sent to, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RolloutPath(pub(crate) String);

/// Takes a rollout's part of the address away, and puts it beside the request. Any other request is not changed.
pub(crate) fn strip_path<B>(mut request: Request<B>) -> Request<B> {
    let Some((id, route)) = split(request.uri().path()) else {
        return request;
    };
    let route = match request.uri().query() {
        Some(query) => format!("{route}?{query}"),
        None => route.to_owned(),
    };
    let id = RolloutPath(id.to_owned());
    let Ok(route) = route.parse::<PathAndQuery>() else {
        return request;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(route);
    // It was a valid address, and its path is still one.
    if let Ok(uri) = parts.try_into() {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(id);
    }
    request
}

/// Returns the id and the path after it.
fn split(path: &str) -> Option<(&str, &str)> {
    let (id, _) = path.strip_prefix(PREFIX)?.split_once('/')?;
    let route = &path[PREFIX.len() + id.len()..];
    route.starts_with("/v1/").then_some((id, route))
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
        for (given, path, id) in [
            ("/rollout/ab/v1/models?x=1", "/v1/models?x=1", rollout("ab")),
            (
                "http://h:1/rollout/ab/v1/messages",
                "http://h:1/v1/messages",
                rollout("ab"),
            ),
            ("/rollout//v1/messages", "/v1/messages", rollout("")),
            ("/rollout/ab/v1", "/rollout/ab/v1", None),
            ("/rollout/ab/v2/x", "/rollout/ab/v2/x", None),
            ("/rollout/ab", "/rollout/ab", None),
            ("/v1/rollout/ab/v1/x", "/v1/rollout/ab/v1/x", None),
        ] {
            assert_eq!(stripped(given), (path.to_owned(), id), "{given}");
        }
    }
}
