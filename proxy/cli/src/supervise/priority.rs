//! The trainer's priority: below everything that its owner does on the machine, and no lower.
//!
//! The process that trains also says the replies, on the same thread, and an ordinary process that has lowered itself may
//! not rise again: a priority for training alone cannot be had, and what is given up is given up for the chat as well.
//! Measured with SmolLM2-135M on two cores, streaming beside one busy process of nice 0: 14 to 16 tokens a second and 0.2 s
//! between the slowest at nice 0, 8 to 12 and 0.6 to 0.8 s at nice 5, 3.5 to 4.5 and over 2 s at nice 10. Hence 5. Within the process
//! the engine sees to it that a stream does not wait for training. Linux derives the priority of reads and writes from nice
//! where nobody sets one, so that `ionice` would add nothing but stalls of a chat that reads its weights.

use rustix::process::{Pid, setpriority_process};
use tracing::debug;

const NICE: i32 = 5;

/// Lowers a process that was just started: the threads that it starts from now on inherit it.
pub(super) fn lower(pid: Option<u32>) {
    let pid = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    // One that has ended already needs none.
    let Some(pid) = pid else { return };
    if let Err(error) = setpriority_process(Some(pid), NICE) {
        debug!(%error, "the trainer runs at the usual priority");
    }
}
