//! Lets the engine's process find libtorch at run time, and the launcher say where it looked.
//!
//! torch-sys links libtorch and emits no rpath. Four folders are added, in this order:
//!
//! 1. `lib-cuda` beside the program: a libtorch with CUDA, where one was installed;
//! 2. `lib` beside the program: what a release archive brings;
//! 3. the link in the checkout, relative to `target/<profile>/`, so that a moved checkout works;
//! 4. the folder that the link led to when this was built, so that a moved binary works.
//!
//! With the feature `portable` only the first two: the others are of the machine that built it.

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/lib-cuda");
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/lib");
    if std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        return;
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../.libtorch/lib");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        let lib = std::fs::canonicalize(&lib).map_or(lib, |path| path.display().to_string());
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
        println!("cargo:rustc-env=METACLAW_LIBTORCH_LIB={lib}");
    }
}
