//! A cell of the table: its sides, and the limits that are promised.

use serde_json::Value;

/// Runs that belong together.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) sides: Vec<BenchSide>,
    pub(super) limits: Vec<Limit>,
}

/// A program with an input.
#[derive(Debug)]
pub(super) struct BenchSide {
    pub(super) name: &'static str,
    pub(super) input: Value,
    pub(super) program: Program,
    /// Runs of it at most, however many are asked for.
    pub(super) at_most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Engine,
    Peer,
    Vllm,
}

/// A figure of one side: the side's name, and the field of its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct SideFigure<'a>(pub(super) &'a str, pub(super) &'a str);

/// A quotient, or a figure of one side, and what it may be.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) what: &'static str,
    pub(super) of: SideFigure<'static>,
    pub(super) by: Option<SideFigure<'static>>,
    /// The divisor is multiplied by this: for a peer that computed a part.
    pub(super) scale: f64,
    /// The promised limit. A figure without one is only reported.
    pub(super) at_most: Option<f64>,
}

pub(super) const OURS: &str = "ours";
pub(super) const PEER: &str = "peer";
pub(super) const VLLM: &str = "vllm";

/// A side of our own program. Set `program` for another.
pub(super) fn side(name: &'static str, input: Value) -> BenchSide {
    BenchSide {
        name,
        input,
        program: Program::Engine,
        at_most: usize::MAX,
    }
}

/// Our side and the peer's, with the same input.
pub(super) fn both(input: &Value) -> Vec<BenchSide> {
    let peer = BenchSide {
        program: Program::Peer,
        ..side(PEER, input.clone())
    };
    vec![side(OURS, input.clone()), peer]
}

/// Our side and vLLM's, with the same input. vLLM takes a minute to start.
pub(super) fn beside_vllm(input: &Value) -> Vec<BenchSide> {
    let vllm = BenchSide {
        program: Program::Vllm,
        at_most: 3,
        ..side(VLLM, input.clone())
    };
    vec![side(OURS, input.clone()), vllm]
}

/// Our figure by the peer's.
pub(super) fn by_peer(what: &'static str, field: &'static str, at_most: Option<f64>) -> Limit {
    quotient(
        what,
        SideFigure(OURS, field),
        SideFigure(PEER, field),
        at_most,
    )
}

/// A figure of one side by one of another.
pub(super) fn quotient(
    what: &'static str,
    of: SideFigure<'static>,
    by: SideFigure<'static>,
    at_most: Option<f64>,
) -> Limit {
    Limit {
        what,
        of,
        by: Some(by),
        scale: 1.0,
        at_most,
    }
}
