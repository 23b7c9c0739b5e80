use tch::{Device, Kind, Tensor};

use super::*;
use crate::lora::FusedPart;
use crate::tests::{DIMS, OPTIONS, all_targets, are_equal, is_near, lora_spec, with_noise, zeros};

fn spec(rank: i64) -> LoraSpec {
    lora_spec(rank, 32, LoraTargets::default())
}

fn fresh(spec: LoraSpec, n_layers: usize, seed: u64) -> Lora {
    Lora::init(spec, DIMS, n_layers, seed).unwrap()
}

#[test]
fn names_are_those_of_peft() {
    let set = fresh(spec(2), 2, 0);
    let names = set.names();
    assert_eq!(names.len(), 2 * 7 * 2);
    let first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let last = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight";
    assert_eq!((&names[0][..], &names[27][..]), (first, last));
}

#[test]
fn names_and_parameters_share_one_order() {
    let set = fresh(spec(2), 3, 5);
    let named = set.names().into_iter();
    let map = named.zip(set.params().map(Tensor::shallow_clone)).collect();
    let again = Lora::from_named(spec(2), DIMS, 3, map).unwrap();
    assert!(are_equal(set.params(), again.params()));
}

#[test]
fn a_fresh_set_is_reproducible_bounded_and_adds_nothing() {
    let set = fresh(spec(2), 1, 11);
    let same = fresh(spec(2), 1, 11);
    let other = fresh(spec(2), 1, 12);
    let a = |set: &Lora| set.layer(0).unwrap().get(Projection::Q).unwrap().a.copy();
    assert!(a(&set).equal(&a(&same)));
    assert!(!a(&set).equal(&a(&other)));
    assert!(a(&set).abs().max().double_value(&[]) <= 1.0 / 8f64.sqrt());

    let x = Tensor::randn([3, 8], OPTIONS);
    let delta = added(set.layer(0).unwrap(), &[Projection::K], &x).unwrap();
    assert!(delta.equal(&delta.zeros_like()));
}

/// What the adapters add to an output of zeros, in the dtype of `x`.
fn added(layer: &LayerLora, projections: &[Projection], x: &Tensor) -> Option<Tensor> {
    let parts = parts(projections);
    let width: i64 = parts.iter().map(|part| part.width).sum();
    let mut y = Tensor::zeros([x.size()[0], width], (x.kind(), Device::Cpu));
    layer.delta(&parts, x).unwrap()?.add_to(&mut y).unwrap();
    Some(y)
}

fn parts(projections: &[Projection]) -> Vec<FusedPart> {
    let part = |&projection: &Projection| FusedPart {
        projection,
        width: DIMS.widths(0, projection).1,
    };
    projections.iter().map(part).collect()
}

#[test]
fn parts_that_read_the_same_input_give_what_each_gives_alone() {
    use Projection::{Gate, K, Q, Up, V};
    let noisy = |targets: &[Projection]| {
        let targets = targets.to_vec().into();
        let set = fresh(LoraSpec { targets, ..spec(2) }, 1, 3);
        set.try_map(Tensor::f_randn_like).unwrap()
    };
    let x = Tensor::randn([3, 8], OPTIONS);
    for targets in [&[Q, K, V, Gate, Up][..], &[Q, V, Up], &[K]] {
        let set = noisy(targets);
        let served = set.for_serving(&Placement::on(Device::Cpu)).unwrap();
        for group in [&[Q, K, V][..], &[Gate, Up]] {
            let layer = set.layer(0).unwrap();
            let each = parts(group).into_iter().map(|part| {
                let own = layer.get(part.projection);
                let apply = |pair: &LoraPair| {
                    x.linear(&pair.a, None::<Tensor>)
                        .linear(&pair.b, None::<Tensor>)
                        * layer.scale
                };
                own.map_or_else(|| zeros([3, part.width]), apply)
            });
            let want = Tensor::cat(&each.collect::<Vec<_>>(), -1);
            for set in [&set, &served, &served.handles().unwrap()] {
                let got = added(set.layer(0).unwrap(), group, &x);
                match got {
                    Some(got) => assert!(is_near(&got, &want, 1e-5), "{targets:?}"),
                    None => assert!(want.equal(&want.zeros_like())),
                }
            }
        }
    }
}

#[test]
fn a_matrix_does_not_depend_on_what_else_is_adapted() {
    let only_v = lora_spec(2, 32, vec![Projection::V]);
    let all = fresh(spec(2), 2, 4);
    let one = fresh(only_v, 2, 4);
    let a = |set: &Lora| set.layer(1).unwrap().get(Projection::V).unwrap().a.copy();
    assert!(a(&all).equal(&a(&one)));
    assert!(one.layer(1).unwrap().get(Projection::Q).is_none());
}

#[test]
fn the_scale_is_alpha_over_rank() {
    let set = fresh(lora_spec(1, 2, vec![Projection::O]), 1, 3);
    let ones = set.try_map(Tensor::f_ones_like).unwrap();
    let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).reshape([1, 8]);
    let delta = added(ones.layer(0).unwrap(), &[Projection::O], &x).unwrap();
    assert!(
        delta.equal(&Tensor::full([1, 8], 72.0, OPTIONS)),
        "{delta:?}"
    );
    assert!((spec(16).scale() - 2.0).abs() < 1e-12);
}

#[test]
fn keeps_the_dtype_of_its_input() {
    let set = fresh(spec(2), 1, 1);
    let x = Tensor::ones([2, 8], (Kind::BFloat16, Device::Cpu));
    let noisy = with_noise(&set, 3);
    let half = added(noisy.layer(0).unwrap(), &[Projection::Up], &x).unwrap();
    let full = added(
        noisy.layer(0).unwrap(),
        &[Projection::Up],
        &x.to_kind(Kind::Float),
    )
    .unwrap();
    // What is added is rounded once.
    assert!(half.equal(&full.to_kind(Kind::BFloat16)));
}

#[test]
fn refuses_what_cannot_work() {
    let text = |spec: LoraSpec| Lora::init(spec, DIMS, 1, 0).unwrap_err().to_string();
    assert_eq!(text(spec(0)), "lora rank 0 is not allowed: 1 to 4");
    assert_eq!(text(spec(5)), "lora rank 5 is not allowed: 1 to 4");
    let alpha = lora_spec(2, 0, LoraTargets::default());
    assert_eq!(text(alpha), "lora alpha 0 is not allowed: 1 or more");
    let none = lora_spec(2, 32, LoraTargets::groups(false, false, false));
    assert!(text(none).starts_with("lora targets are empty"));
    let unknown = LoraTargets::named(["q_proj", "embed_tokens"]).unwrap_err();
    insta::assert_snapshot!(unknown, @r#"lora target "embed_tokens" is unknown: allowed are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, out_proj, lm_head"#);
}

#[test]
fn names_the_tensor_that_does_not_fit() {
    let set = fresh(spec(2), 1, 0);
    let map = || -> BTreeMap<String, Tensor> {
        let params = set.params().map(Tensor::shallow_clone);
        set.names().into_iter().zip(params).collect()
    };
    let error = |map| {
        let result = Lora::from_named(spec(2), DIMS, 1, map);
        result.unwrap_err().to_string()
    };
    let name = Param::Layer(0, Projection::O, Side::B).peft_name(DIMS.layers_at);

    let mut missing = map();
    missing.remove(&name);
    assert_eq!(error(missing), format!("tensor {name:?} is missing"));

    let mut misshaped = map();
    misshaped.insert(name.clone(), zeros([8, 3]));
    let shapes = "has shape [8, 3], this model and rank need [8, 2]";
    assert_eq!(error(misshaped), format!("tensor {name:?} {shapes}"));

    let mut more = map();
    more.insert("x".into(), zeros([1]));
    assert!(error(more).starts_with("tensor \"x\" belongs to no adapted map"));
}

#[test]
fn targets_go_by_name_or_by_tinkers_groups() {
    let names = |attn, mlp, unembed| LoraTargets::groups(attn, mlp, unembed).names();
    let attention = ["q_proj", "k_proj", "v_proj", "o_proj"];
    assert_eq!(names(true, false, false), attention);
    let mlp = ["gate_proj", "up_proj", "down_proj"];
    assert_eq!(names(false, true, false), mlp);
    assert_eq!(names(false, false, true), ["lm_head"]);
    assert!(LoraTargets::groups(false, false, false).is_empty());
    let all = all_targets();
    let mut backwards = all.names();
    backwards.reverse();
    let targets = LoraTargets::named(backwards).unwrap();
    let checked = LoraSpec { targets, ..spec(2) }.checked(&DIMS).unwrap();
    assert_eq!(checked.targets, all);
    let layers = LoraTargets::groups(true, true, false);
    assert_eq!(LoraSpec::default().targets, layers);
}

fn with_head() -> LoraSpec {
    lora_spec(2, 32, LoraTargets::groups(false, true, true))
}

#[test]
fn the_lm_head_is_the_last_of_the_parameters() {
    let set = fresh(with_head(), 2, 4);
    let names = set.names();
    assert_eq!(names.len(), 2 * 3 * 2 + 2);
    let of = |side: &str| format!("base_model.model.lm_head.lora_{side}.weight");
    assert_eq!(names[12..], ["A", "B"].map(of));
    let shapes: Vec<_> = set.params().skip(12).map(Tensor::size).collect();
    assert_eq!(shapes, [[2, 8], [20, 2]]);
    let n_params = with_head().targets.n_params(2, &DIMS, 2);
    assert_eq!(set.n_params(), n_params);
    assert_eq!(set.n_params(), 2 * 2 * (20 + 20 + 20) + 2 * (8 + 20));
    // Its first numbers equal those of a set that adapts nothing else. None of them belongs to a layer.
    let spec = lora_spec(2, 32, LoraTargets::groups(false, false, true));
    let alone = fresh(spec, 5, 4);
    let pair = |set: &Lora| set.head().unwrap().pair.a.copy();
    assert!(pair(&alone).equal(&pair(&set)));
    assert!(!pair(&set).equal(&set.params().next().unwrap().copy()));
}

#[test]
fn a_set_that_serves_has_the_scale_of_the_head_in_its_b() {
    let set = fresh(with_head(), 1, 4);
    let set = set.try_map(Tensor::f_randn_like).unwrap();
    let served = set.for_serving(&Placement::on(Device::Cpu)).unwrap();
    let x = Tensor::randn([3, 8], OPTIONS);
    let delta = |set: &Lora| {
        let (head, sum) = (set.head().unwrap(), zeros([3, 20]));
        let low = head.low(&x).unwrap();
        head.add_to(&low, sum.shallow_clone()).unwrap();
        sum
    };
    assert!((served.head().unwrap().scale - 1.0).abs() < f64::EPSILON);
    assert!(is_near(&delta(&set), &delta(&served), 1e-5));
    assert!(!is_near(&delta(&set), &zeros([3, 20]), 1e-3));
}

/// PEFT stores the base model's own matrix beside an adapter of it.
#[test]
fn the_bases_lm_head_in_a_file_of_peft_is_left_out() {
    let set = fresh(with_head(), 1, 4);
    let map = |base: &[i64]| -> BTreeMap<String, Tensor> {
        let params = set.params().map(Tensor::shallow_clone);
        let base = Tensor::zeros(base, OPTIONS);
        let named = set.names().into_iter().zip(params);
        named.chain([(PEFT_HEAD_BASE.to_owned(), base)]).collect()
    };
    let read = |base: &[i64]| Lora::from_named(with_head(), DIMS, 1, map(base));
    assert_eq!(read(&[20, 8]).unwrap().names(), set.names());
    let error = read(&[21, 8]).unwrap_err().to_string();
    let shapes = "has shape [21, 8], this model and rank need [20, 8]";
    assert!(error.ends_with(shapes), "{error}");
}
