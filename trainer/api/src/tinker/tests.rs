//! Bodies that the real SDK sent and took (0.38.0 and 0.24.1), and what must be refused.

use prost::Message as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{json::*, *};
use crate::{Datum, DatumParts, Tensor2};

const FORWARD_BACKWARD: &str = "\
0a11736573732d303030313a747261696e3a3010011a740a140a120a100100000002000000030000000400000012220a077765696768747312170a10000000000000803f\
0000803f0000803f180122010412380a0d7461726765745f746f6b656e7312270a2002000000000000000300000000000000040000000000000005000000000000001802\
2201041a740a140a120a100100000002000000030000000400000012220a077765696768747312170a10000000000000803f0000803f0000803f180122010412380a0d74\
61726765745f746f6b656e7312270a2002000000000000000300000000000000040000000000000005000000000000001802220104220d63726f73735f656e74726f7079";
const OUTPUT: &str = "\
0a0f546f7263684c6f737352657475726e12b3010a0f546f7263684c6f737352657475726e12520a10656c656d656e74776973655f6c6f7373123e0a200000803f000080\
3f0000803f0000803f0000803f0000803f0000803f0000803f12180000000000000000100000000000000020000000000000001801124a0a086c6f6770726f6273123e0a\
20000080bf000080bf000080bf000080bf000080bf000080bf000080bf000080bf1218000000000000000010000000000000002000000000000000180118021a130a086c\
6f73733a73756d110000000000002040";
const SAMPLED: &str = "0a0e08011204000000001a04000000bf120c0000c07f000000c0000000c0";

fn hex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// The two datums of the captured request.
fn datums() -> Vec<Datum> {
    let datum = Datum::cross_entropy(vec![1, 2, 3, 4], vec![2, 3, 4, 5], vec![0.0, 1.0, 1.0, 1.0]);
    vec![datum.clone().unwrap(), datum.unwrap()]
}

#[test]
fn the_captured_forward_backward_is_read_and_written() {
    let captured = hex(FORWARD_BACKWARD);
    let read = proto::ProtoForwardBackward::decode(captured.as_slice()).unwrap();
    assert_eq!(read.model_id, "sess-0001:train:0");
    assert_eq!((read.seq_id, read.loss_fn.as_str()), (1, "cross_entropy"));
    assert_eq!(from_proto(read.data.clone()).unwrap(), datums());
    let written = proto::ProtoForwardBackward {
        model_id: "sess-0001:train:0".to_owned(),
        seq_id: 1,
        data: datums().iter().map(to_proto).collect(),
        loss_fn: "cross_entropy".to_owned(),
        ..Default::default()
    };
    // The order of a map's entries is the writer's own: all bytes are the same but for that.
    assert_eq!(written, read);
    assert_eq!(written.encoded_len(), captured.len());
}

#[test]
fn the_captured_results_are_read_and_written() {
    let captured = hex(OUTPUT);
    let read = proto::ForwardBackwardOutput::decode(captured.as_slice()).unwrap();
    assert_eq!(read.encode_to_vec(), captured);
    let output = TrainOutput::from_proto(read.clone()).unwrap();
    let logprobs = vec![Tensor2::vector(vec![-1.0; 4]); 2];
    assert_eq!(output, TrainOutput::new(logprobs, 8.0));
    let mut without = read;
    without.loss_fn_outputs[0].fields.remove("elementwise_loss");
    assert_eq!(output.to_proto(), without);

    let captured = hex(SAMPLED);
    let read = proto::SampleResponse::decode(captured.as_slice()).unwrap();
    let sample = SampleOutput::from_proto(read).unwrap();
    assert_eq!(sample.sequences[0].stop_reason, StopReason::Length);
    let of_prompt = vec![None, Some(-2.0), Some(-2.0)];
    assert_eq!(sample.prompt_logprobs, Some(of_prompt));
    assert_eq!(sample.to_proto().encode_to_vec(), captured);
}

/// Reads a captured body and writes it again.
fn same<T: DeserializeOwned + Serialize>(captured: &Value) {
    let read: T = serde_json::from_value(captured.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), *captured);
}

#[test]
fn the_captured_json_bodies_are_read_and_written() {
    same::<ClientConfigRequest>(&json!({"sdk_version": "0.38.0"}));
    same::<CreateSession>(
        &json!({"tags": [], "user_metadata": {}, "sdk_version": "0.38.0", "type": "create_session"}),
    );
    same::<CreateModel>(
        &json!({"session_id": "sess-0001", "model_seq_id": 0, "base_model": "Qwen/Qwen3-8B",
        "lora_config": {"rank": 8, "seed": 7, "train_unembed": true, "train_mlp": true, "train_attn": true},
        "optimizer_config": {"type": "adamw"}, "type": "create_model"}),
    );
    same::<RetrieveFuture>(&json!({"request_id": "req-1", "allow_metadata_only": true}));
    same::<GetInfo>(&json!({"model_id": "sess-0001:train:0", "type": "get_info"}));
    same::<OptimStep>(
        &json!({"model_id": "sess-0001:train:0", "seq_id": 2, "type": "optim_step",
        "adam_params": {"learning_rate": 0.0001, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0,
        "grad_clip_norm": 0.0}}),
    );
    same::<SaveForSampler>(
        &json!({"model_id": "sess-0001:train:0", "sampling_session_seq_id": 0, "kind": "snapshot",
        "seq_id": 5, "type": "save_weights_for_sampler"}),
    );
    same::<SaveForSampler>(
        &json!({"model_id": "sess-0001:train:0", "path": "step-1", "kind": "snapshot", "seq_id": 7,
        "ttl_seconds": 3600, "type": "save_weights_for_sampler"}),
    );
    same::<SampleCall>(
        &json!({"num_samples": 2, "prompt": {"chunks": [{"tokens": [1, 2, 3], "type": "encoded_text"}]},
        "sampling_params": {"max_tokens": 3, "stop": ["\n"], "temperature": 0.7, "top_k": -1, "top_p": 1.0},
        "sampling_session_id": "sess-0001:sample:0", "seq_id": 0, "prompt_logprobs": true, "topk_prompt_logprobs": 2,
        "topk_sample_logprobs": 2, "prompt_alt_tokens_k": 0, "record_stability_info": false, "type": "sample"}),
    );
    same::<SaveWeights>(
        &json!({"model_id": "sess-0001:train:0", "path": "step-1", "seq_id": 6, "overwrite": false,
        "type": "save_weights"}),
    );
    same::<CreateSamplingSession>(
        &json!({"session_id": "sess-0001", "sampling_session_seq_id": 1,
        "model_path": "tinker://sess-0001:train:0/sampler_weights/step-1", "type": "create_sampling_session"}),
    );
    same::<LoadWeights>(&json!({"session_id": "sess-0001", "model_seq_id": 1,
        "path": "tinker://sess-0001:train:0/weights/step-1", "optimizer": true, "type": "load_weights"}));
    same::<Heartbeat>(&json!({"session_id": "sess-0001", "type": "session_heartbeat"}));
    same::<FinishSession>(&json!({"reason": {"type": "success"}, "detail": null}));
}

#[test]
fn the_captured_bodies_of_the_old_dialect_are_read_and_written() {
    let input = json!({"data": [{
        "loss_fn_inputs": {"target_tokens": {"data": [2, 3, 4, 5], "dtype": "int64", "shape": [4]},
            "weights": {"data": [0.0, 1.0, 1.0, 1.0], "dtype": "float32", "shape": [4]}},
        "model_input": {"chunks": [{"tokens": [1, 2, 3, 4], "type": "encoded_text"}]}}],
        "loss_fn": "cross_entropy"});
    let body =
        json!({"forward_backward_input": input, "model_id": "sess-0001:train:0", "seq_id": 1});
    same::<ForwardBackward>(&body);
    let read: ForwardBackward = serde_json::from_value(body).unwrap();
    let data = from_json(read.forward_backward_input.data.clone()).unwrap();
    assert_eq!(data, datums()[..1]);
    assert_eq!(to_json(&datums()[0]), read.forward_backward_input.data[0]);
    let forward = json!({"forward_input": input, "model_id": "sess-0001:train:0", "seq_id": 1});
    let forward: ForwardBackward = serde_json::from_value(forward).unwrap();
    assert_eq!(forward, read);
    same::<WeightsInfoRequest>(
        &json!({"tinker_path": "tinker://sess-0001:train:0/weights/step-1"}),
    );
    same::<LoadWeights>(&json!({"model_id": "sess-0001:train:1", "seq_id": 1,
        "path": "tinker://sess-0001:train:0/weights/step-1", "optimizer": true, "type": "load_weights"}));
}

/// Two positions, three targets at each.
fn matrix() -> Datum {
    let parts = DatumParts {
        model_input_tokens: vec![7, 8],
        target_tokens: Tensor2::shaped(vec![5, 0, 0, 0, 0, 6], &[2, 3]).unwrap(),
        weights: Some(Tensor2::shaped(vec![0.5, 0.0, 0.0, 0.0, 0.0, 2.0], &[2, 3]).unwrap()),
        logprobs: None,
        advantages: None,
    };
    Datum::new(parts).unwrap()
}

fn sparse<T>(
    values: &[T],
    width: i64,
    bytes: fn(&T) -> Vec<u8>,
    dtype: proto::DType,
) -> proto::Tensor {
    let longs = |all: &[i64]| all.iter().flat_map(|n| n.to_le_bytes()).collect();
    proto::Tensor {
        values: Some(proto::Values::SparseCsr(proto::SparseCsr {
            values: values.iter().flat_map(bytes).collect(),
            crow_indices: longs(&[0, 1, 2]),
            col_indices: longs(&[0, 2]),
        })),
        dtype: dtype.into(),
        shape: vec![2, width],
    }
}

#[test]
fn several_targets_a_position_come_dense_or_sparse() {
    let datum = matrix();
    assert_eq!(from_proto(vec![to_proto(&datum)]).unwrap()[0], datum);
    assert_eq!(from_json(vec![to_json(&datum)]).unwrap()[0], datum);
    let mut sent = to_proto(&datum);
    let ids = sparse(
        &[5_i64, 6],
        3,
        |n| n.to_le_bytes().to_vec(),
        proto::DType::Int64,
    );
    let weights = sparse(
        &[0.5_f32, 2.0],
        3,
        |n| n.to_le_bytes().to_vec(),
        proto::DType::Float32,
    );
    sent.loss_fn_inputs.insert("target_tokens".to_owned(), ids);
    sent.loss_fn_inputs.insert("weights".to_owned(), weights);
    assert_eq!(from_proto(vec![sent]).unwrap()[0], datum);
    let output = TrainOutput::new(
        vec![
            Tensor2::vector(vec![-1.0]),
            Tensor2::shaped(vec![-1.0; 6], &[2, 3]).unwrap(),
        ],
        1.0,
    );
    assert_eq!(TrainOutput::from_proto(output.to_proto()).unwrap(), output);
    assert_eq!(TrainOutput::from_json(output.to_json()).unwrap(), output);
}

#[test]
fn a_datum_that_cannot_be_read_is_refused_by_its_field() {
    let tensor = |values: Vec<u8>, dtype: proto::DType, shape: Vec<i64>| proto::Tensor {
        values: Some(proto::Values::Dense(values)),
        dtype: dtype.into(),
        shape,
    };
    let changed = |name: &str, tensor| {
        let mut datum = to_proto(&datums()[0]);
        datum.loss_fn_inputs.insert(name.to_owned(), tensor);
        from_proto(vec![to_proto(&datums()[0]), datum])
            .unwrap_err()
            .to_string()
    };
    let image = proto::ProtoChunk {
        piece: Some(proto::ChunkPiece::Image(proto::ImageChunk::default())),
    };
    let mut picture = to_proto(&datums()[0]);
    picture.model_input.push(image);
    let large = sparse(
        &[5_i64, 6],
        1 << 40,
        |n| n.to_le_bytes().to_vec(),
        proto::DType::Int64,
    );
    let outside = sparse(
        &[5_i64, 6],
        2,
        |n| n.to_le_bytes().to_vec(),
        proto::DType::Int64,
    );
    let refusals = [
        changed(
            "weights",
            tensor(vec![0; 7], proto::DType::Float32, vec![2]),
        ),
        changed("weights", tensor(vec![0; 16], proto::DType::Int64, vec![2])),
        changed(
            "target_tokens",
            tensor(vec![0xff; 32], proto::DType::Int64, vec![4]),
        ),
        changed(
            "target_tokens",
            tensor(vec![0; 32], proto::DType::Int64, vec![-4]),
        ),
        changed(
            "target_tokens",
            tensor(vec![0; 32], proto::DType::Int64, vec![1, 2, 2]),
        ),
        changed("target_tokens", large),
        changed("target_tokens", outside),
        changed(
            "advantages",
            tensor(vec![0; 4], proto::DType::Float32, vec![1]),
        ),
        changed("clip", tensor(vec![0; 4], proto::DType::Float32, vec![1])),
        from_proto(vec![picture]).unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn the_likeliest_ids_keep_their_places() {
    let sample = SampleOutput {
        sequences: vec![Sequence {
            stop_reason: StopReason::Stop,
            tokens: vec![3, 4],
            logprobs: Some(vec![-0.5, -0.25]),
            topk_logprobs: Some(vec![
                Some(vec![(3, -0.5), (9, -1.0)]),
                Some(vec![(4, -0.25)]),
            ]),
        }],
        prompt_logprobs: Some(vec![None, Some(-1.5)]),
        topk_prompt_logprobs: Some(vec![None, Some(vec![(1, -0.1), (2, -0.2)])]),
        n_cached: 1,
    };
    assert_eq!(SampleOutput::from_proto(sample.to_proto()).unwrap(), sample);
    let json = serde_json::to_string(&sample.to_json(&["s-0".to_owned()])).unwrap();
    let read = serde_json::from_str(&json).unwrap();
    assert_eq!(SampleOutput::from_json(read), sample);
}
