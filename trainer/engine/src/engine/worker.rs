//! A handle on the engine's thread. It sends commands, and it waits for the thread to end.
//!
//! All tensors must be gone before the process exits. CUDA's driver is shut down by an exit handler, and after that the
//! destructor of a tensor on a GPU fails and kills the process (SIGABRT or SIGSEGV). Therefore dropping the last handle
//! blocks until the engine's thread has dropped its tensors and ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::core::Command;

pub(super) const QUEUE: usize = 256;

#[derive(Debug)]
pub(super) struct EngineThread {
    commands: SyncSender<Command>,
    is_ending: Arc<AtomicBool>,
    /// `None` once it was joined.
    thread: Mutex<Option<JoinHandle<()>>>,
}

// === impl EngineThread ===

impl EngineThread {
    /// Starts the thread. `work` must return soon after its flag is set.
    pub(super) fn spawn(
        work: impl FnOnce(&Receiver<Command>, &AtomicBool) + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, received) = sync_channel(QUEUE);
        let is_ending = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_ending);
        let thread = thread::Builder::new().name("engine".into());
        let thread = thread.spawn(move || work(&received, &flag))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self {
            commands,
            is_ending,
            thread,
        })
    }

    pub(super) fn send(&self, command: Command) -> Result<(), TrySendError<()>> {
        self.commands
            .try_send(command)
            .map_err(|error| match error {
                TrySendError::Full(_) => TrySendError::Full(()),
                TrySendError::Disconnected(_) => TrySendError::Disconnected(()),
            })
    }

    /// Tells the thread to end after its present slice of work, and waits until it has ended and its tensors are gone.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        // An idle thread waits for a command, so it gets one. If the queue is full, the thread is not idle.
        let _ = self.send(Command::Now(Box::new(|_| {})));
        // A second caller waits here for the first.
        let mut thread = self.thread.lock();
        let joined = thread.take_if(|thread| thread.thread().id() != thread::current().id());
        if joined.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the engine's thread has panicked; its message is above");
        }
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.end();
    }
}
