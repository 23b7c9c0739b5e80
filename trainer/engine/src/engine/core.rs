//! The engine's thread.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::adapters::{AdapterCache, ServedAdapter};
use super::schedule::{Ledger, SLICE};
use super::state::{EngineState, Job, Progress};
use super::{Dtype, EngineConfig, ModelInfo};
use crate::adapter::{AdapterError, BaseId};
use crate::cache::KvCache;
use crate::folder;
use crate::generate::{GenerateError, GenerateRequest, Generation, GenerationStream, Parts, Step};
use crate::model::Model;
use crate::prefix::PrefixCache;
use crate::rng::SplitMix64;
use crate::run::Runs;
use crate::sampler::Sampler;
use crate::tokenizer::ChatTokenizer;
use crate::weights::{self, LoadError};

/// Tokens of a reply that memory is set aside for. Longer ones grow beyond it, at the cost of kept
/// caches first; were the whole context set aside, a few replies without `max_tokens` would keep all others waiting.
const EXPECTED_REPLY: usize = 512;

/// What handles send.
pub(super) enum Command {
    /// A reply is wanted.
    Generate(Waiting),
    /// Short, at once.
    Now(Box<dyn FnOnce(&mut EngineState) + Send>),
    /// Long, in turn.
    Job(Box<dyn Job>),
}

/// A request that has no place yet.
pub(super) struct Waiting {
    pub(super) request: GenerateRequest,
    pub(super) reply: oneshot::Sender<Result<GenerationStream, GenerateError>>,
}

/// A reply in the making and the memory that was set aside for it.
struct Live {
    generation: Generation,
    expected: usize,
}

/// Everything the thread owns.
pub(super) struct Core {
    state: EngineState,
    tokenizer: Arc<ChatTokenizer>,
    kv_budget: usize,
    max_streams: usize,
    max_waiting: usize,
    live: VecDeque<Live>,
    waiting: VecDeque<Waiting>,
    jobs: VecDeque<Box<dyn Job>>,
    prefixes: PrefixCache,
    ledger: Ledger,
    seeds: SplitMix64,
}

impl Core {
    /// Loads the model on this thread, which from then on owns it.
    pub(super) fn load(config: &EngineConfig) -> Result<(Self, ModelInfo), LoadError> {
        set_threads(config.threads)?;
        let (dir, name) = locate(config)?;
        let tokenizer = Arc::new(ChatTokenizer::load(&dir)?);
        let dtype = match config.dtype {
            Some(dtype) => dtype,
            None => Dtype::fastest()?,
        };
        let mut model = Model::load(&dir, dtype.kind())?;
        model.family.also_ends_with(tokenizer.end_id());
        let sha = weights::fingerprint(&dir, &model.family)?;
        let family = &model.family;
        let info = ModelInfo {
            name: name.clone(),
            family: family.architecture.name(),
            context: family.context,
            vocab: usize::try_from(family.vocab).unwrap_or(usize::MAX),
            n_params: family.n_params(),
            sha: sha.clone(),
            end_ids: family.eos_ids.clone(),
            dtype,
            dir,
        };
        for kept in ["adapters", "checkpoints"] {
            folder::sweep(&config.checkpoint_dir.join(kept));
        }
        let mut seeds = SplitMix64::new(clock_seed());
        let core = Self {
            state: EngineState {
                model,
                base: BaseId {
                    name,
                    fingerprint: sha,
                },
                checkpoint_dir: config.checkpoint_dir.clone(),
                runs: Runs::new(config.max_runs, seeds.next_u64()),
                adapters: AdapterCache::new(config.max_adapters),
            },
            tokenizer,
            kv_budget: config.kv_budget,
            max_streams: config.max_streams.max(1),
            max_waiting: config.max_waiting,
            live: VecDeque::new(),
            waiting: VecDeque::new(),
            jobs: VecDeque::new(),
            prefixes: PrefixCache::default(),
            ledger: Ledger::default(),
            seeds,
        };
        Ok((core, info))
    }

    pub(super) fn tokenizer(&self) -> Arc<ChatTokenizer> {
        Arc::clone(&self.tokenizer)
    }

    /// Serves until the last handle is dropped.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            if self.is_idle() {
                match commands.recv() {
                    Ok(command) => self.handle(command),
                    Err(_) => return,
                }
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.handle(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.round();
        }
    }

    #[cfg(test)]
    pub(super) fn n_live(&self) -> usize {
        self.live.len()
    }

    #[cfg(test)]
    pub(super) fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn is_idle(&self) -> bool {
        self.live.is_empty() && self.waiting.is_empty() && self.jobs.is_empty()
    }

    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Generate(waiting) if self.waiting.len() >= self.max_waiting => {
                let busy = GenerateError::Busy {
                    waiting: self.waiting.len(),
                };
                let _ = waiting.reply.send(Err(busy));
            }
            Command::Generate(waiting) => self.waiting.push_back(waiting),
            Command::Now(function) => {
                // What it would have answered through is dropped with it: the caller learns of it.
                let _ = guarded("call", || function(&mut self.state));
            }
            Command::Job(job) => self.jobs.push_back(job),
        }
    }

    /// One step of every live reply, and a slice of the job if it is due.
    pub(super) fn round(&mut self) {
        self.admit();
        let begun = Instant::now();
        for _ in 0..self.live.len() {
            self.step_next();
        }
        let both = !self.live.is_empty() && !self.jobs.is_empty();
        if both {
            self.ledger.replies_took(begun.elapsed());
        } else {
            self.ledger.clear();
        }
        if self.live.is_empty() || self.ledger.job_is_due() {
            self.advance_job();
        }
    }

    fn step_next(&mut self) {
        let Some(mut live) = self.live.pop_front() else {
            return;
        };
        let model = &self.state.model;
        let outcome = guarded("generation", || {
            let _guard = tch::no_grad_guard();
            live.generation.step(model)
        });
        match outcome {
            Ok(Ok(Step::More)) => self.live.push_back(live),
            Ok(Ok(Step::Ended)) => self.keep(live.generation),
            Ok(Err(error)) => live.generation.fail(error),
            Err(panic) => live.generation.fail(GenerateError::Panicked(panic)),
        }
    }

    /// Keeps the cache of an ended reply for what may follow it.
    fn keep(&mut self, generation: Generation) {
        let (ids, adapter, cache) = generation.into_prefix();
        self.prefixes.put(key(adapter.as_ref()), ids, cache);
        self.make_room(0);
    }

    fn advance_job(&mut self) {
        let Some(job) = self.jobs.front_mut() else {
            return;
        };
        let begun = Instant::now();
        let state = &mut self.state;
        let progress = guarded("job", || job.advance(state, SLICE));
        self.ledger.job_took(begun.elapsed());
        if progress != Ok(Progress::More) {
            self.jobs.pop_front();
        }
    }

    /// Gives waiting requests their place, first come first served, while there is memory for them.
    fn admit(&mut self) {
        while self.live.len() < self.max_streams {
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            if waiting.reply.is_closed() {
                continue;
            }
            let n_prompt = waiting.request.prompt_ids.len();
            let budget = self.kv_budget;
            let needed = self.bytes_of(n_prompt + 1);
            if needed > budget {
                let _ = waiting.reply.send(Err(GenerateError::Memory {
                    n_prompt,
                    needed,
                    budget,
                }));
                continue;
            }
            let reply = self.room(&waiting.request).min(EXPECTED_REPLY);
            let expected = self.bytes_of(n_prompt + reply).min(budget);
            if !self.make_room(expected) {
                self.waiting.push_front(waiting);
                return;
            }
            self.begin(waiting, expected);
        }
    }

    fn begin(&mut self, waiting: Waiting, expected: usize) {
        let Waiting { request, reply } = waiting;
        let generation = guarded("generation", || {
            let _guard = tch::no_grad_guard();
            self.generation(request)
        });
        let answer = match generation {
            Ok(Ok((generation, stream))) => {
                self.live.push_back(Live {
                    generation,
                    expected,
                });
                Ok(stream)
            }
            Ok(Err(error)) => Err(error),
            Err(panic) => Err(GenerateError::Panicked(panic)),
        };
        // If the caller left, its stream is dropped here and the first step finds that out.
        let _ = reply.send(answer);
    }

    fn generation(
        &mut self,
        request: GenerateRequest,
    ) -> Result<(Generation, GenerationStream), GenerateError> {
        let adapter = request
            .adapter
            .as_deref()
            .map(|name| self.adapter(name))
            .transpose()?;
        let sampler = Sampler::new(request.sampling(self.seeds.next_u64()))?;
        let max_tokens = self.room(&request);
        let EngineState { model, .. } = &self.state;
        let cache = match self
            .prefixes
            .take(key(adapter.as_ref()), &request.prompt_ids)?
        {
            Some(cache) => cache,
            None => KvCache::new(
                &model.family,
                request.prompt_ids.len() + 1,
                model.kind,
                model.device,
            )?,
        };
        // Room for a whole reply, so that a slow reader never blocks the thread.
        let (events, received) = mpsc::channel(max_tokens + 2);
        let adapter_step = adapter.as_ref().map(|adapter| adapter.step);
        let mut end_ids = request.stop_ids;
        if request.stop_at_end {
            end_ids.extend(&model.family.eos_ids);
        }
        let generation = Generation::new(Parts {
            prompt_ids: request.prompt_ids,
            cache,
            adapter,
            sampler,
            decoder: self.tokenizer.stream_decoder(),
            max_tokens,
            stop: request.stop,
            end_ids,
            events,
        });
        Ok((generation, GenerationStream::new(received, adapter_step)))
    }

    fn adapter(&mut self, name: &str) -> Result<Rc<ServedAdapter>, GenerateError> {
        self.state
            .adapter(name)
            .map_err(|error| GenerateError::Adapter {
                name: name.to_owned(),
                missing: matches!(error, AdapterError::Unknown { .. } | AdapterError::Name(_)),
                detail: error.to_string(),
            })
    }

    /// Tokens that a reply may have: what context and memory leave after its prompt.
    fn room(&self, request: &GenerateRequest) -> usize {
        let model = &self.state.model;
        let fitting = self.kv_budget / KvCache::position_bytes(&model.family, model.kind).max(1);
        request.room(model.family.context.min(fitting)).max(1)
    }

    fn bytes_of(&self, positions: usize) -> usize {
        KvCache::bytes_of(&self.state.model.family, positions, self.state.model.kind)
    }

    /// Evicts kept caches until `extra` bytes fit; false when live replies hold too much.
    fn make_room(&mut self, extra: usize) -> bool {
        loop {
            let live = self.live.iter();
            let live: usize = live
                .map(|l| l.expected.max(l.generation.cache_bytes()))
                .sum();
            if live + self.prefixes.bytes() + extra <= self.kv_budget {
                return true;
            }
            if !self.prefixes.evict() {
                return false;
            }
        }
    }
}

fn key(adapter: Option<&Rc<ServedAdapter>>) -> u64 {
    adapter.map_or(0, |adapter| adapter.key)
}

/// The last wall: a panic of libtorch's bindings becomes an error of what it happened in.
fn guarded<T>(what: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic_text(panic.as_ref());
        tracing::error!(what, message, "panicked on the engine thread");
        message
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".into())
}

/// A thread's first libtorch call resets its count to the last global value: ask first, then set.
fn set_threads(threads: usize) -> Result<(), LoadError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads };
    let count = i32::try_from(threads)
        .ok()
        .filter(|&n| n <= 1024)
        .ok_or_else(|| LoadError::Setting {
            field: "threads",
            value: threads.to_string(),
            allowed: "0 (one a core) to 1024",
        })?;
    let _before = tch::get_num_threads();
    tch::set_num_threads(count);
    Ok(())
}

/// The model's folder and what to call it.
fn locate(config: &EngineConfig) -> Result<(PathBuf, String), LoadError> {
    let path = &config.model;
    let missing = || LoadError::NoModel { path: path.clone() };
    if path.is_dir() {
        let name = path
            .canonicalize()
            .ok()
            .and_then(|p| Some(p.file_name()?.to_owned()));
        return Ok((path.clone(), text_of(&name.ok_or_else(missing)?)));
    }
    if !path.is_file()
        || path
            .extension()
            .is_none_or(|e| !e.eq_ignore_ascii_case("gguf"))
    {
        return Err(missing());
    }
    let dir = weights::gguf::directory(path, &config.cache_dir)?;
    Ok((dir, text_of(path.file_stem().ok_or_else(missing)?)))
}

fn text_of(name: impl AsRef<Path>) -> String {
    name.as_ref().display().to_string()
}

fn clock_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos()) ^ u64::from(std::process::id())
}
