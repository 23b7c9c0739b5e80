//! Lets the engine's process find libtorch at run time, and the launcher name the places that were searched.
//!
//! torch-sys links libtorch and emits no rpath. Four folders are added, in this order:
//!
//! 1. `lib-cuda` next to the program: a libtorch with CUDA, if one was installed;
//! 2. `lib` next to the program: the libtorch of a release archive;
//! 3. the link in the checkout, relative to `target/<profile>/`, so that a moved checkout works;
//! 4. the target of that link when this was built, so that a moved binary works.
//!
//! With the feature `portable`, only the first two are added, because the others belong to the build machine.

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
