//! Lets this package's tests and examples find libtorch at run time.
//!
//! torch-sys links libtorch and emits no rpath; its `libtorch_lib` reaches the build scripts of
//! direct dependants alone, and `rustc-link-arg` the targets of one package alone. So every package
//! that makes a binary with libtorch in it needs this script and torch-sys as a direct dependency.

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // From target/<profile>/{deps,examples}/ to the link in the checkout, which may be moved.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../../.libtorch/lib");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
