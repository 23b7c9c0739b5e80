//! What a piece of work calls of libtorch, and the memory that it takes.
#![expect(unsafe_code, reason = "functions of a library in another language")]

use std::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn metaclaw_watch_begin();
    fn metaclaw_watch_end(
        list: *mut c_void,
        calls: extern "C" fn(*mut c_void, *const c_char),
    ) -> i64;
}

/// What was seen on this thread.
pub(crate) struct Watched {
    /// Each call's name and how many calls it is within, in order.
    calls: Vec<(usize, String)>,
    /// The most bytes that were taken at once.
    pub(crate) most_bytes: usize,
}

/// Calls that make another view of numbers, or a place for them, and compute nothing.
const VIEWS: [&str; 16] = [
    "as_strided",
    "chunk",
    "detach",
    "empty",
    "expand",
    "narrow",
    "permute",
    "reshape",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "transpose",
    "unsqueeze",
    "view",
];

pub(crate) fn watched(work: impl FnOnce()) -> Watched {
    extern "C" fn calls(list: *mut c_void, lines: *const c_char) {
        // SAFETY: `list` is the string below, `lines` ends with a zero; both live until the function has returned.
        let (list, lines) = unsafe { (&mut *list.cast::<String>(), CStr::from_ptr(lines)) };
        list.push_str(lines.to_str().unwrap());
    }
    let mut text = String::new();
    // SAFETY: they are called one after the other on one thread, and `text` outlives the second.
    let most = unsafe {
        metaclaw_watch_begin();
        work();
        metaclaw_watch_end((&raw mut text).cast(), calls)
    };
    let call = |line: &str| {
        let (depth, name) = line.split_once(' ').unwrap();
        let name = name.strip_prefix("aten::").unwrap_or(name);
        (depth.parse().unwrap(), name.to_owned())
    };
    Watched {
        calls: text.lines().map(call).collect(),
        most_bytes: usize::try_from(most).unwrap(),
    }
}

impl Watched {
    /// Whether there was a call of this name, within another or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.calls.iter().any(|(_, call)| call == name)
    }

    /// The calls that compute something, without those that they are made of.
    pub(crate) fn computed(&self) -> Vec<&str> {
        let outer = self.calls.iter().filter(|(depth, _)| *depth == 0);
        let names = outer.map(|(_, name)| name.as_str());
        names.filter(|name| !VIEWS.contains(name)).collect()
    }
}
