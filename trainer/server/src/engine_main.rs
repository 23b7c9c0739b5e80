//! The training server's process: everything that links libtorch. Started by `metaclaw-trainer`.

use std::process::ExitCode;

fn main() -> ExitCode {
    metaclaw_trainer::main()
}
