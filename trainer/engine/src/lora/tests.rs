use tch::{Device, Kind, Tensor};

use super::*;
use crate::lora::Part;

const DIMS: LayerDims = LayerDims {
    hidden: 8,
    q_out: 8,
    kv_out: 4,
    ffn: 12,
};

fn spec(rank: i64) -> LoraSpec {
    LoraSpec {
        rank,
        ..LoraSpec::default()
    }
}

#[test]
fn names_are_those_of_peft() {
    let set = Lora::init(spec(2), DIMS, 2, 0).unwrap();
    let names = set.names();
    assert_eq!(names.len(), 2 * 7 * 2);
    assert_eq!(
        names[0],
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    );
    assert_eq!(
        names[27],
        "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    );
}

#[test]
fn names_and_parameters_share_one_order() {
    let set = Lora::init(spec(2), DIMS, 3, 5).unwrap();
    let named = set.names().into_iter();
    let map = named.zip(set.params().map(Tensor::shallow_clone)).collect();
    let again = Lora::from_named(spec(2), DIMS, 3, map).unwrap();
    assert!(set.params().zip(again.params()).all(|(a, b)| a.equal(b)));
}

#[test]
fn a_fresh_set_is_reproducible_bounded_and_adds_nothing() {
    let set = Lora::init(spec(2), DIMS, 1, 11).unwrap();
    let same = Lora::init(spec(2), DIMS, 1, 11).unwrap();
    let other = Lora::init(spec(2), DIMS, 1, 12).unwrap();
    let a = |set: &Lora| set.layer(0).unwrap().get(Projection::Q).unwrap().a.copy();
    assert!(a(&set).equal(&a(&same)));
    assert!(!a(&set).equal(&a(&other)));
    assert!(a(&set).abs().max().double_value(&[]) <= 1.0 / 8f64.sqrt());

    let x = Tensor::randn([1, 3, 8], (Kind::Float, Device::Cpu));
    let layer = set.layer(0).unwrap();
    let delta = layer.delta(&parts(&[Projection::K]), &x).unwrap().unwrap();
    assert!(delta.equal(&delta.zeros_like()));
}

fn parts(projections: &[Projection]) -> Vec<Part> {
    let part = |&projection: &Projection| Part {
        projection,
        width: DIMS.widths(projection).1,
    };
    projections.iter().map(part).collect()
}

#[test]
fn parts_that_read_the_same_input_give_what_each_gives_alone() {
    use Projection::{Gate, K, Q, Up, V};
    let noisy = |targets: &[Projection]| {
        let targets = targets.to_vec();
        let set = Lora::init(LoraSpec { targets, ..spec(2) }, DIMS, 1, 3).unwrap();
        set.try_map(Tensor::f_randn_like).unwrap()
    };
    let x = Tensor::randn([1, 3, 8], (Kind::Float, Device::Cpu));
    for targets in [&[Q, K, V, Gate, Up][..], &[Q, V, Up], &[K]] {
        let set = noisy(targets);
        let served = set.for_serving(Device::Cpu).unwrap();
        for group in [&[Q, K, V][..], &[Gate, Up]] {
            let layer = set.layer(0).unwrap();
            let each = parts(group).into_iter().map(|part| {
                let own = layer.get(part.projection);
                own.map_or_else(
                    || Tensor::zeros([1, 3, part.width], (Kind::Float, Device::Cpu)),
                    |pair| pair.apply(&x, layer.scale).unwrap(),
                )
            });
            let want = Tensor::cat(&each.collect::<Vec<_>>(), -1);
            for set in [
                &set,
                &served,
                &served.to_kind(Kind::Float, Device::Cpu).unwrap(),
            ] {
                let got = set.layer(0).unwrap().delta(&parts(group), &x).unwrap();
                match got {
                    Some(got) => assert!(got.allclose(&want, 1e-5, 1e-5, false), "{targets:?}"),
                    None => assert!(want.equal(&want.zeros_like())),
                }
            }
        }
    }
}

#[test]
fn a_matrix_does_not_depend_on_what_else_is_adapted() {
    let only_v = LoraSpec {
        targets: vec![Projection::V],
        ..spec(2)
    };
    let all = Lora::init(spec(2), DIMS, 2, 4).unwrap();
    let one = Lora::init(only_v, DIMS, 2, 4).unwrap();
    let a = |set: &Lora| set.layer(1).unwrap().get(Projection::V).unwrap().a.copy();
    assert!(a(&all).equal(&a(&one)));
    assert!(one.layer(1).unwrap().get(Projection::Q).is_none());
}

#[test]
fn the_scale_is_alpha_over_rank() {
    let pair = LoraPair {
        a: Tensor::from_slice(&[1f32, 2.0]).reshape([1, 2]),
        b: Tensor::from_slice(&[3f32, 5.0]).reshape([2, 1]),
    };
    let x = Tensor::from_slice(&[10f32, 1.0]).reshape([1, 2]);
    let delta = pair.apply(&x, 32.0 / 16.0).unwrap();
    let wanted = Tensor::from_slice(&[72f32, 120.0]).reshape([1, 2]);
    assert!(delta.equal(&wanted), "{delta:?}");
    assert!((spec(16).scale() - 2.0).abs() < 1e-12);
}

#[test]
fn keeps_the_dtype_of_its_input() {
    let set = Lora::init(spec(2), DIMS, 1, 1).unwrap();
    let x = Tensor::ones([1, 2, 8], (Kind::BFloat16, Device::Cpu));
    let pair = set.layer(0).unwrap().get(Projection::Up).unwrap();
    assert_eq!(pair.apply(&x, 1.0).unwrap().kind(), Kind::BFloat16);
}

#[test]
fn refuses_what_cannot_work() {
    let text = |spec: LoraSpec| Lora::init(spec, DIMS, 1, 0).unwrap_err().to_string();
    assert_eq!(text(spec(0)), "lora rank 0 is not allowed: 1 to 4");
    assert_eq!(text(spec(5)), "lora rank 5 is not allowed: 1 to 4");
    let alpha = LoraSpec {
        alpha: 0,
        ..spec(2)
    };
    assert_eq!(text(alpha), "lora alpha 0 is not allowed: 1 or more");
    let none = LoraSpec {
        targets: vec![],
        ..spec(2)
    };
    assert!(text(none).starts_with("lora targets are empty"));
    let unknown = Projection::from_peft("lm_head").unwrap_err().to_string();
    assert!(unknown.starts_with("lora target \"lm_head\" is unknown: allowed are q_proj, k_proj"));
}

#[test]
fn names_the_tensor_that_does_not_fit() {
    let set = Lora::init(spec(2), DIMS, 1, 0).unwrap();
    let map = || -> BTreeMap<String, Tensor> {
        let params = set.params().map(Tensor::shallow_clone);
        set.names().into_iter().zip(params).collect()
    };
    let error = |map| {
        let result = Lora::from_named(spec(2), DIMS, 1, map);
        result.unwrap_err().to_string()
    };
    let name = peft_name(0, Projection::O, Side::B);

    let mut missing = map();
    missing.remove(&name);
    assert_eq!(error(missing), format!("tensor {name:?} is missing"));

    let mut misshaped = map();
    misshaped.insert(
        name.clone(),
        Tensor::zeros([8, 3], (Kind::Float, Device::Cpu)),
    );
    assert_eq!(
        error(misshaped),
        format!("tensor {name:?} has shape [8, 3], this model and rank need [8, 2]")
    );

    let mut more = map();
    more.insert("x".into(), Tensor::zeros([1], (Kind::Float, Device::Cpu)));
    assert!(error(more).starts_with("tensor \"x\" belongs to no adapted projection"));
}
