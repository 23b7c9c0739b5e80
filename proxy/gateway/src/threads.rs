//! Threads that serve connections, each with a runtime of its own.
//!
//! All that one request needs happens on one thread: its connection, the upstream's and its way to the
//! log. Nothing is handed to another thread that would have to be woken for it, and what is read is sent
//! on from the same core's memory. A thread that is busy is no worse than with any other server of this
//! kind: connections are dealt out in turn.

use std::{cell::Cell, io, sync::mpsc, thread};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

thread_local! {
    /// Which of the threads this is.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The threads; none, where all is served by the caller's own runtime.
#[derive(Debug)]
pub struct Threads {
    each: Vec<Thread>,
    ending: CancellationToken,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    running: thread::JoinHandle<()>,
}

/// One thing for each of the threads, that they need not share.
#[derive(Debug)]
pub(crate) struct PerThread<T> {
    first: T,
    others: Vec<T>,
}

// === impl Threads ===

impl Threads {
    /// None: the caller's runtime serves.
    pub fn none() -> Self {
        Self {
            each: Vec::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Starts so many. They end with the gateway that they are given to.
    ///
    /// # Errors
    /// The system has no more threads or files.
    pub fn start(n_threads: usize) -> io::Result<Self> {
        let mut threads = Self::none();
        for number in 0..n_threads {
            let thread = Thread::start(number, threads.ending.clone())?;
            threads.each.push(thread);
        }
        Ok(threads)
    }

    /// How many things are needed for each to have one.
    pub(crate) fn n_each(&self) -> usize {
        self.each.len().max(1)
    }

    /// Their runtimes, in order; the caller's where there are none.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        if self.each.is_empty() {
            return vec![Handle::current()];
        }
        let each = self.each.iter();
        each.map(|thread| thread.runtime.clone()).collect()
    }

    /// Ends them, with whatever still runs there.
    pub(crate) async fn end(mut self) {
        self.ending.cancel();
        let each = std::mem::take(&mut self.each);
        let joined = tokio::task::spawn_blocking(move || {
            for thread in each {
                // One that broke has ended as well.
                let _ = thread.running.join();
            }
        });
        // As above.
        let _ = joined.await;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

// === impl Thread ===

impl Thread {
    fn start(number: usize, ending: CancellationToken) -> io::Result<Self> {
        let (give, given) = mpsc::channel();
        // The runtime is the thread's from the beginning: another runtime's task, as we may be, must not
        // drop one, should there be no thread for it.
        let serve = move || {
            NUMBER.set(number);
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(give.send(Err(error))),
            };
            if give.send(Ok(runtime.handle().clone())).is_ok() {
                runtime.block_on(ending.cancelled());
            }
            // What still blocks, as a look-up of a name, is not waited for.
            runtime.shutdown_background();
        };
        let named = thread::Builder::new().name(format!("relay-{number}"));
        let running = named.spawn(serve)?;
        let runtime = given.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, running })
    }
}

// === impl PerThread ===

impl<T> PerThread<T> {
    /// One for each of `n` threads; at least one.
    pub(crate) fn new(n: usize, mut make: impl FnMut() -> T) -> Self {
        Self {
            first: make(),
            others: (1..n).map(|_| make()).collect(),
        }
    }

    /// This thread's; the first one's for threads that are none of these.
    pub(crate) fn get(&self) -> &T {
        let number = NUMBER.get().checked_sub(1);
        number
            .and_then(|number| self.others.get(number))
            .unwrap_or(&self.first)
    }
}
