//! Names and messages that every room of MetaClaw shares; no IO.
