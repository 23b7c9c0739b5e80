//! Whether there is a GPU that libtorch can use.
//!
//! libtorch's part for CUDA registers its kernels when it is loaded, and nothing in a program names a symbol of it; so it
//! is opened here, as Python's `import torch` does, instead of being linked. What the loader says of a library that
//! is missing beside it becomes words instead of a process that does not start.
#![expect(
    unsafe_code,
    reason = "loading a library runs its constructors, and its functions have types that only we know"
)]

use std::error::Error as _;
use std::ffi::c_int;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const LIBRARY: &str = "libtorch_cuda.so";
const MENDS: &str = "`metaclaw trainer install --cuda` (in a checkout, `cargo xtask setup --cuda`) fetches a libtorch with CUDA; or say cpu";

/// libtorch's support for GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cuda {
    /// libtorch can compute on GPUs.
    Ready {
        /// How many it sees; at least one.
        n_gpus: usize,
    },
    /// libtorch supports CUDA but sees no GPU.
    NoGpu,
    /// libtorch is built for CPUs only.
    Absent,
    /// libtorch's CUDA library is there but cannot be loaded.
    Broken {
        /// The loader's message.
        detail: String,
    },
}

/// libtorch's support for GPUs. The answer is computed once.
pub fn cuda() -> &'static Cuda {
    static FOUND: OnceLock<Cuda> = OnceLock::new();
    FOUND.get_or_init(|| match load() {
        Ok(()) if tch::Cuda::is_available() => {
            let n_gpus = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
            Cuda::Ready { n_gpus }
        }
        Ok(()) => Cuda::NoGpu,
        Err(detail) if is_absent(&detail) => Cuda::Absent,
        Err(detail) => Cuda::Broken { detail },
    })
}

/// Loads the library for the rest of the process.
fn load() -> Result<(), String> {
    // SAFETY: the constructors of libtorch's own library register kernels and touch nothing of ours; it is of the release
    // that this program is linked against, since it is looked for beside it, and it is never unloaded.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) };
    library.map(std::mem::forget).map_err(|error| {
        // The loader's message is the error's cause; the error itself only says which call failed.
        let cause = error.source().map(ToString::to_string);
        cause.unwrap_or_else(|| error.to_string())
    })
}

/// Whether the loader did not find the library itself, rather than one that it needs.
fn is_absent(detail: &str) -> bool {
    detail.starts_with(LIBRARY) && detail.contains("No such file")
}

/// The reason why no GPU is used although one can be expected: the machine has one that libtorch cannot use, or
/// libtorch is built with CUDA. `None` otherwise.
pub fn unused_gpus() -> Option<String> {
    let found = cuda();
    is_expected(found, gpus_seen()).then(|| found.to_string())
}

fn is_expected(found: &Cuda, n_seen: usize) -> bool {
    match found {
        Cuda::Ready { .. } => false,
        Cuda::NoGpu | Cuda::Broken { .. } => true,
        Cuda::Absent => n_seen > 0,
    }
}

fn gpus_seen() -> usize {
    seen_below(Path::new("/"))
}

fn seen_below(root: &Path) -> usize {
    let count = |folder: &str, is_gpu: fn(&str) -> bool| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| is_gpu(name)).count()
    };
    let device = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    // The driver lists GPUs in the one place; a container may have the devices alone.
    count("proc/driver/nvidia/gpus", |_| true).max(count("dev", device))
}

impl fmt::Display for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = match gpus_seen() {
            0 => "this machine shows no NVIDIA GPU".to_owned(),
            1 => "this machine has an NVIDIA GPU".to_owned(),
            n => format!("this machine has {n} NVIDIA GPUs"),
        };
        match self {
            Self::Ready { n_gpus } => write!(f, "libtorch computes on {n_gpus} GPUs"),
            Self::NoGpu => write!(
                f,
                "libtorch has CUDA and sees no GPU ({seen}): see what nvidia-smi says, and CUDA_VISIBLE_DEVICES; or say cpu"
            ),
            Self::Absent => write!(f, "this libtorch is one for CPUs, and {seen}: {MENDS}"),
            Self::Broken { detail } => write!(
                f,
                "libtorch's part for CUDA cannot be loaded ({detail}), and {seen}: {MENDS}"
            ),
        }
    }
}

/// Free and total bytes of a GPU by CUDA's runtime; `None` without a runtime.
pub(super) fn memory(gpu: usize) -> Option<(usize, usize)> {
    type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
    type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
    type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
    if !matches!(cuda(), Cuda::Ready { .. }) {
        return None;
    }
    let program = Library::this();
    let wanted = c_int::try_from(gpu).ok()?;
    let (mut before, mut free, mut all) = (0, 0, 0);
    // SAFETY: the functions have these types in every release of CUDA's runtime, which libtorch has loaded; they write
    // the numbers that they are given and keep no pointer.
    let is_known = unsafe {
        let get = program.get::<GetDevice>(b"cudaGetDevice\0").ok()?;
        let set = program.get::<SetDevice>(b"cudaSetDevice\0").ok()?;
        let info = program.get::<MemGetInfo>(b"cudaMemGetInfo\0").ok()?;
        let was = get(&raw mut before);
        let known = set(wanted) == 0 && info(&raw mut free, &raw mut all) == 0;
        // This thread's device is as it was.
        was == 0 && set(before) == 0 && known
    };
    is_known.then_some((free, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_where_the_driver_shows_them() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(seen_below(root.path()), 0);
        let dev = root.path().join("dev");
        fs::create_dir_all(&dev).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(dev.join(name), "").unwrap();
        }
        assert_eq!(seen_below(root.path()), 2);
        let driver = root.path().join("proc/driver/nvidia/gpus/0000:01:00.0");
        fs::create_dir_all(driver).unwrap();
        assert_eq!(seen_below(root.path()), 2);
    }

    #[test]
    fn a_word_is_said_where_a_gpu_is_expected_and_none_is_used() {
        let broken = || Cuda::Broken {
            detail: "libcublas.so.13: cannot open".to_owned(),
        };
        for (found, n_seen, said) in [
            (Cuda::Absent, 0, false),
            (Cuda::Absent, 1, true),
            (Cuda::NoGpu, 0, true),
            (broken(), 0, true),
            (Cuda::Ready { n_gpus: 1 }, 1, false),
        ] {
            assert_eq!(is_expected(&found, n_seen), said, "{found:?}, {n_seen}");
        }
    }

    #[test]
    fn the_loader_says_what_is_missing() {
        // Here, or with a libtorch that has CUDA.
        if let Err(detail) = load() {
            assert!(detail.contains(".so"), "{detail}");
            assert_eq!(is_absent(&detail), *cuda() == Cuda::Absent);
        }
    }

    #[test]
    fn a_library_that_is_not_there_is_told_from_one_that_does_not_load() {
        assert!(is_absent(
            "libtorch_cuda.so: cannot open shared object file: No such file or directory"
        ));
        assert!(!is_absent(
            "libcublas.so.13: cannot open shared object file: No such file or directory"
        ));
        let words = Cuda::Absent.to_string();
        assert!(
            words.contains("one for CPUs") && words.contains(MENDS),
            "{words}"
        );
        let detail = "libcublas.so.13: cannot open".to_owned();
        assert!(Cuda::Broken { detail }.to_string().contains("libcublas"));
    }
}
