//! The page at `/ui` on the control listener: what was said, judged, learned and spent, with the buttons that decide.
//!
//! Each request is answered with complete HTML, made from the replies of the operations of `metaclaw-control`, which
//! are carried out in this process. Every asset is part of the program. Forms work without script; the script only
//! fetches the page again when something has changed, and puts in what is new.
//!
//! | module | task |
//! |---|---|
//! | `routes` | the addresses |
//! | `access` | who is admitted, and the headers of every reply |
//! | `state` | what handlers share: operations, logins, long tasks |
//! | `layout` | the frame around each view |
//! | `elements` | pieces that several views use |
//! | `markdown` | draws replies |
//! | `plot` | draws curves as SVG |
//! | `views` | one module for each view |
//! | `actions` | what forms do |
//! | `query` | the query of an address |
//! | `live` | the stream that tells a browser that something changed |
//! | `coverage` | for each operation: where it is on the page, or why it is not |

mod access;
mod actions;
mod assets;
#[cfg(test)]
mod coverage;
mod elements;
mod failure;
mod layout;
mod live;
mod markdown;
mod plot;
mod query;
mod routes;
mod state;
#[cfg(test)]
mod tests;
mod view_query;
mod views;

pub use self::{routes::router, state::PageState};
