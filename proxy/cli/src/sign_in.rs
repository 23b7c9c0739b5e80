//! Sign-ins in a browser that end on a port of this machine (RFC 8252), with a proof that the same program begins and
//! ends one (PKCE, RFC 7636).

pub(crate) mod google;
mod loopback;
pub(crate) mod openrouter;

pub(crate) use self::loopback::{Pkce, Redirect, answered};
