//! HTTP/1.1 on the wire, for a relay: a server's connection and a client's, each inside the task that
//! serves a request.
//!
//! A library for all uses hands bodies from task to task and keeps a buffer for each connection. A relay
//! needs neither. Here the buffer that is read into is taken when there is something to read, and gone
//! with the bytes; what has come at once goes on at once, in one write with its head; and an agent that
//! hangs up is noticed by the task that works for it.
//!
//! What is read is read strictly (RFC 9112): where two readers could take the same bytes for different
//! requests, they are refused. HTTP/2 and TLS are not spoken here.

mod chunked;
mod client;
mod decoder;
mod error;
mod head;
mod output;
mod sending;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use self::{
    client::{Connection, Pool, Reply},
    error::{BoxError, Error, Malformed},
    head::Reason,
    server::{Incoming, Server},
};
