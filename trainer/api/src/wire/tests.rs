use super::*;
use crate::{Datum, LossConfig, LossFn, RunId};

#[test]
fn what_the_forks_client_leaves_out_has_its_defaults() {
    let create: CreateRequest = serde_json::from_str(r#"{"base_model":"Qwen/Qwen3-4B"}"#).unwrap();
    assert_eq!(create.rank, 32);
    let sample: SampleRequest = serde_json::from_str(r#"{"tokens":[1]}"#).unwrap();
    insta::assert_json_snapshot!(sample, @r#"
    {
      "tokens": [
        1
      ],
      "num_samples": 1,
      "temperature": 0.7,
      "max_tokens": 2048,
      "top_k": 50,
      "top_p": 0.95
    }
    "#);
    let step: OptimStepRequest = serde_json::from_str(r#"{"session_id":"0123abcd"}"#).unwrap();
    assert!((step.learning_rate - 1e-4).abs() < f64::EPSILON);
    assert_eq!(step.adam, AdamSettings::default());
}

#[test]
fn a_forks_health_says_nothing_of_what_it_lacks() {
    let health: Health = serde_json::from_str(
        r#"{"status":"healthy","gpu_count":2,"model":"","step":0,"inference_backend":"hf","version":"0.1.0"}"#,
    )
    .unwrap();
    assert!(!health.capabilities.manifests);
    assert!(!health.capabilities.losses.contains(&LossFn::CrossEntropy));
}

#[test]
fn requests_are_written_as_the_fork_reads_them() {
    let session_id: RunId = "0123abcd".parse().unwrap();
    let forward_backward = ForwardBackwardRequest {
        session_id: session_id.clone(),
        datums: vec![Datum::policy(vec![1], vec![2], vec![-0.5], vec![1.0]).unwrap()],
        loss_fn: LossFn::Ppo,
        loss_fn_config: LossConfig::new(),
    };
    let step = OptimStepRequest {
        session_id: session_id.clone(),
        learning_rate: 5e-4,
        adam: AdamSettings {
            grad_clip_norm: Some(1.0),
            ..AdamSettings::default()
        },
    };
    let save = CheckpointSaveRequest {
        session_id,
        name: "main@1".parse().unwrap(),
        manifest: serde_json::json!({"turns": ["1-1"]}),
    };
    let lines = [
        serde_json::to_string(&CreateRequest::default()).unwrap(),
        serde_json::to_string(&forward_backward).unwrap(),
        serde_json::to_string(&step).unwrap(),
        serde_json::to_string(&save).unwrap(),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"base_model":"","rank":32}
    {"session_id":"0123abcd","datums":[{"model_input_tokens":[1],"target_tokens":[2],"logprobs":[-0.5],"advantages":[1.0]}],"loss_fn":"ppo"}
    {"session_id":"0123abcd","learning_rate":0.0005,"grad_clip_norm":1.0}
    {"session_id":"0123abcd","name":"main@1","manifest":{"turns":["1-1"]}}
    "#);
}

#[test]
fn what_a_fork_does_not_answer_has_its_defaults() {
    let found: ForwardBackwardReply =
        serde_json::from_str(r#"{"loss":1.5,"total_tokens":3,"num_datums":1}"#).unwrap();
    assert!(found.loss_fn_outputs.is_empty());
    let stepped: OptimStepReply =
        serde_json::from_str(r#"{"status":"ok","step":1,"grad_norm":0.5}"#).unwrap();
    assert!(!stepped.skipped && stepped.median_grad_norm.is_none());
}

#[test]
fn what_was_not_computed_is_null_and_reads_back() {
    let output = LossFnOutput {
        logprobs: vec![None, Some(-0.5)],
    };
    let json = serde_json::to_string(&output).unwrap();
    assert_eq!(json, r#"{"logprobs":[null,-0.5]}"#);
    assert_eq!(serde_json::from_str::<LossFnOutput>(&json).unwrap(), output);
    let asked: ForwardRequest =
        serde_json::from_str(r#"{"session_id":"0123abcd","datums":[],"positions":[[4,5]]}"#)
            .unwrap();
    assert_eq!(asked.positions, Some(vec![vec![4, 5]]));
    assert!(asked.adapter);
}

#[test]
fn stop_is_one_or_several() {
    let stop = |json: &str| serde_json::from_str::<Stop>(json).unwrap().into_strings();
    assert_eq!(stop(r#""a""#), ["a"]);
    assert_eq!(stop(r#"["a", "", "b"]"#), ["a", "b"]);
}
