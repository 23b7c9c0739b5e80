//! One module for each view.

pub(crate) mod agents;
pub(crate) mod compare;
pub(crate) mod cost;
pub(crate) mod curves;
pub(crate) mod health;
pub(crate) mod lessons;
pub(crate) mod privacy;
pub(crate) mod sessions;
pub(crate) mod skill;
pub(crate) mod talk;
pub(crate) mod today;
pub(crate) mod training;
pub(crate) mod turn;
