//! Runs work in the threads with which libtorch computes.
//!
//! A second set of threads would compete with libtorch's for the same cores. libtorch's threads belong to its OpenMP
//! runtime. GCC's interface to that is looked up in the process by name. GCC's runtime has it, and LLVM's and Intel's
//! do too.
#![expect(
    unsafe_code,
    reason = "a function that is found by name has a type that only we know"
)]

use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, OnceLock};

use libloading::os::unix::Library;

type WorkerBody = unsafe extern "C" fn(*mut c_void);
/// Runs a function with its argument in so many threads at once, including the caller's, and waits for all of them.
type Parallel = unsafe extern "C" fn(WorkerBody, *mut c_void, c_uint, c_uint);
type WorkFn<'a> = &'a (dyn Fn() + Sync);

pub(crate) fn is_there() -> bool {
    parallel().is_some()
}

/// Does `work` for all items in so many threads, or only in the caller's. A thread takes the next item when it has finished one.
/// Returns when all have finished.
pub(crate) fn each<T>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
) {
    let items = Mutex::new(items);
    let next = || items.lock().ok().and_then(|mut items| items.next());
    run(threads, &|| {
        while let Some(item) = next() {
            work(item);
        }
    });
}

fn run(threads: usize, work: WorkFn<'_>) {
    let threads = c_uint::try_from(threads).unwrap_or(1);
    match parallel() {
        Some(parallel) if threads > 1 => {
            let work: *const WorkFn<'_> = &raw const work;
            // SAFETY: the function has had this type since GCC 4.9. It passes only the pointer to `body`, and returns
            // when every thread has left it, so the target outlives all uses.
            unsafe { parallel(body, work.cast_mut().cast(), threads, 0) }
        }
        _ => work(),
    }
}

unsafe extern "C" fn body(work: *mut c_void) {
    // SAFETY: `run` passes a pointer to its own variable of this type, which is never changed, and waits for all
    // threads.
    let work: WorkFn<'_> = unsafe { *work.cast_const().cast::<WorkFn<'_>>() };
    work();
}

fn parallel() -> Option<Parallel> {
    static FOUND: OnceLock<Option<Parallel>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let program = Library::this();
        // SAFETY: the symbol belongs to the OpenMP runtime, whose interface is fixed. libtorch is never unloaded.
        let found = unsafe { program.get::<Parallel>(b"GOMP_parallel\0") };
        found.ok().map(|team| *team)
    })
}
