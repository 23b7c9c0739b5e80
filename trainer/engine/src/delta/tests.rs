use super::*;
use crate::layer::Mixer;
use crate::model::Model;
use crate::pack::to_i64;
use crate::tests::{OPTIONS, distance, make_model, tiny_nets};

fn net(model: &Model) -> &DeltaNet {
    let Mixer::Delta(net) = &model.weights.layers[0].mixer else {
        panic!("the first layer is a gated delta net")
    };
    net
}

fn run(len: usize, before: Before) -> Run {
    Run { len, before }
}

/// The past of each of `n` sequences whose states and tails are random, after that of a beginning.
fn pasts(net: &DeltaNet, n: i64) -> DeltaPast {
    let DeltaPast { states, tails } = net.beginning(Device::Cpu).unwrap();
    let [_, h, k, v] = states.size()[..] else {
        panic!("four axes")
    };
    let (rows, width) = tails.size2().unwrap();
    DeltaPast {
        states: Tensor::cat(&[states, Tensor::randn([n, h, k, v], OPTIONS)], 0),
        tails: Tensor::cat(&[tails, Tensor::randn([n * rows, width], OPTIONS)], 0),
    }
}

/// Computes the positions of a run one by one from a past, by the rule as it is written down.
fn one_by_one(net: &DeltaNet, x: &Tensor, mut past: DeltaPast) -> (Tensor, DeltaPast) {
    let before = Before::Past { state: 0, tail: 0 };
    let kernel = net.spec.kernel;
    let single = [&[0][..], &[0]];
    let plan = DeltaPlan::in_slots(&[run(1, before)], &[0], kernel, single, Device::Cpu).unwrap();
    let mut all = Vec::new();
    for t in 0..x.size()[1] {
        let x = x.narrow(1, t, 1);
        let (y, left) = net
            .mix(&x, LayerAdapters::None, &past, &plan, 1e-6)
            .unwrap();
        all.push(y);
        past = left;
    }
    (Tensor::cat(&all, 1), past)
}

#[test]
fn a_tree_in_pieces_is_each_path_step_by_step() {
    let model = make_model(&tiny_nets(2));
    let net = net(&model);
    let start = |at| Before::Past {
        state: at,
        tail: at,
    };
    let runs = [
        run(70, start(0)),
        run(3, Before::Run(0)),
        run(66, Before::Run(0)),
        run(1, start(0)),
        run(130, Before::Run(2)),
        run(1, start(1)),
        run(2, Before::Run(5)),
        run(1, Before::Run(6)),
    ];
    let left = [4, 0, 3, 7];
    let past = pasts(net, 1);
    let x = Tensor::randn(
        [1, runs.iter().map(|run| to_i64(run.len)).sum(), 32],
        OPTIONS,
    );
    let plan = DeltaPlan::new(&runs, &left, net.spec.kernel, 2, Device::Cpu).unwrap();
    let (found, found_left) = net
        .mix(&x, LayerAdapters::None, &past, &plan, 1e-6)
        .unwrap();

    let tail = net.spec.kernel - 1;
    let (mut ends, mut wanted, mut first): (Vec<DeltaPast>, _, _) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        let own = match run.before {
            Before::Past { state, tail: at } => DeltaPast {
                states: past.states.narrow(0, to_i64(state), 1),
                tails: past.tails.narrow(0, to_i64(at) * tail, tail),
            },
            Before::Run(parent) => DeltaPast {
                states: ends[parent].states.copy(),
                tails: ends[parent].tails.copy(),
            },
        };
        let (y, end) = one_by_one(net, &x.narrow(1, first, to_i64(run.len)), own);
        first += to_i64(run.len);
        wanted.push(y);
        ends.push(end);
    }
    let far = distance(&found, &Tensor::cat(&wanted, 1));
    assert!(far < 1e-5, "{far:e}");
    let states: Vec<&Tensor> = left.iter().map(|&run| &ends[run].states).collect();
    let far = distance(&found_left.states, &Tensor::cat(&states, 0));
    assert!(far < 1e-5, "{far:e}");
    let tails: Vec<&Tensor> = left.iter().map(|&run| &ends[run].tails).collect();
    let far = distance(&found_left.tails, &Tensor::cat(&tails, 0));
    assert!(far < 1e-6, "{far:e}");
}

#[test]
fn the_beginning_of_a_text_changes_its_end() {
    let model = make_model(&tiny_nets(2));
    let net = net(&model);
    let x = Tensor::randn([1, 150, 32], OPTIONS);
    let other = x.copy();
    let _ = other.narrow(1, 0, 1).fill_(1.0);
    let before = Before::Past { state: 0, tail: 0 };
    let plan = DeltaPlan::new(&[run(150, before)], &[], net.spec.kernel, 1, Device::Cpu).unwrap();
    let past = net.beginning(Device::Cpu).unwrap();
    let last = |x: &Tensor| {
        let (y, _) = net.mix(x, LayerAdapters::None, &past, &plan, 1e-6).unwrap();
        y.select(1, 149)
    };
    // Beyond what the convolution sees, and beyond two pieces.
    assert!(distance(&last(&x), &last(&other)) > 1e-6);
}
