//! Measures how streams are affected by other streams, training and new adapters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use metaclaw_engine::engine::Engine;
use metaclaw_engine::generate::GenerateRequest;
use metaclaw_trainer_terms::AdapterName;
use serde_json::{Value, json};

use crate::decode::{save_adapters, scratch};
use crate::failure::Failure;
use crate::input::{Arrivals, BenchSample, Decode, Input, Served, Swaps};
use crate::measure::Clock;
use crate::readers::{TimedReply, gaps, quantile, read, read_all, request};
use crate::training::StepJob;

/// A number of tokens that no stream reaches here. A stream ends when its purpose is fulfilled.
const LONG: usize = 3_500;

/// Measures replies on one adapter, then on one adapter each, then each agent's next turn, with one agent more than
/// there are places for adapters.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn adapters(input: &Input, work: &Decode) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), 16)?;
    let names = (0..=work.prompts.len()).map(|i| format!("agent-{i}").parse());
    let names: Vec<AdapterName> = names.collect::<Result<_, _>>()?;
    save_adapters(&engine, names.clone())?;
    let never = AtomicBool::new(false);
    let all = |from: usize, n: usize, name: &dyn Fn(usize) -> AdapterName| {
        let prompts = work.prompts.iter().enumerate();
        let requests = prompts.map(|(i, p)| request(&p[from..], n, Some(name(i))));
        read_all(&engine, requests.collect(), &never)
    };
    all(2, 4, &|i| names[i].clone())?;
    let clock = Clock::start()?;
    all(0, work.new_tokens, &|_| names[0].clone())?;
    let on_one = clock.figures()?;
    let clock = Clock::start()?;
    all(1, work.new_tokens, &|i| names[i].clone())?;
    let mut figures = clock.figures()?;
    figures["on_one_wall_s"] = on_one["wall_s"].clone();
    figures["on_one_cpu_s"] = on_one["cpu_s"].clone();
    figures["least_cached_share"] = rotation(&engine, &names, work)?.into();
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Runs two turns of each agent in rotation. Returns the smallest cached share of a second turn's history.
fn rotation(engine: &Engine, names: &[AdapterName], work: &Decode) -> Result<f64, Failure> {
    let never = AtomicBool::new(false);
    // Each agent has other ids, so that it shares only its own first turn.
    let history = |agent: u32| -> Vec<u32> {
        let ids = work.prompts[0].iter().cycle().take(600);
        ids.map(|id| id + 1 + agent).collect()
    };
    let mut histories: Vec<Vec<u32>> = (0..).take(names.len()).map(history).collect();
    let mut least = 1.0_f64;
    for turn in 0..2 {
        for (name, ids) in names.iter().zip(&mut histories) {
            let heard = read(engine, request(ids, 4, Some(name.clone())), &never)?;
            let cached = heard.finished.map_or(0, |it| it.cached);
            if turn == 1 {
                least = least.min(cached as f64 / ids.len() as f64);
            }
            ids.extend(heard.ids);
            ids.extend(100..120);
        }
    }
    Ok(least)
}

/// Measures streams alone, training alone, and both.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn served(input: &Input, work: &Served) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), 16)?;
    let (leave, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let requests = |n: usize| -> Vec<GenerateRequest> {
        let prompts = work.prompts.iter();
        prompts.map(|prompt| request(prompt, n, None)).collect()
    };
    read_all(&engine, requests(8), &never)?;
    let alone = read_all(&engine, requests(work.new_tokens), &never)?;
    let training_alone = train(&engine, &work.samples)?;
    let clock = Clock::start()?;
    let (training, begun, heard) = thread::scope(|scope| -> Result<_, Failure> {
        let streams = scope.spawn(|| read_all(&engine, requests(LONG), &leave));
        let begun = Instant::now();
        let training = train(&engine, &work.samples);
        leave.store(true, Ordering::Relaxed);
        let heard = streams.join().map_err(|_| "the streams panicked")??;
        Ok((training?, begun, heard))
    })?;
    let mut figures = clock.figures()?;
    figures["p95_alone_s"] = quantile(gaps(&alone, None), 95).into();
    figures["p95_s"] = quantile(gaps(&heard, Some(begun)), 95).into();
    figures["longest_s"] = quantile(gaps(&heard, Some(begun)), 100).into();
    figures["n_tokens"] = heard.iter().map(|it| it.ids.len()).sum::<usize>().into();
    figures["training_alone_s"] = training_alone.into();
    figures["training_s"] = training.into();
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Returns the seconds of a step.
fn train(engine: &Engine, samples: &[BenchSample]) -> Result<f64, Failure> {
    let begun = Instant::now();
    let (job, answer) = StepJob::new(samples)?;
    engine.submit(Box::new(job))?;
    answer.blocking_recv()??;
    Ok(begun.elapsed().as_secs_f64())
}

/// Runs one stream, and then lets all prompts arrive at once.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn arrivals(input: &Input, work: &Arrivals) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), 16)?;
    let (leave, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let alone = read(&engine, request(&work.stream, 64, None), &never)?;
    let clock = Clock::start()?;
    let (begun, heard, arrived) = thread::scope(|scope| -> Result<_, Failure> {
        let stream = scope.spawn(|| read(&engine, request(&work.stream, LONG, None), &leave));
        let begun = Instant::now();
        let prompts = work.prompts.iter();
        let requests = prompts.map(|prompt| request(prompt, 8, None)).collect();
        let arrived = read_all(&engine, requests, &never);
        leave.store(true, Ordering::Relaxed);
        let heard = stream.join().map_err(|_| "the stream panicked")??;
        Ok((begun, heard, arrived?))
    })?;
    let last_first = arrived.iter().filter_map(|it| it.at.first()).max();
    let mut figures = clock.figures()?;
    figures["longest_alone_s"] = quantile(gaps(&[alone], None), 100).into();
    figures["longest_s"] = quantile(gaps(&[heard], Some(begun)), 100).into();
    let last_first = last_first.map_or(0.0, |at| (*at - begun).as_secs_f64());
    figures["last_first_token_s"] = last_first.into();
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Restarts streams as they end, each on the current adapter. The adapters were not used before.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn swaps(input: &Input, work: &Swaps) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), work.prompts.len())?;
    let names = (0..=work.times).map(|i| format!("version-{i}").parse());
    let names: Vec<AdapterName> = names.collect::<Result<_, _>>()?;
    save_adapters(&engine, names.clone())?;
    let never = AtomicBool::new(false);
    let warm = work.prompts.iter().map(|p| request(p, 4, None));
    read_all(&engine, warm.collect(), &never)?;
    let n_tokens = AtomicUsize::new(0);
    let clock = Clock::start()?;
    let slot = |(i, prompt): (usize, &Vec<u32>)| -> Result<Vec<(usize, TimedReply)>, Failure> {
        let mut heard = Vec::new();
        let current = || n_tokens.load(Ordering::Relaxed) / work.tokens_a_swap;
        // The replies have different lengths, because otherwise all streams would change their adapter at once.
        let (mut at, n) = (current(), work.new_tokens + i);
        while let Some(name) = names.get(at) {
            let reply = read(&engine, request(prompt, n, Some(name.clone())), &never)?;
            n_tokens.fetch_add(reply.ids.len(), Ordering::Relaxed);
            heard.push((at, reply));
            at = current();
        }
        Ok(heard)
    };
    let slots: Vec<_> = thread::scope(|scope| {
        let prompts = work.prompts.iter().enumerate();
        let slots: Vec<_> = prompts.map(|it| scope.spawn(move || slot(it))).collect();
        let ended = slots.into_iter().map(thread::ScopedJoinHandle::join);
        ended.collect()
    });
    let mut figures = clock.figures()?;
    let (mut heard, mut used, mut failed) = (Vec::new(), BTreeSet::new(), Vec::new());
    for slot in slots {
        match slot.map_err(|_| "a slot panicked")? {
            Ok(replies) => replies.into_iter().for_each(|(at, reply)| {
                used.insert(at);
                heard.push(reply);
            }),
            Err(error) => failed.push(error.to_string()),
        }
    }
    figures["longest_s"] = quantile(gaps(&heard, None), 100).into();
    figures["p95_s"] = quantile(gaps(&heard, None), 95).into();
    figures["requests"] = heard.len().into();
    figures["adapters_not_used"] = (names.len() - used.len()).into();
    figures["failed"] = failed.len().into();
    figures["first_failure"] = json!(failed.first());
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}
