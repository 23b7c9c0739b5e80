//! Set-up, start, test, bench: cargo xtask.

fn main() {}
