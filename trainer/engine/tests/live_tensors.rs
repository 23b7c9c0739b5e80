//! Tests that no tensor outlives an engine: a process that ends with tensors on a GPU ends by a signal.
//!
//! A tensor's memory on a CPU comes from `posix_memalign`, which this program replaces in order to count. Nothing else
//! here uses it, except for scratch memory of libtorch's own threads; so the engine has one thread.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use std::path::Path;
use std::time::Duration;

use metaclaw_engine::adapter;
use metaclaw_engine::engine::{
    Dtype, Engine, EngineConfig, EngineError, EngineState, JobProgress, SlicedJob,
};
use metaclaw_engine::generate::{GenerateEvent, GenerateRequest, GenerationStream};
use metaclaw_engine::lora::LoraSpec;
use metaclaw_engine::loss::Loss;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_engine::testing::write_tiny_model;
use metaclaw_engine::train::TrainJob;
use metaclaw_trainer_terms::{AdapterName, Datum};

use tokio::sync::Mutex;

use self::blocks::n_live;

/// libtorch's memory by address, and the functions of the C library that give and take it.
mod blocks {
    #![expect(
        unsafe_code,
        reason = "functions of the C library are replaced, and what they replaced is called"
    )]

    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const N: usize = 1 << 16;
    /// The places after its own in which an address may stand.
    const WINDOW: usize = 64;
    static BLOCKS: [AtomicUsize; N] = [const { AtomicUsize::new(0) }; N];
    static LIVE: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" {
        fn memalign(align: usize, size: usize) -> *mut c_void;
        fn __libc_free(block: *mut c_void);
    }

    pub(super) fn n_live() -> usize {
        LIVE.load(SeqCst)
    }

    /// Replaces one address by another, where it may stand.
    fn replace(address: usize, from: usize, to: usize) -> bool {
        let places = (0..WINDOW).map(|i| &BLOCKS[(address / 64 + i) % N]);
        let mut places =
            places.filter(|place| place.compare_exchange(from, to, SeqCst, SeqCst).is_ok());
        places.next().is_some()
    }

    // SAFETY: the C library's function of this name does the same.
    #[unsafe(no_mangle)]
    extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
        const OUT_OF_MEMORY: c_int = 12;
        // SAFETY: any arguments are allowed.
        let block = unsafe { memalign(align, size) };
        if block.is_null() {
            return OUT_OF_MEMORY;
        }
        assert!(
            replace(block as usize, 0, block as usize),
            "the table is full"
        );
        LIVE.fetch_add(1, SeqCst);
        // SAFETY: the caller gives a place for the address.
        unsafe { *out = block };
        0
    }

    // SAFETY: the C library's function of this name does the same.
    #[unsafe(no_mangle)]
    extern "C" fn free(block: *mut c_void) {
        if !block.is_null() && replace(block as usize, block as usize, 0) {
            LIVE.fetch_sub(1, SeqCst);
        }
        // SAFETY: the caller gives back what the C library gave.
        unsafe { __libc_free(block) };
    }
}

/// Blocks are counted for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// An endless step: it begins again and again.
struct Endless(Vec<Datum>);

impl SlicedJob for Endless {
    fn advance(&mut self, state: &mut EngineState, _: Duration) -> JobProgress {
        let run = open_run(state);
        let (loss, sizes) = (Loss::CrossEntropy, state.sizes);
        let job = TrainJob::forward_backward(&state.model, run.lora(), &self.0, loss, sizes);
        job.unwrap().finish(&state.model).unwrap();
        JobProgress::More
    }
}

/// A job that ends the engine's thread: its destructor panics where nothing catches it.
struct Deadly;

impl SlicedJob for Deadly {
    fn advance(&mut self, _: &mut EngineState, _: Duration) -> JobProgress {
        JobProgress::Done
    }
}

impl Drop for Deadly {
    fn drop(&mut self) {
        panic!("the engine's thread ends here");
    }
}

fn engine(dir: &Path) -> Engine {
    let model = dir.join("tiny");
    std::fs::create_dir_all(&model).unwrap();
    write_tiny_model(&model, 5).unwrap();
    let mut config = EngineConfig::new(model, dir.join("cache"), dir.join("kept"));
    config.dtype = Some(Dtype::F32);
    config.threads = 1;
    config.kv_budget = Some(1 << 20);
    Engine::start(config).unwrap()
}

fn datums() -> Vec<Datum> {
    let ids: Vec<u32> = (0..25).map(|i| i * 31 % 250).collect();
    let datum = Datum::cross_entropy(ids[..24].to_vec(), ids[1..].to_vec(), vec![1.0; 24]);
    vec![datum.unwrap()]
}

fn open_run(state: &EngineState) -> OpenRun {
    let lora = LoraSpec {
        rank: 4,
        ..LoraSpec::default()
    };
    OpenRun::new(&state.model, &RunConfig { lora, seed: 1 }).unwrap()
}

/// A reply under way, on an adapter that was saved from a run, which stays open.
async fn reply(engine: &Engine, dir: &Path) -> GenerationStream {
    let name: AdapterName = "kept".parse().unwrap();
    let (folder, base, saved) = (dir.join("kept"), engine.base().id.clone(), name.clone());
    let save = move |state: &mut EngineState| {
        let run = open_run(state);
        adapter::save(&folder, &saved, run.lora(), &base, 1).unwrap();
        state.runs.open(run);
    };
    engine.call(save).await.unwrap();
    let request = GenerateRequest {
        prompt_ids: vec![3; 40],
        max_tokens: 100,
        adapter: Some(name),
        ignore_eos: true,
        ..GenerateRequest::default()
    };
    let mut stream = engine.generate(request).await.unwrap();
    let first = stream.recv().await.unwrap().unwrap();
    assert!(matches!(first, GenerateEvent::Token(_)));
    stream
}

/// Lets libtorch make what it keeps after the first use; returns the number of blocks then.
async fn warmed_up(dir: &Path) -> usize {
    let engine = engine(dir);
    drop(reply(&engine, dir).await);
    let step = |state: &mut EngineState| Endless(datums()).advance(state, Duration::ZERO);
    engine.call(step).await.unwrap();
    drop(engine);
    n_live()
}

#[tokio::test]
async fn no_tensor_outlives_a_stopped_engine() {
    let _alone = ALONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let before = warmed_up(dir.path()).await;
    for (is_training, is_stopped) in [(false, true), (true, true), (true, false)] {
        let engine = engine(dir.path());
        let mut stream = reply(&engine, dir.path()).await;
        if is_training {
            engine.submit(Box::new(Endless(datums()))).unwrap();
        }
        assert!(n_live() > before + 10, "{} of {before}", n_live());
        if is_stopped {
            engine.stop();
            assert_eq!(engine.call(|_| ()).await, Err(EngineError::Stopped));
        }
        // Without a stop, the last handle ends the work.
        drop(engine);
        while let Some(Ok(_)) = stream.recv().await {}
        drop(stream);
        assert_eq!(n_live(), before, "{is_training} {is_stopped}");
    }
}

#[tokio::test]
async fn no_tensor_outlives_a_thread_that_panicked() {
    let _alone = ALONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    // The first panic may load what prints its stack.
    let mut after = [0; 3];
    for after in &mut after {
        let engine = engine(dir.path());
        let stream = reply(&engine, dir.path()).await;
        engine.submit(Box::new(Deadly)).unwrap();
        // A call that was queued when the thread ended has failed.
        while engine.call_now(|_| ()).await != Err(EngineError::Stopped) {}
        drop(stream);
        engine.stop();
        *after = n_live();
    }
    assert_eq!(after[1], after[2], "{after:?}");
    assert_eq!(after[0], after[1], "{after:?}");
}
