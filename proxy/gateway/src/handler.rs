//! The trait of everything that answers requests: the routes, and each of the layers around them.

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower::Service;

use crate::body::Body;

pub(crate) type Answer<E> = BoxFuture<'static, Result<Response<Body>, E>>;

/// A service that answers requests. It is always ready to be called. If the proxy is at its limit of
/// requests, the response says so (503).
pub(crate) trait Handler<B, E>:
    Service<Request<B>, Response = Response<Body>, Error = E, Future = Answer<E>>
    + Clone
    + Send
    + 'static
{
}

impl<B, E, S> Handler<B, E> for S where
    S: Service<Request<B>, Response = Response<Body>, Error = E, Future = Answer<E>>
        + Clone
        + Send
        + 'static
{
}
