//! Replies: who has a place, what runs together, and what becomes of it.

use std::collections::VecDeque;
use std::time::Instant;

use tch::Device;
use tokio::sync::{mpsc, oneshot};

use super::adapters::refusal;
use super::config::EngineConfig;
use super::scheduler::{self, RoundBudget};
use super::state::EngineState;
use super::step::{self, StreamOutcome};
use super::stream::Stream;
use crate::device;
use crate::generate::{
    BegunReply, GenerateError, GenerateRequest, GenerationStream, ReplyEnds, TokenOutcome,
};
use crate::kv::{BlockManager, KvPool, PAGE, PageTable};
use crate::rng::SplitMix64;
use metaclaw_trainer_text::tokenizer::ChatTokenizer;

/// Pages that each live reply can still grow by before another gets a place: fewer, and the new one would soon
/// lose it again.
const HEADROOM: usize = 4;

pub(super) struct Waiting {
    pub(super) request: GenerateRequest,
    pub(super) reply: oneshot::Sender<Result<GenerationStream, GenerateError>>,
}

pub(super) struct LiveReplies {
    pool: KvPool,
    blocks: BlockManager,
    /// The live replies in order of age.
    live: Vec<Stream>,
    /// Replies that lost their place to older ones, in order of age. They hold no page.
    preempted: VecDeque<Stream>,
    waiting: VecDeque<Waiting>,
    budget: RoundBudget,
    max_streams: usize,
    max_waiting: usize,
    n_admitted: u64,
    seeds: SplitMix64,
}

impl LiveReplies {
    pub(super) fn new(
        config: &EngineConfig,
        device: Device,
        pool: KvPool,
        seeds: SplitMix64,
    ) -> Self {
        Self {
            blocks: BlockManager::new(pool.n_pages()).with_states(pool.n_states()),
            pool,
            live: Vec::new(),
            preempted: VecDeque::new(),
            waiting: VecDeque::new(),
            budget: RoundBudget::new(device),
            max_streams: config.max_streams.max(1),
            max_waiting: config.max_waiting,
            n_admitted: 0,
            seeds,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.has_live() && self.waiting.is_empty()
    }

    pub(super) fn has_live(&self) -> bool {
        !self.live.is_empty() || !self.preempted.is_empty()
    }

    pub(super) fn enqueue(&mut self, waiting: Waiting) {
        if self.waiting.len() >= self.max_waiting {
            let busy = GenerateError::Busy {
                waiting: self.waiting.len(),
            };
            // A send fails only if the caller has left, here and below.
            let _ = waiting.reply.send(Err(busy));
            return;
        }
        self.waiting.push_back(waiting);
    }

    pub(super) fn round(&mut self, state: &mut EngineState, tokenizer: &ChatTokenizer) {
        self.drop_cancelled();
        self.resume();
        self.admit(state, tokenizer);
        for stream in self.live.iter_mut().filter(|s| s.n_pending() > 1) {
            stream.adopt(&mut self.blocks);
        }
        let pending: Vec<usize> = self.live.iter().map(Stream::n_pending).collect();
        let mut rows = scheduler::plan(&pending, &self.budget);
        self.reserve(&mut rows);
        let mut chosen: Vec<(usize, usize)> = rows.into_iter().enumerate().collect();
        chosen.retain(|&(_, n)| n > 0);
        if chosen.is_empty() {
            return;
        }
        // Rows of one adapter are put together.
        chosen.sort_by_key(|&(i, _)| (self.live[i].key(), i));
        let begun = Instant::now();
        let outcomes = step::run(state.served(), &mut self.pool, &self.live, &chosen);
        state.served().placement.wait();
        let n_rows = chosen.iter().map(|&(_, n)| n).sum();
        self.budget.took(n_rows, begun.elapsed());
        let lacks_memory = |outcome: &Result<StreamOutcome, GenerateError>| {
            let error = outcome.as_ref().err();
            error.is_some_and(device::is_out_of_memory)
        };
        let is_smaller = outcomes.iter().any(lacks_memory) && self.budget.shrink();
        let pairs = chosen.into_iter().zip(outcomes);
        // Prompts that lacked memory continue with fewer rows. A single row cannot shrink.
        let done = pairs.filter(|((_, n), it)| !(is_smaller && *n > 1 && lacks_memory(it)));
        let (chosen, outcomes): (Vec<_>, Vec<_>) = done.unzip();
        self.apply(&chosen, outcomes);
    }

    fn drop_cancelled(&mut self) {
        self.preempted.retain(|stream| !stream.reply.is_cancelled());
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        let left = self
            .live
            .extract_if(.., |stream| stream.reply.is_cancelled());
        for stream in left {
            self.blocks.release(stream.table);
        }
    }

    /// Gives replies that lost their place a new one, the oldest first, before anybody new.
    fn resume(&mut self) {
        while self.live.len() < self.max_streams
            && let Some(mut stream) = self.preempted.pop_front()
        {
            stream.begin_again(&mut self.blocks);
            if !self.has_room(&stream.table, stream.reply.ids().len()) {
                self.blocks.release(std::mem::take(&mut stream.table));
                self.preempted.push_front(stream);
                return;
            }
            let at = self.live.partition_point(|other| other.age < stream.age);
            self.live.insert(at, stream);
        }
    }

    /// Gives waiting requests their place, first come first served, while there is room for their prompts.
    fn admit(&mut self, state: &mut EngineState, tokenizer: &ChatTokenizer) {
        while self.preempted.is_empty() && self.live.len() < self.max_streams {
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            let n_prompt = waiting.request.prompt_ids.len();
            if pages_of(n_prompt + 1) > self.blocks.n_pages() {
                let _ = waiting.reply.send(Err(self.beyond_memory(state, n_prompt)));
                continue;
            }
            if let Some(waiting) = self.begin(waiting, state, tokenizer) {
                self.waiting.push_front(waiting);
                return;
            }
        }
    }

    /// Begins a reply. Returns the request if there is no room for it yet.
    fn begin(
        &mut self,
        waiting: Waiting,
        state: &mut EngineState,
        tokenizer: &ChatTokenizer,
    ) -> Option<Waiting> {
        let Waiting { request, reply } = waiting;
        let adapter = request.adapter.as_ref();
        let adapter =
            adapter.map(|name| state.adapter(name).map_err(|error| refusal(name, &error)));
        let adapter = match adapter.transpose() {
            Ok(adapter) => adapter,
            Err(error) => {
                let _ = reply.send(Err(error));
                return None;
            }
        };
        let key = adapter.as_ref().map_or(0, |adapter| adapter.key);
        // The reused prefix is held before room is made for the rest.
        let table = self.blocks.begin(key, request.reusable_ids());
        if !self.has_room(&table, request.prompt_ids.len()) {
            self.blocks.release(table);
            return Some(Waiting { request, reply });
        }
        let config = &state.served().config;
        let longest = config.context.min(self.blocks.n_pages() * PAGE);
        let max_tokens = request.max_new_tokens(longest).max(1);
        // Room for a whole reply, so that a slow reader never blocks the thread.
        let (events, received) = mpsc::channel(max_tokens + 2);
        let ends = ReplyEnds {
            max_tokens,
            eos_ids: &config.eos_ids,
        };
        let seed = self.seeds.next_u64();
        let (scoring, prompt) = request.scoring().unzip();
        match BegunReply::new(request, &ends, seed, tokenizer.stream_decoder(), events) {
            Ok(begun) => {
                let begun = begun.scored(scoring);
                let step = adapter.as_ref().map(|adapter| adapter.step);
                self.n_admitted += 1;
                self.live
                    .push(Stream::new(self.n_admitted, begun, adapter, table));
                let _ = reply.send(Ok(GenerationStream::new(received, prompt, step)));
            }
            Err(error) => {
                self.blocks.release(table);
                let _ = reply.send(Err(error));
            }
        }
        None
    }

    /// Whether a sequence of `n_ids` fits beside the pages that live replies need for their next tokens, with some
    /// headroom.
    fn has_room(&self, table: &PageTable, n_ids: usize) -> bool {
        let missing =
            |table: &PageTable, n_ids| pages_of(n_ids + 1).saturating_sub(table.n_pages());
        let live = self.live.iter();
        let others: usize = live
            .map(|s| missing(&s.table, s.reply.ids().len()) + HEADROOM)
            .sum();
        missing(table, n_ids) + others <= self.blocks.n_available()
            && self.blocks.has_states(self.live.len())
    }

    fn beyond_memory(&self, state: &EngineState, n_prompt: usize) -> GenerateError {
        let model = state.served();
        let position = KvPool::position_bytes(&model.config, model.kind);
        GenerateError::Memory {
            n_prompt,
            needed: pages_of(n_prompt + 1) * PAGE * position,
            budget: self.blocks.n_pages() * PAGE * position,
        }
    }

    /// Sets pages aside for the rows of a round, the oldest first; where there are none, the youngest loses its place.
    fn reserve(&mut self, rows: &mut Vec<usize>) {
        let mut i = 0;
        while i < self.live.len() {
            let stream = &mut self.live[i];
            if stream.reserve(rows[i], &mut self.blocks) {
                i += 1;
                continue;
            }
            self.preempt_youngest();
            rows.pop();
        }
    }

    fn preempt_youngest(&mut self) {
        let Some(mut youngest) = self.live.pop() else {
            return;
        };
        self.blocks.release(std::mem::take(&mut youngest.table));
        tracing::debug!(
            age = youngest.age,
            "a reply gave its pages to older ones, and will go on later"
        );
        let at = self
            .preempted
            .partition_point(|other| other.age < youngest.age);
        self.preempted.insert(at, youngest);
    }

    fn apply(
        &mut self,
        chosen: &[(usize, usize)],
        outcomes: Vec<Result<StreamOutcome, GenerateError>>,
    ) {
        let mut ended = Vec::new();
        for (&(i, n), outcome) in chosen.iter().zip(outcomes) {
            let stream = &mut self.live[i];
            let step = match outcome {
                Ok(StreamOutcome { scores, token }) => {
                    stream.ran(n, &mut self.blocks);
                    stream.reply.score(scores.as_ref());
                    token.map(|token| token.map(|token| stream.reply.push(token)))
                }
                Err(error) => {
                    stream.reply.fail(error);
                    Some(Ok(TokenOutcome::Ended))
                }
            };
            match step {
                None | Some(Ok(TokenOutcome::More)) => {}
                Some(Ok(TokenOutcome::Ended)) => ended.push(i),
                Some(Err(error)) => {
                    stream.reply.fail(error.into());
                    ended.push(i);
                }
            }
        }
        ended.sort_unstable();
        for i in ended.into_iter().rev() {
            let stream = self.live.remove(i);
            self.blocks.release(stream.table);
        }
    }
}

fn pages_of(n_positions: usize) -> usize {
    n_positions.div_ceil(PAGE)
}

#[cfg(test)]
impl LiveReplies {
    pub(super) fn n_live(&self) -> usize {
        self.live.len()
    }

    pub(super) fn put_youngest_off(&mut self) {
        self.preempt_youngest();
    }

    pub(super) fn n_preempted(&self) -> usize {
        self.preempted.len()
    }

    /// Pages that are free or could be had, and all.
    pub(super) fn pages(&self) -> (usize, usize) {
        (self.blocks.n_available(), self.blocks.n_pages())
    }

    pub(super) fn pool_bytes(&self) -> usize {
        self.pool.bytes()
    }
}
