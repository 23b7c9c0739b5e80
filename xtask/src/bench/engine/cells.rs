//! The cells that `bench engine` measures, and the promise for each figure.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::cell::{
    Cell, Limit, OURS, PEER, Program, SideFigure, VLLM, beside_vllm, both, by_peer, quotient, side,
};
use super::inputs::{BenchModels, Ids, sample, session};
use super::options::Options;

/// The names of the cells, in the order of the table.
pub(super) const NAMES: [&str; 16] = [
    "bandwidth",
    "a",
    "b-same",
    "b-different",
    "c",
    "c-12000",
    "d1",
    "d8",
    "v1",
    "v8",
    "e",
    "f",
    "served",
    "arrivals",
    "swaps",
    "adapters",
];

/// Refuses names of cells that there are not.
pub(super) fn check(names: &[String]) -> Result<()> {
    match names.iter().find(|it| !NAMES.contains(&it.as_str())) {
        Some(stray) => bail!("no such cell: `{stray}`; {}", list()),
        None => Ok(()),
    }
}

/// The names, for `--help`.
pub(super) fn list() -> String {
    format!("cells: {}", NAMES.join(", "))
}

/// All cells. Each has its own seed, so that a cell alone has the same input as among all.
pub(super) fn all(options: &Options, models: &BenchModels) -> Vec<Cell> {
    let mut cells = training(options, models);
    cells.extend(sessions(options, models));
    cells.extend(replies(options, models));
    cells.extend(serving(options, models));
    let at = |name: &str| NAMES.iter().position(|it| *it == name);
    cells.sort_by_key(|cell| at(cell.name));
    cells
}

fn training(options: &Options, models: &BenchModels) -> Vec<Cell> {
    let own = |more: Value| with(options, &models.own, more);
    let peer = json!({"adapter_f32": options.adapter_f32});
    let train =
        |samples: Vec<Value>| own(json!({"kind": "train", "samples": samples, "peer": peer}));
    let mut ids = Ids::new(1);
    let a = (0..4).map(|_| json!({"ids": ids.take(257), "loss_from": 0}));
    let a = train(a.collect());
    let prompt = ids.take(384);
    let same = ids
        .lists(8, 128)
        .into_iter()
        .map(|reply| sample(&prompt, &reply));
    let same = train(same.collect());
    let different: Vec<Value> = (0..8)
        .map(|_| sample(&ids.take(384), &ids.take(128)))
        .collect();
    let hints: Vec<_> = (0..8).map(|_| ids.lists(3, 24)).collect();
    let distil = |with_teacher: bool| {
        own(
            json!({"kind": "distil", "samples": different, "hints": hints, "top_k": 4, "with_teacher": with_teacher}),
        )
    };
    vec![
        Cell {
            name: "a",
            what: "a step of 4 x 256 tokens, loss on all",
            sides: both(&a),
            limits: vec![
                by_peer("CPU by PEFT's", "cpu_s", Some(0.95)),
                by_peer("memory by PEFT's", "peak_bytes", Some(0.6)),
            ],
        },
        Cell {
            name: "b-same",
            what: "a step of 8 replies of 128 tokens to one prompt of 384",
            sides: both(&same),
            limits: vec![by_peer("CPU by PEFT's", "cpu_s", Some(0.5))],
        },
        Cell {
            name: "b-different",
            what: "the same with 8 prompts",
            sides: both(&train(different.clone())),
            limits: vec![by_peer("CPU by PEFT's", "cpu_s", Some(1.0))],
        },
        Cell {
            name: "f",
            what: "distillation of 8 x (384 + 128) tokens, 3 hints of 24 each, top 4, by the same without its teacher",
            sides: vec![side(OURS, distil(true)), side("without", distil(false))],
            limits: vec![quotient(
                "CPU by without a teacher",
                SideFigure(OURS, "cpu_s"),
                SideFigure("without", "cpu_s"),
                Some(1.6),
            )],
        },
    ]
}

/// Ten turns, by PEFT on ten samples and by ours on the last turn alone.
fn sessions(options: &Options, models: &BenchModels) -> Vec<Cell> {
    const WARM: usize = 256;
    let cell = |name, what, model, n_system, only: Option<[usize; 2]>| {
        let turns = session(&mut Ids::new(2), n_system, 10);
        let task = |samples: &[Value], peer: Value| {
            let work =
                json!({"kind": "train", "samples": samples, "warm_tokens": WARM, "peer": peer});
            with(options, model, work)
        };
        let mut peer = json!({"adapter_f32": options.adapter_f32, "batch": 1});
        if let Some(only) = only {
            peer["only"] = json!(only);
            peer["checkpointing"] = true.into();
        }
        let length = |turn: &Value| turn["ids"].as_array().map_or(0, Vec::len) as f64;
        let all: f64 = turns.iter().map(length).sum();
        let part = only.map_or(all, |only| only.iter().map(|i| length(&turns[*i])).sum());
        let mut theirs = side(PEER, task(&turns, peer));
        theirs.program = Program::Peer;
        theirs.at_most = if only.is_some() { 1 } else { usize::MAX };
        Cell {
            name,
            what,
            sides: vec![
                side(OURS, task(&turns, json!({}))),
                side("last", task(&turns[9..], json!({}))),
                theirs,
            ],
            limits: vec![
                Limit {
                    scale: all / part,
                    ..by_peer("CPU by PEFT's on ten samples", "cpu_s", Some(0.2))
                },
                quotient(
                    "CPU by the last turn alone",
                    SideFigure(OURS, "cpu_s"),
                    SideFigure("last", "cpu_s"),
                    Some(1.5),
                ),
                by_peer("memory by PEFT's", "peak_bytes", None),
            ],
        }
    };
    vec![
        cell(
            "c",
            "a session of 10 turns after 1,500 tokens",
            &models.own,
            1_500,
            None,
        ),
        cell(
            "c-12000",
            "the same after 12,000 tokens; PEFT computes the first and the last turn, with gradient checkpointing, and its CPU is scaled by tokens",
            &models.long,
            12_000,
            Some([0, 9]),
        ),
    ]
}

fn replies(options: &Options, models: &BenchModels) -> Vec<Cell> {
    let own = |more: Value| with(options, &models.own, more);
    let mut ids = Ids::new(3);
    let decode = |prompts: Vec<Vec<u64>>| {
        own(json!({"kind": "decode", "prompts": prompts, "new_tokens": 128}))
    };
    let (one, eight) = (decode(ids.lists(1, 32)), decode(ids.lists(8, 32)));
    let beside = |name, what, input: &Value| {
        let mut input = input.clone();
        input["dtype"] = "f32".into();
        Cell {
            name,
            what,
            sides: beside_vllm(&input),
            limits: vec![
                quotient(
                    "time by vLLM's",
                    SideFigure(OURS, "wall_s"),
                    SideFigure(VLLM, "wall_s"),
                    Some(1.0),
                ),
                quotient(
                    "CPU by vLLM's",
                    SideFigure(OURS, "cpu_s"),
                    SideFigure(VLLM, "cpu_s"),
                    None,
                ),
                told("our tokens a second", SideFigure(OURS, "tokens_per_s")),
                told("vLLM's tokens a second", SideFigure(VLLM, "tokens_per_s")),
                told(
                    "our CPU seconds a token",
                    SideFigure(OURS, "cpu_s_per_token"),
                ),
                told(
                    "vLLM's CPU seconds a token",
                    SideFigure(VLLM, "cpu_s_per_token"),
                ),
            ],
        }
    };
    let v1 = beside("v1", "128 tokens of one reply in f32, beside vLLM", &one);
    let v8 = beside(
        "v8",
        "128 tokens of eight replies in f32, beside vLLM",
        &eight,
    );
    let turn = json!({"kind": "next_turn", "history": ids.take(1_500), "other_history": ids.take(1_500), "turn": ids.take(20)});
    vec![
        Cell {
            name: "bandwidth",
            what: "how fast this machine reads memory",
            sides: vec![side(OURS, own(json!({"kind": "bandwidth"})))],
            limits: Vec::new(),
        },
        Cell {
            name: "d1",
            what: "128 tokens of one reply",
            sides: both(&one),
            limits: vec![by_peer("CPU by generate's", "cpu_s", Some(0.75))],
        },
        Cell {
            name: "d8",
            what: "128 tokens of eight replies at once",
            sides: both(&eight),
            limits: vec![by_peer("CPU by generate's", "cpu_s", Some(0.9))],
        },
        v1,
        v8,
        Cell {
            name: "e",
            what: "first token of a second turn over 1,500 tokens",
            sides: vec![side(OURS, own(turn))],
            limits: vec![quotient(
                "time by without cache",
                SideFigure(OURS, "wall_s"),
                SideFigure(OURS, "without_wall_s"),
                Some(0.06),
            )],
        },
    ]
}

fn serving(options: &Options, models: &BenchModels) -> Vec<Cell> {
    let own = |more: Value| with(options, &models.own, more);
    let mut ids = Ids::new(4);
    let samples: Vec<Value> = (0..8)
        .map(|_| json!({"ids": ids.take(513), "loss_from": 0}))
        .collect();
    let served = json!({"kind": "served", "prompts": ids.lists(4, 200), "new_tokens": 256, "samples": samples});
    let arrivals =
        json!({"kind": "arrivals", "stream": ids.take(100), "prompts": ids.lists(15, 2_000)});
    let swaps = json!({"kind": "swaps", "prompts": ids.lists(32, 64), "new_tokens": 32, "tokens_a_swap": 384, "times": 20});
    let adapters = json!({"kind": "adapters", "prompts": ids.lists(8, 64), "new_tokens": 64});
    let alone = |name, what, input: Value, limits| Cell {
        name,
        what,
        sides: vec![side(OURS, own(input))],
        limits,
    };
    let figure = |what, field, at_most| Limit {
        what,
        of: SideFigure(OURS, field),
        by: None,
        scale: 1.0,
        at_most: Some(at_most),
    };
    vec![
        alone(
            "served",
            "4 streams, and a step of 8 x 512",
            served,
            vec![
                quotient(
                    "95th percentile between tokens by without training",
                    SideFigure(OURS, "p95_s"),
                    SideFigure(OURS, "p95_alone_s"),
                    Some(3.0),
                ),
                quotient(
                    "training's time by alone",
                    SideFigure(OURS, "training_s"),
                    SideFigure(OURS, "training_alone_s"),
                    Some(2.5),
                ),
            ],
        ),
        alone(
            "arrivals",
            "15 prompts of 2,000 tokens arrive in a stream",
            arrivals,
            vec![figure("longest gap in the stream, s", "longest_s", 0.4)],
        ),
        alone(
            "swaps",
            "20 adapters never seen, one after the other, under 32 streams",
            swaps,
            vec![
                figure("failed requests", "failed", 0.0),
                figure("adapters that no stream came to", "adapters_not_used", 0.0),
                figure("longest gap in a stream, s", "longest_s", 0.25),
            ],
        ),
        alone(
            "adapters",
            "eight replies of 64 tokens on eight adapters; nine agents in rotation",
            adapters,
            vec![
                quotient(
                    "time by all on one",
                    SideFigure(OURS, "wall_s"),
                    SideFigure(OURS, "on_one_wall_s"),
                    Some(1.6),
                ),
                quotient(
                    "history by what was kept of it, of the worst agent",
                    SideFigure(OURS, "one"),
                    SideFigure(OURS, "least_cached_share"),
                    Some(1.1),
                ),
            ],
        ),
    ]
}

/// A figure that nothing is promised of.
fn told(what: &'static str, of: SideFigure<'static>) -> Limit {
    Limit {
        what,
        of,
        by: None,
        scale: 1.0,
        at_most: None,
    }
}

fn with(options: &Options, model: &std::path::Path, mut work: Value) -> Value {
    work["model"] = json!(model);
    work["threads"] = options.threads.into();
    work["dtype"] = options.dtype.as_str().into();
    work
}
