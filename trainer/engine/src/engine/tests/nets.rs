//! Tests of replies of a model with gated delta nets, whose past is a state beside pages.

use super::serving::{core_of, finish, nothing_is_held, run_all};
use super::*;
use crate::testing::write_model;
use crate::tests::{golden::families, tiny_nets, with_fields};
use serde_json::json;

/// Enough for every state and page of these tests.
const PLENTY: usize = 8 << 20;

fn place() -> Place {
    let place = Place::new();
    write_model(&place.config().model, &tiny_nets(4), 5).unwrap();
    place
}

fn alone(place: &Place, request: &GenerateRequest) -> Vec<u32> {
    let mut core = core_of(place, PLENTY);
    let one = std::slice::from_ref(request);
    run_all(&mut core, one).remove(0).0
}

/// Returns the greedy continuation, computed without a cache.
fn dense(model: &Model, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..n {
        let last = forward(model, &ids, None).get(-1);
        ids.push(u32::try_from(last.argmax(-1, false).int64_value(&[])).unwrap());
    }
    ids.split_off(prompt.len())
}

fn other(mut ids: Vec<u32>, from: usize, seed: u32) -> Vec<u32> {
    for (i, id) in (0..).zip(&mut ids[from..]) {
        *id = (i * 53 + seed * 29) % 250;
    }
    ids
}

#[test]
fn turns_go_on_from_the_states_that_turns_have_left() {
    let place = place();
    let model = place.model();
    let mut core = core_of(&place, PLENTY);
    let mut ids = prompt(90);
    let mut before = 0;
    for turn in 0..3 {
        let (reply, end) = run_all(&mut core, &[request(&ids, 40)]).remove(0);
        assert_eq!(reply, dense(&model, &ids, 40), "turn {turn}");
        // All pages of what was run: the reply's last id was not.
        let wanted = if turn == 0 { 0 } else { (before - 1) / 16 * 16 };
        assert_eq!(end.cached, wanted, "turn {turn}");
        ids.extend(reply);
        before = ids.len();
        ids.extend(&prompt(70)[turn..]);
    }
    assert!(nothing_is_held(&core));
}

/// `golden/families.py` made the replies with transformers: three turns, whose greedy replies have 64 ids.
#[test]
fn greedy_turns_from_the_cache_are_those_of_transformers() {
    let text = families();
    assert_eq!(text.turns.len(), 2);
    for (name, turns) in &text.turns {
        let place = Place::new();
        let model = &place.config().model;
        write_model(model, &text.configs[name], text.seed).unwrap();
        let mut core = core_of(&place, PLENTY);
        let mut ids = Vec::new();
        for (i, turn) in turns.iter().enumerate() {
            ids.extend(&turn.new);
            let (reply, end) = run_all(&mut core, &[request(&ids, 64)]).remove(0);
            assert_eq!(reply, turn.reply, "{name}, turn {i}");
            let known = ids.len() - turn.new.len();
            assert_eq!(end.cached, known.saturating_sub(1) / 16 * 16, "{name}");
            ids.extend(reply);
        }
    }
}

#[test]
fn a_prompt_that_leaves_another_goes_on_from_the_nearest_state() {
    let place = place();
    let mut core = core_of(&place, PLENTY);
    let mut cached = |ids: &[u32]| {
        let (reply, end) = run_all(&mut core, &[request(ids, 5)]).remove(0);
        assert_eq!(reply, alone(&place, &request(ids, 5)));
        end.cached
    };
    let first = prompt(300);
    assert_eq!(cached(&first), 0);
    assert_eq!(cached(&first), 288, "the end of the prompt");
    // Nobody knew that prompts would part here. From now on they go on from here.
    assert_eq!(cached(&other(first.clone(), 200, 1)), 0);
    assert_eq!(cached(&other(first.clone(), 200, 2)), 192);
    assert_eq!(cached(&other(first, 250, 3)), 192);
}

#[test]
fn sequences_beside_one_another_say_what_each_says_alone() {
    let place = place();
    let requests = (0..6_u32).map(|i| {
        let (adapter, seed) = (format!("a{i}"), u64::from(i));
        let temperature = if i % 2 == 0 { 0.0 } else { 1.0 };
        let request = sampled(temperature, Some(seed), request(&prompt(20 + 37 * i), 20));
        if i == 5 {
            return request;
        }
        place.adapter(&adapter, seed + 1);
        under(&adapter, request)
    });
    let requests: Vec<GenerateRequest> = requests.collect();
    let want: Vec<_> = requests.iter().map(|r| alone(&place, r)).collect();
    let mut core = core_of(&place, PLENTY);
    for _ in 0..2 {
        // The second time from the cache.
        let said = run_all(&mut core, &requests);
        for (i, ((ids, _), want)) in said.iter().zip(&want).enumerate() {
            assert_eq!(ids, want, "request {i}");
        }
    }
    assert_ne!(want[0], want[2]);
    assert!(nothing_is_held(&core));
}

#[test]
fn who_is_put_off_and_who_finds_a_full_cache_say_the_same() {
    let place = place();
    let requests = (0..4_u32).map(|i| {
        let ids = other(prompt(30 + i), 0, i);
        sampled(0.8, Some(u64::from(i)), request(&ids, 150))
    });
    let requests: Vec<GenerateRequest> = requests.collect();
    let want: Vec<_> = requests.iter().map(|r| alone(&place, r)).collect();
    let mut core = core_of(&place, 400_000);
    for _ in 0..2 {
        let begun = requests.iter().map(|r| begin(&mut core, r.clone()));
        let answers: Vec<Answer> = begun.collect();
        let mut n_preempted = 0;
        for _ in 0..100 {
            core.round();
            n_preempted = n_preempted.max(core.serving().n_preempted());
        }
        assert!(n_preempted > 0);
        let said = finish(&mut core, answers);
        for ((ids, _), want) in said.iter().zip(&want) {
            assert_eq!(ids, want);
        }
        assert!(nothing_is_held(&core));
    }
}

#[test]
fn few_states_make_requests_wait_and_none_fails() {
    let wide = ["linear_key_head_dim", "linear_value_head_dim"].map(|key| (key, json!(64)));
    let place = Place::new();
    let config = with_fields(tiny_nets(4), &wide);
    write_model(&place.config().model, &config, 5).unwrap();
    // Two layers, four heads, and a convolution over 512 numbers of three positions.
    let state = 2 * (4 * 64 * 64 + 3 * 512) * 4;
    // Nine states beside that of every beginning: three replies at a time.
    let mut core = core_of(&place, 2 * 10 * state);
    let requests: Vec<_> = (0..5)
        .map(|i| request(&other(prompt(8), 0, i), 6))
        .collect();
    let want: Vec<_> = requests.iter().map(|r| alone(&place, r)).collect();
    let begun = requests.iter().map(|r| begin(&mut core, r.clone()));
    let answers: Vec<Answer> = begun.collect();
    core.round();
    assert_eq!(core.serving().n_live(), 3);
    let said = finish(&mut core, answers);
    for ((ids, _), want) in said.iter().zip(&want) {
        assert_eq!(ids, want);
    }
    let error = Core::load(&place.with_kv_budget(1_000_000)).map(|_| ());
    insta::assert_snapshot!(error.unwrap_err(), @"kv_budget is 1000000, allowed: twice the room of five states of a sequence or more");
}
