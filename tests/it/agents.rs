//! Tests with other agents' real programs: nobody else is taken for their owner, and the owner's wishes are detected.

mod chat_alone;
mod conversations;
mod own_login;
mod review;
mod subagents;
mod wired;
