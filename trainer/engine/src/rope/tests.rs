use super::*;

/// The textbook form with an explicit `rotate_half`.
fn reference(x: &Tensor, position: f64, theta: f64) -> Tensor {
    let d = x.size()[x.dim() - 1];
    let pairs = Tensor::arange(d / 2, (Kind::Double, Device::Cpu));
    let angles = (pairs * (-2.0 * theta.ln() / d as f64)).exp() * position;
    let angles = Tensor::cat(&[&angles, &angles], 0);
    let halves = x.to_kind(Kind::Double).chunk(2, -1);
    let turned = Tensor::cat(&[&(-&halves[1]), &halves[0]], -1);
    (x * angles.cos() + turned * angles.sin()).to_kind(Kind::Float)
}

#[test]
fn rotation_is_the_textbook_one() {
    let config = crate::testing::tiny_model_config();
    let spec = config.layers[0].rope;
    let rope = Rope::new(&spec, config.head_dim, 16, Kind::Float, Device::Cpu).unwrap();
    let x = Tensor::randn([1, 3, 2, config.head_dim], (Kind::Float, Device::Cpu));
    let turned = rope.range(5, 3).unwrap().rotate(&x).unwrap();
    for t in 0..3 {
        let want = reference(&x.narrow(1, t, 1), 5.0 + t as f64, spec.theta);
        assert!(
            turned.narrow(1, t, 1).allclose(&want, 1e-5, 1e-5, false),
            "position {t}"
        );
    }
    let picked = rope
        .at(&Tensor::from_slice(&[5_i64, 6, 7]))
        .unwrap()
        .rotate(&x)
        .unwrap();
    assert!(picked.equal(&turned));
}

#[test]
fn angles_of_a_million_positions_cost_what_is_asked_for() {
    let config = crate::testing::tiny_model_config();
    let spec = config.layers[0].rope;
    let rope = Rope::new(&spec, config.head_dim, 1 << 20, Kind::Float, Device::Cpu).unwrap();
    let last = rope.range((1 << 20) - 1, 1).unwrap();
    assert_eq!(last.cos.size(), [1, 1, config.head_dim]);
    let beyond = rope.range((1 << 20) - 1, 2).unwrap_err().to_string();
    assert!(beyond.contains("beyond the context of 1048576"), "{beyond}");
}
