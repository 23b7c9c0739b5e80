//! The training server's launcher, which prepares the environment before the engine's program is loaded.
//!
//! OpenMP reads its environment when it is loaded, and a missing library ends a process before its `main`. So the
//! engine is a separate program, and the launcher replaces itself with it: same process, same pipes, same arguments.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The variables that libraries read when they are loaded.
///
/// Threads that wait actively slow each other down tenfold if other programs use the cores too; threads that sleep at
/// each of the 10,000 barriers a second make a reply take half as long again. So they wait actively for a moment, then
/// sleep: 64 tokens of one reply and of eight at once (two cores, f32) take 2.4 and 7.4 s instead of 3.4 and 10.1, and
/// 4.0 and 13.6 instead of 3.6 and 11.7 while another program uses one of the cores.
///
/// glibc's allocator returns every large buffer of a step to the kernel and takes a new one, whose pages the kernel
/// clears; keeping buffers up to 256 MiB saves 10 to 15 % of a step's processor time, and 7 % of a token's. Each thread
/// would have a heap of its own, which keeps as much: adapters are read and written on whatever thread is free.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("OMP_WAIT_POLICY", "passive"),
    ("GOMP_SPINCOUNT", "1000"),
    ("MALLOC_TRIM_THRESHOLD_", "268435456"),
    ("MALLOC_MMAP_THRESHOLD_", "67108864"),
    ("MALLOC_TOP_PAD_", "67108864"),
    ("MALLOC_ARENA_MAX", "1"),
];
const ENGINE: &str = "metaclaw-trainer-engine";
const LIBTORCH: &str = "libtorch_cpu.so";
/// The link in the checkout, relative to the build; `None` in a program for distribution.
const IN_CHECKOUT: Option<&str> = if cfg!(feature = "portable") {
    None
} else {
    Some("../../.libtorch/lib")
};
const BUILT_WITH: Option<&str> = option_env!("METACLAW_LIBTORCH_LIB");
const SYSTEM: [&str; 4] = [
    "/usr/local/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu",
];

fn main() -> ExitCode {
    let message = start();
    // Nothing more can be done if this fails.
    let _ = writeln!(io::stderr(), "metaclaw-trainer: {message}");
    ExitCode::FAILURE
}

/// Becomes the engine; returns only an error.
fn start() -> String {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return format!("where this program is cannot be found out: {error}"),
    };
    let folder = own.parent().unwrap_or_else(|| Path::new("/"));
    let engine = folder.join(ENGINE);
    if !engine.is_file() {
        return format!(
            "{ENGINE} is not beside {}: a release archive has both, `cargo build -p metaclaw-trainer` makes both",
            own.display()
        );
    }
    let places = library_folders(folder, std::env::var_os("LD_LIBRARY_PATH"));
    if !places.iter().any(|place| place.join(LIBTORCH).is_file()) {
        let shown = places.iter().map(|place| place.display().to_string());
        let places: Vec<String> = shown.collect();
        return format!(
            "{LIBTORCH} is in none of {}: `metaclaw trainer install` brings it (in a checkout, `cargo xtask setup`), or set LD_LIBRARY_PATH to the lib folder of libtorch 2.11",
            places.join(", ")
        );
    }
    let mut command = Command::new(&engine);
    command.args(std::env::args_os().skip(1));
    let unset = |(name, _): &(&str, &str)| std::env::var_os(name).is_none();
    command.envs(ENVIRONMENT.into_iter().filter(unset));
    format!("{} cannot be started: {}", engine.display(), command.exec())
}

fn library_folders(folder: &Path, by_hand: Option<OsString>) -> Vec<PathBuf> {
    let by_hand = by_hand.unwrap_or_default();
    std::env::split_paths(&by_hand)
        .filter(|place| !place.as_os_str().is_empty())
        .chain(["lib-cuda", "lib"].map(|name| folder.join(name)))
        .chain(IN_CHECKOUT.map(|link| folder.join(link)))
        .chain(BUILT_WITH.map(PathBuf::from))
        .chain(SYSTEM.map(PathBuf::from))
        .collect()
}
