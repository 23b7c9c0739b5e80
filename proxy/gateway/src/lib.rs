//! HTTP in, HTTP out: routes, identity, splice, SSE relay, upstreams.
