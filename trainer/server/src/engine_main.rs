//! The training server's process, which contains everything that links libtorch. `metaclaw-trainer` starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    metaclaw_trainer::main()
}
