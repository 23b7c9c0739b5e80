//! Other agents' real programs: nobody is mistaken for their owner, and their owner is heard.

mod chat_alone;
mod conversations;
mod review;
mod subagents;
