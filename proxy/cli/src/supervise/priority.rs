//! The trainer's priority: lower than that of everything else that its owner runs, but not much lower.
//!
//! The process that trains also generates the replies, on the same thread, and an ordinary process cannot raise its
//! priority again, so training cannot have a priority of its own, and a lower one also slows the chat. Measured with
//! SmolLM2-135M on two cores, streaming beside one busy process of nice 0: 14 to 16 tokens a second with pauses up to
//! 0.2 s at nice 0, 8 to 12 with 0.6 to 0.8 s at nice 5, 3.5 to 4.5 with over 2 s at nice 10. So the value is 5. Within
//! the process, the engine makes sure that a stream does not wait for training. Linux derives the priority of reads and
//! writes from nice if it is not set separately, so `ionice` would only delay a chat that reads its weights.

use rustix::process::{Pid, setpriority_process};
use tracing::debug;

const NICE: i32 = 5;

/// Lowers the priority of a process that was just started; threads that it starts later inherit it.
pub(super) fn lower(pid: Option<u32>) {
    let pid = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    // A process that has ended already needs no change.
    let Some(pid) = pid else { return };
    if let Err(error) = setpriority_process(Some(pid), NICE) {
        debug!(%error, "the trainer runs at the usual priority");
    }
}
