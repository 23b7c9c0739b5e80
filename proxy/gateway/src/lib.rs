//! HTTP in, HTTP out: routes, identity, splice, SSE relay, upstreams.

mod scan;
mod splice;
