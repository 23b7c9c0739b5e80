//! Work in the threads that libtorch computes with.
//!
//! A second set of threads would fight with libtorch's for the same cores. Its own belong to the OpenMP runtime that it was
//! built with, and GCC's interface to that is found in the process by name: in GCC's runtime, and in LLVM's and Intel's,
//! which offer it too.
#![expect(
    unsafe_code,
    reason = "a function that is found by name has a type that only we know"
)]

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

type Body = unsafe extern "C" fn(*mut c_void);
/// Runs a body with its argument in so many threads at once, the caller's among them, and waits for all of them.
type Parallel = unsafe extern "C" fn(Body, *mut c_void, c_uint, c_uint);
type Work<'a> = &'a (dyn Fn() + Sync);

/// Whether there are threads to share work with.
pub(crate) fn is_there() -> bool {
    parallel().is_some()
}

/// Runs `work` in as many threads, or in the caller's alone; returns when all of them are through.
pub(crate) fn run(threads: usize, work: Work<'_>) {
    let threads = c_uint::try_from(threads).unwrap_or(1);
    match parallel() {
        Some(parallel) if threads > 1 => {
            let work: *const Work<'_> = &raw const work;
            // SAFETY: the function has this type since GCC 4.9. It calls `body` with the pointer alone, and returns when
            // every thread has left it, so what is pointed to outlives all uses.
            unsafe { parallel(body, work.cast_mut().cast(), threads, 0) }
        }
        _ => work(),
    }
}

unsafe extern "C" fn body(work: *mut c_void) {
    // SAFETY: `run` passes a pointer to its own variable of this type, which nobody changes, and waits for all threads.
    let work: Work<'_> = unsafe { *work.cast_const().cast::<Work<'_>>() };
    work();
}

fn parallel() -> Option<Parallel> {
    static FOUND: OnceLock<Option<Parallel>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let program = Library::this();
        // SAFETY: the symbol is the OpenMP runtime's, whose interface is fixed; libtorch is never unloaded.
        let found = unsafe { program.get::<Parallel>(b"GOMP_parallel\0") };
        found.ok().map(|it| *it)
    })
}
