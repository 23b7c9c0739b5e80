//! The metaclaw command.

fn main() {}
