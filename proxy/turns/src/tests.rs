//! Tests of the log through its handle, on real sled in a temporary folder.

mod append;
mod continuing;
mod conversations;
mod copying;
mod cut;
mod damage;
mod forgetting;
mod importing;
mod kill;
mod kit;
mod learning;
mod linear;
mod listing;
mod long;
mod masking;
mod opener;
mod opening;
mod prefix;
mod random;
mod readers;
mod replies;
mod restoring;
mod rollouts;
mod size;
mod statistics;
mod together;
