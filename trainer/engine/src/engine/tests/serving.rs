//! Tests of many replies at once: they have the same ids as alone, whatever is shared, evicted or postponed in the
//! meantime.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::write_model;
use crate::tests::tiny_with;

/// Bytes of a position of the tiny model: two layers, two heads of eight, keys and values, f32.
const POSITION: usize = 2 * 2 * 8 * 2 * 4;

fn place(fields: &[(&str, Value)]) -> Place {
    let place = Place::new();
    write_model(&place.config().model, &tiny_with(fields), 5).unwrap();
    place
}

/// Makes a core with room for so many positions.
pub(super) fn core(place: &Place, positions: usize) -> Core {
    core_of(place, positions * POSITION)
}

/// Makes a core with so many bytes for keys, values and states.
pub(super) fn core_of(place: &Place, budget: usize) -> Core {
    Core::load(&place.with_kv_budget(budget)).unwrap().0
}

/// Takes the available output.
fn drain(stream: &mut GenerationStream) -> (Vec<u32>, Option<FinishedReply>) {
    let (mut ids, mut end) = (Vec::new(), None);
    while stream.n_ready() > 0 && end.is_none() {
        match block_on(stream.recv()).unwrap().unwrap() {
            GenerateEvent::Token(token) => ids.push(token.id),
            GenerateEvent::Finished(finished) => end = Some(finished),
        }
    }
    (ids, end)
}

/// Runs rounds until every request has ended, and returns each one's output.
pub(super) fn finish(core: &mut Core, answers: Vec<Answer>) -> Vec<(Vec<u32>, FinishedReply)> {
    let mut rounds = 0;
    while core.serving().has_live() || !core.serving().is_idle() {
        core.round();
        rounds += 1;
        assert!(rounds < 5000, "it never ends");
    }
    let each = answers.into_iter().map(|mut answer| {
        let (ids, end) = drain(&mut stream(&mut answer));
        (ids, end.expect("an end"))
    });
    each.collect()
}

/// Runs the requests together to their ends.
pub(super) fn run_all(
    core: &mut Core,
    requests: &[GenerateRequest],
) -> Vec<(Vec<u32>, FinishedReply)> {
    let begun = requests.iter().map(|request| begin(core, request.clone()));
    let answers = begun.collect();
    finish(core, answers)
}

fn alone(place: &Place, request: &GenerateRequest) -> Vec<u32> {
    let mut core = core(place, 1024);
    run_all(&mut core, std::slice::from_ref(request))
        .remove(0)
        .0
}

/// Returns whether all pages are free or evictable.
pub(super) fn nothing_is_held(core: &Core) -> bool {
    let (available, all) = core.serving().pages();
    available == all
}

#[test]
fn eight_adapters_at_once_say_what_each_says_alone() {
    let place = Place::new();
    let requests = (0..9_u32).map(|i| {
        let (adapter, seed) = (format!("a{i}"), u64::from(i));
        let temperature = if i % 2 == 0 { 0.0 } else { 1.0 };
        let request = sampled(temperature, Some(seed), request(&prompt(20 + 17 * i), 12));
        if i == 8 {
            return request;
        }
        place.adapter(&adapter, seed + 1);
        under(&adapter, request)
    });
    let requests: Vec<GenerateRequest> = requests.collect();
    let want: Vec<_> = requests.iter().map(|r| alone(&place, r)).collect();
    let mut core = core(&place, 4096);
    let said = run_all(&mut core, &requests);
    for (i, ((ids, _), want)) in said.iter().zip(&want).enumerate() {
        assert_eq!(ids, want, "request {i}");
    }
    assert_ne!(want[0], want[2]);
    assert!(nothing_is_held(&core));
}

#[test]
fn a_prefix_is_shared_while_the_other_reply_runs() {
    let place = Place::new();
    let mut core = core(&place, 1024);
    let mut longer = prompt(70);
    longer.extend([1, 2, 3]);
    let want = alone(&place, &request(&longer, 10));
    let mut first = begin(&mut core, request(&prompt(70), 300));
    (0..4).for_each(|_| core.round());
    let first = stream(&mut first);
    assert!(first.n_ready() > 0);
    let mut second = begin(&mut core, request(&longer, 10));
    core.round();
    let mut second = stream(&mut second);
    while core.serving().n_live() == 2 {
        core.round();
    }
    let (ids, end) = drain(&mut second);
    assert_eq!((ids, end.unwrap().cached), (want, 64), "four pages of 70");
    assert!(first.n_ready() < 300, "the first is still on its way");
}

#[test]
fn copies_of_one_prompt_compute_it_once() {
    let place = Place::new();
    let mut core = core(&place, 4096);
    let said = run_all(&mut core, &vec![request(&prompt(200), 3); 6]);
    let cached: usize = said.iter().map(|(_, end)| end.cached).sum();
    assert!(cached >= 5 * 64, "only {cached} ids were found");
    assert!(said.iter().all(|(ids, _)| *ids == said[0].0));
}

/// Row B4 of the tests: before the prefix was used, room was made by evicting this very prefix.
#[test]
fn a_request_never_evicts_what_it_goes_on_from() {
    let place = place(&[("max_position_embeddings", json!(4096))]);
    let mut core = core(&place, 2048);
    let next = [prompt(1100), prompt(50)].concat();
    run_all(&mut core, &[request(&next[..1100], 1)]);
    let said = run_all(&mut core, &[request(&next, 1)]);
    assert_eq!(said[0].1.cached, 1088, "68 pages of 1,100");
}

/// Row B1 of the tests: the required size is that of the pages, not of the next power of two.
#[tokio::test]
async fn a_prompt_beyond_all_memory_is_refused_by_its_own_bytes() {
    let place = Place::new();
    let engine = Engine::start(place.with_kv_budget(100_000)).unwrap();
    assert_eq!(engine.info().kv_positions, 384);
    let (tokens, _) = run(&engine, request(&prompt(380), 500)).await.unwrap();
    assert_eq!(tokens.len(), 4, "as many as memory has room for");
    let refused = refusal(&engine, request(&prompt(384), 1)).await;
    insta::assert_snapshot!(refused, @"a prompt of 384 tokens needs 102400 bytes of KV cache, its budget is 98304: shorten the conversation or raise --kv-budget");
    let error = Engine::start(place.with_kv_budget(100)).unwrap_err();
    insta::assert_snapshot!(error, @"kv_budget is 100, allowed: room for the keys and values of 16 positions or more");
}

#[test]
fn half_of_the_memory_is_for_keys_and_values_and_the_rest_for_training() {
    let place = Place::new();
    let started = |memory| {
        Core::load(&EngineConfig {
            memory: Some(memory),
            ..place.config()
        })
    };
    let (core, info) = started(400_000).unwrap();
    // 200,000 bytes are 48 pages of 16 positions of 256 bytes, and a rest.
    assert_eq!(info.kv_positions, 768);
    let training = core.state().sizes.memory;
    assert_eq!(training, Some(400_000 - 768 * POSITION));
    let error = started(1000).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("memory is 1000, allowed"), "{error}");
}

#[test]
fn who_finds_no_room_waits_and_kept_pages_make_way() {
    let place = Place::new();
    let mut core = core(&place, 64);
    let mut first = begin(&mut core, request(&prompt(40), 2));
    let mut second = begin(&mut core, request(&prompt(45)[1..], 2));
    core.round();
    assert!(second.try_recv().is_err(), "it waits for memory");
    let first = stream(&mut first);
    (0..3).for_each(|_| core.round());
    assert_eq!(first.n_ready(), 3, "two tokens and the end");
    let second = stream(&mut second);
    (0..3).for_each(|_| core.round());
    assert_eq!(second.n_ready(), 3);
    assert!(nothing_is_held(&core));
}

#[test]
fn dropping_a_stream_frees_its_place_at_the_next_token() {
    let place = Place::new();
    let mut core = core(&place, 512);
    let mut long = begin(&mut core, request(&prompt(300), 50));
    let mut short = begin(&mut core, request(&prompt(10), 50));
    core.round();
    let (long, short) = (stream(&mut long), stream(&mut short));
    // A part of the long prompt was read, and all of the short one.
    assert_eq!((long.n_ready(), short.n_ready()), (0, 1));
    let (before, _) = core.serving().pages();
    drop(long);
    core.round();
    let (after, _) = core.serving().pages();
    assert!(after > before);
    assert_eq!((core.serving().n_live(), short.n_ready()), (1, 2));
    drop(short);
    core.round();
    assert!(core.serving().is_idle() && nothing_is_held(&core));
}

/// Row B7 of the tests: each prompt had a separate portion in every round.
#[test]
fn prompts_that_arrive_never_keep_a_running_reply_waiting() {
    let place = Place::new();
    let mut core = core(&place, 16 * 512);
    let mut running = begin(&mut core, request(&prompt(10), 400));
    core.round();
    let running = stream(&mut running);
    let arriving = (0..15_u32).map(|i| {
        let mut ids = prompt(450);
        ids[0] = i;
        begin(&mut core, request(&ids, 1))
    });
    let answers: Vec<Answer> = arriving.collect();
    let mut rounds = 1;
    while core.serving().n_live() > 1 || rounds == 1 {
        core.round();
        rounds += 1;
        assert_eq!(running.n_ready(), rounds, "a token in every round");
    }
    // There are 15 x 450 rows, at most 512 per round.
    assert!(rounds > 13, "{rounds}");
    assert_eq!(answers.len(), 15);
}

/// Row B3 of the tests: the growth of running replies was never counted.
#[test]
fn who_is_put_off_says_the_same_in_the_end() {
    let place = Place::new();
    let requests = (0..4_u32).map(|i| {
        let mut ids = prompt(30 + i);
        ids[0] = i;
        sampled(0.8, Some(u64::from(i)), request(&ids, 150))
    });
    let requests: Vec<GenerateRequest> = requests.collect();
    let want: Vec<_> = requests.iter().map(|r| alone(&place, r)).collect();
    let mut core = core(&place, 320);
    let begun = requests.iter().map(|r| begin(&mut core, r.clone()));
    let answers: Vec<Answer> = begun.collect();
    let mut n_preempted = 0;
    for _ in 0..100 {
        core.round();
        n_preempted = n_preempted.max(core.serving().n_preempted());
    }
    // Four times 180 positions do not fit in 320.
    assert!(n_preempted > 0);
    let said = finish(&mut core, answers);
    for ((ids, end), want) in said.iter().zip(&want) {
        assert_eq!(ids, want);
        assert_eq!(end.cached, 0, "what it computed twice was not found");
    }
    assert!(nothing_is_held(&core));
}

#[test]
fn what_fails_in_a_batch_ends_alone() {
    let place = Place::new();
    let mut core = core(&place, 1024);
    let good = begin(&mut core, request(&prompt(20), 6));
    // The handle checks ids. Here this check is left out.
    let mut bad = begin(&mut core, request(&[1, 5000], 6));
    let said = finish(&mut core, vec![good]);
    assert_eq!(said[0].0, alone(&place, &request(&prompt(20), 6)));
    let mut bad = stream(&mut bad);
    let error = block_on(bad.recv()).unwrap().unwrap_err();
    assert!(matches!(error, GenerateError::Torch(_)), "{error}");
    assert!(nothing_is_held(&core));
}

#[tokio::test]
async fn min_tokens_and_stop_ids_are_obeyed_together() {
    let place = Place::new();
    let engine = place.engine();
    let (tokens, _) = run(&engine, request(&prompt(40), 24)).await.unwrap();
    let id = tokens[2].id;
    let stopping = |id, min_tokens| {
        let top_logprobs = 3;
        let greedy = SamplingParams::greedy();
        let sampling = SamplingParams {
            min_tokens,
            top_logprobs,
            ..greedy
        };
        ending_with(
            id,
            GenerateRequest {
                sampling,
                ..request(&prompt(40), 24)
            },
        )
    };
    let (tokens, _) = run(&engine, stopping(id, 5)).await.unwrap();
    assert!(tokens[..5].iter().all(|token| token.id != id));
    assert!(tokens.iter().all(|token| token.top.len() == 3));
    let more = refusal(&engine, stopping(id, 25)).await;
    assert_eq!(more, "min_tokens is 25, allowed: 0 to max_tokens, 24");
    let unknown = refusal(&engine, stopping(300, 5)).await;
    let wanted = "stop_token_ids is 300, allowed: ids below the vocabulary of 259";
    assert_eq!(unknown, wanted);
}

/// The model has one layer with the heads of Qwen3-4B's cache. An OpenClaw turn has 15,000 ids.
#[tokio::test]
async fn a_turn_of_15000_tokens_and_the_next_one_from_the_cache() {
    let place = place(&[
        ("model_type", json!("qwen3")),
        ("num_hidden_layers", json!(1)),
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(8)),
        ("head_dim", json!(128)),
        ("max_position_embeddings", json!(40_960)),
    ]);
    let config = EngineConfig {
        dtype: Some(Dtype::Bf16),
        threads: 0,
        ..place.with_kv_budget(128 << 20)
    };
    let engine = Engine::start(config).unwrap();
    let mut ids = prompt(15_000);
    let (tokens, finished) = run(&engine, request(&ids, 20)).await.unwrap();
    assert_eq!((tokens.len(), finished.cached), (20, 0));
    ids.extend(tokens.iter().map(|token| token.id));
    ids.extend(prompt(100));
    let (_, finished) = run(&engine, request(&ids, 5)).await.unwrap();
    assert_eq!(finished.cached, 15_008, "938 pages of 15,019");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Sixteen replies grow. Some of them share their beginning, and some are dropped.
    #[test]
    fn bytes_never_pass_the_budget_and_every_page_comes_back(
        streams in prop::collection::vec((1..80_usize, 1..60_usize, 0..3_u32, 0..6_u32), 16),
        pages in 10..40_usize,
    ) {
        let place = Place::new();
        let mut core = core(&place, pages * 16);
        let mut running = Vec::new();
        for &(n_prompt, n_reply, stem, _) in &streams {
            let ids: Vec<u32> = (0..n_prompt).map(|i| stem * u32::from(i > 30) + 7).collect();
            running.push(begin(&mut core, request(&ids, n_reply)));
        }
        let mut held: Vec<(usize, GenerationStream)> = Vec::new();
        let mut rounds = 0;
        while !core.serving().is_idle() {
            core.round();
            rounds += 1;
            prop_assert!(rounds < 5000);
            let (available, all) = core.serving().pages();
            prop_assert!(available <= all && all == pages);
            prop_assert!(core.serving().pool_bytes() <= pages * 16 * POSITION);
            for (i, answer) in running.iter_mut().enumerate() {
                if let Ok(Ok(stream)) = answer.try_recv() {
                    held.push((i, stream));
                }
            }
            // Every sixth reply is dropped after its first tokens.
            held.retain(|(i, stream)| streams[*i].3 > 0 || stream.n_ready() < 3);
        }
        prop_assert!(nothing_is_held(&core));
        for (i, mut stream) in held {
            let (_, n_reply, ..) = streams[i];
            let (ids, end) = drain(&mut stream);
            if streams[i].3 > 0 {
                prop_assert_eq!((ids.len(), end.is_some()), (n_reply, true));
            }
        }
    }
}
