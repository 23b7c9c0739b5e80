//! Lets the engine's process find libtorch at run time, and the launcher say where it looked.
//!
//! torch-sys links libtorch and emits no rpath. Two are added: the link in the checkout, relative to
//! `target/<profile>/`, so that a moved checkout works; and the folder that the link led to when this was
//! built, so that a moved binary works.

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../.libtorch/lib");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        let lib = std::fs::canonicalize(&lib).map_or(lib, |path| path.display().to_string());
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
        println!("cargo:rustc-env=METACLAW_LIBTORCH_LIB={lib}");
    }
}
