//! A request's body, whichever HTTP it comes in.

use http_body_util::Either;
use tokio::net::TcpStream;

use super::patient::Patient;

/// A request's body as it comes: in our own HTTP/1.1, or in hyper's HTTP/2.
pub(crate) type Incoming =
    Either<metaclaw_http1::Incoming<Patient<TcpStream>>, hyper::body::Incoming>;
