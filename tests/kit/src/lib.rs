//! What the tests of all crates share. It depends on none of our crates, so each of them can depend on it.
//!
//! Its functions panic where a premise of a test is broken, so that no test has to unwrap.

pub mod chat;
mod home;
mod reply;
mod request;
mod server;
pub mod training;
mod wait;

pub use self::{
    home::{Home, Running, exchange, post},
    reply::Reply,
    request::Request,
    server::{Server, gone},
    wait::{SOON, has, until, until_within},
};
