//! The engine's thread.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::adapters::AdapterPool;
use super::config::{EngineConfig, EngineInfo};
use super::memory;
use super::number_format;
use super::serving::{LiveReplies, Waiting};
use super::state::{EngineState, JobProgress, SlicedJob};
use super::threads::set_threads;
use super::time_share::{SLICE, TimeShare};
use crate::adapter::{BaseId, BaseSpec};
use crate::guard::guarded;
use crate::kv::PAGE;
use crate::lora::LoraSpec;
use crate::model::Model;
use crate::model_config::ModelConfig;
use crate::rng::SplitMix64;
use crate::runs::Runs;
use crate::train::{Plan, SliceSizes};
use crate::weights::{self, LoadError};
use metaclaw_trainer_text::tokenizer::ChatTokenizer;

pub(super) enum Command {
    /// A request for a reply.
    Generate(Waiting),
    Now(Box<dyn FnOnce(&mut EngineState) + Send>),
    Job(Box<dyn SlicedJob>),
}

pub(super) struct Core {
    state: EngineState,
    tokenizer: Arc<ChatTokenizer>,
    serving: LiveReplies,
    jobs: VecDeque<Box<dyn SlicedJob>>,
    share: TimeShare,
}

impl Core {
    pub(super) fn load(config: &EngineConfig) -> Result<(Self, EngineInfo), LoadError> {
        set_threads(config.threads)?;
        config.check()?;
        let (dir, name) = locate(config)?;
        let name = config.name.clone().unwrap_or(name);
        let tokenizer = Arc::new(ChatTokenizer::load(&dir)?);
        let sha = weights::fingerprint(&dir, &ModelConfig::read(&dir)?)?;
        let dtype = match config.dtype {
            Some(dtype) => dtype,
            None => number_format::choose(&config.checkpoint_dir, &sha, &config.training)?,
        };
        let load = |devices| -> Result<Model, LoadError> {
            let mut model = Model::load_as(&dir, dtype.kind(), devices, config.quantization)?;
            model.config.also_ends_with(tokenizer.end_id());
            Ok(model)
        };
        let model = load(&config.training)?;
        // Separate serving devices have a second copy of the base, so replies continue while the first copy trains.
        let serving = (config.inference != config.training)
            .then(|| load(&config.inference))
            .transpose()?;
        let served = serving.as_ref().unwrap_or(&model);
        let pool = memory::kv_pool(config, served)?;
        let for_training = memory::for_training(config, &model, &pool);
        let sizes = SliceSizes::of_model(&model, for_training)?;
        let plan = Plan::new(&model, &LoraSpec::default(), sizes, pool.bytes());
        tracing::info!(chunk_tokens = sizes.chunk_tokens, "memory: {plan}");
        let model_config = &model.config;
        let info = EngineInfo {
            name: name.clone(),
            family: model_config.architecture.name(),
            context: model_config.context,
            vocab: usize::try_from(model_config.vocab).unwrap_or(usize::MAX),
            n_params: weights::n_params(model_config),
            sha: sha.clone(),
            end_ids: model_config.eos_ids.clone(),
            dtype,
            training: config.training.clone(),
            inference: config.inference.clone(),
            kv_positions: pool.n_pages() * PAGE,
            dir,
        };
        let device = served.placement.first();
        let mut seeds = SplitMix64::new(clock_seed());
        let fingerprint = sha;
        let base = Arc::new(BaseSpec::new(BaseId { name, fingerprint }, model_config));
        let (folder, budget) = (config.checkpoint_dir.clone(), config.adapter_budget);
        let placement = served.placement.clone();
        let adapters = AdapterPool::new(folder, Arc::clone(&base), placement, budget);
        let runs = Runs::new(config.run_limit, seeds.next_u64());
        let core = Self {
            state: EngineState {
                model,
                serving,
                base,
                runs,
                sizes,
                adapters,
                served: Vec::new(),
            },
            tokenizer,
            serving: LiveReplies::new(config, device, pool, seeds),
            jobs: VecDeque::new(),
            share: TimeShare::default(),
        };
        Ok((core, info))
    }

    pub(super) fn tokenizer(&self) -> Arc<ChatTokenizer> {
        Arc::clone(&self.tokenizer)
    }

    pub(super) fn state(&self) -> &EngineState {
        &self.state
    }

    /// Serves until `is_ending`, whatever there is to do then.
    pub(super) fn run(mut self, commands: &Receiver<Command>, is_ending: &AtomicBool) {
        while !is_ending.load(Ordering::Acquire) {
            let next = if self.is_idle() {
                commands.recv().map_err(TryRecvError::from)
            } else {
                commands.try_recv()
            };
            match next {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => self.round(),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    #[cfg(test)]
    pub(super) fn serving(&self) -> &LiveReplies {
        &self.serving
    }

    #[cfg(test)]
    pub(super) fn serving_mut(&mut self) -> &mut LiveReplies {
        &mut self.serving
    }

    #[cfg(test)]
    pub(super) fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn is_idle(&self) -> bool {
        self.serving.is_idle() && self.jobs.is_empty()
    }

    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Generate(waiting) => self.serving.enqueue(waiting),
            Command::Now(function) => {
                // A panic drops the call's answer channel, so the caller notices.
                let _ = guarded("call", || function(&mut self.state));
            }
            Command::Job(job) => self.jobs.push_back(job),
        }
    }

    pub(super) fn round(&mut self) {
        let begun = Instant::now();
        self.serving.round(&mut self.state, &self.tokenizer);
        let has_live = self.serving.has_live();
        if has_live && !self.jobs.is_empty() {
            self.share.replies_took(begun.elapsed());
        } else {
            self.share.clear();
        }
        if !has_live || self.share.job_is_due() {
            self.advance_job();
        }
    }

    fn advance_job(&mut self) {
        let Some(job) = self.jobs.front_mut() else {
            return;
        };
        let begun = Instant::now();
        let state = &mut self.state;
        let progress = guarded("job", || job.advance(state, SLICE));
        self.share.job_took(begun.elapsed());
        if progress != Ok(JobProgress::More) {
            self.jobs.pop_front();
        }
    }
}

fn locate(config: &EngineConfig) -> Result<(PathBuf, String), LoadError> {
    let path = &config.model;
    let missing = || LoadError::NoModel { path: path.clone() };
    if path.is_dir() {
        let whole = path.canonicalize().ok();
        let name = whole.and_then(|path| Some(path.file_name()?.to_owned()));
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
