//! Lets the tests and examples of this package find libtorch at run time.
//!
//! torch-sys links libtorch and sets no rpath. Its `libtorch_lib` reaches only the build scripts of direct dependants,
//! and `rustc-link-arg` only the targets of one package. Therefore every package that makes a binary with libtorch
//! needs this script, and torch-sys as a direct dependency.

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The path leads from target/<profile>/{deps,examples}/ to the link in the checkout, which may be moved.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../../.libtorch/lib");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
