use super::*;

fn read(json: &str) -> Result<Datum, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn both_forms_read_to_the_same_datum() {
    let lists = read(
        r#"{"model_input_tokens":[1,2],"target_tokens":[2,3],"logprobs":[-0.5,-1.25],"advantages":[0,1]}"#,
    );
    // The text is struct.pack('<2q', 2, 3), and '<2f' for the others, in base64.
    let tensors = read(
        r#"{"model_input_tokens":[1,2],"loss_fn_inputs":{
            "target_tokens":{"dtype":"int64","shape":[2],"data":"AgAAAAAAAAADAAAAAAAAAA=="},
            "logprobs":{"dtype":"float32","shape":[2],"data":"AAAAvwAAoL8="},
            "advantages":{"dtype":"float32","data":[0, 1]}}}"#,
    );
    assert_eq!(lists, tensors);
    assert_eq!(lists.unwrap().parts().logprobs, Some(vec![-0.5, -1.25]));
}

#[test]
fn what_is_written_reads_back() {
    let vector = Datum::policy(vec![1, 2], vec![2, 3], vec![-0.1, -2.3], vec![0.0, 1.0]).unwrap();
    let matrix = Datum::new(DatumParts {
        model_input_tokens: vec![7, 8],
        target_tokens: Tensor2::shaped(vec![1, 2, 3, 4], &[2, 2]).unwrap(),
        weights: Some(Tensor2::shaped(vec![0.1, 0.9, 0.0, -1.0], &[2, 2]).unwrap()),
        logprobs: None,
        advantages: None,
    })
    .unwrap();
    for datum in [vector, matrix] {
        let json = serde_json::to_string(&datum).unwrap();
        assert_eq!(read(&json).unwrap(), datum, "{json}");
    }
}

#[test]
fn the_wire_json_is_the_forks() {
    let vector = Datum::policy(vec![1, 2], vec![2, 3], vec![-0.1, -2.3], vec![0.0, 1.0]).unwrap();
    insta::assert_snapshot!(serde_json::to_string(&vector).unwrap(), @r#"{"model_input_tokens":[1,2],"target_tokens":[2,3],"logprobs":[-0.1,-2.3],"advantages":[0.0,1.0]}"#);
    let matrix = Datum::new(DatumParts {
        model_input_tokens: vec![7],
        target_tokens: Tensor2::shaped(vec![1, 2], &[1, 2]).unwrap(),
        weights: Some(Tensor2::shaped(vec![0.25, 0.75], &[1, 2]).unwrap()),
        logprobs: None,
        advantages: None,
    });
    insta::assert_snapshot!(serde_json::to_string(&matrix.unwrap()).unwrap(), @r#"{"model_input_tokens":[7],"loss_fn_inputs":{"target_tokens":{"dtype":"int64","shape":[1,2],"data":"AQAAAAAAAAACAAAAAAAAAA=="},"weights":{"dtype":"float32","shape":[1,2],"data":"AACAPgAAQD8="}}}"#);
}

#[test]
fn a_bad_datum_is_refused_by_field() {
    let messages: Vec<String> = [
        r#"{"model_input_tokens":[],"target_tokens":[]}"#,
        r#"{"model_input_tokens":[1]}"#,
        r#"{"model_input_tokens":[1,2],"target_tokens":[2]}"#,
        r#"{"model_input_tokens":[1],"target_tokens":[-2]}"#,
        r#"{"model_input_tokens":[5000000000],"target_tokens":[2]}"#,
        r#"{"model_input_tokens":[1],"target_tokens":[2],"advantages":[1,2]}"#,
        r#"{"model_input_tokens":[1],"target_tokens":[2],"logprobs":[1e300]}"#,
        r#"{"model_input_tokens":[1],"target_tokens":[2],"weights":[1],"loss_fn_inputs":{"weights":{"dtype":"float32","data":[1]}}}"#,
        r#"{"model_input_tokens":[1],"loss_fn_inputs":{"target_tokens":{"dtype":"float32","data":[1]}}}"#,
        r#"{"model_input_tokens":[1],"loss_fn_inputs":{"target_tokens":{"dtype":"int64","data":"AAAA"}}}"#,
        r#"{"model_input_tokens":[1],"loss_fn_inputs":{"target_tokens":{"dtype":"int64","data":"!"}}}"#,
        r#"{"model_input_tokens":[1],"loss_fn_inputs":{"target_tokens":{"dtype":"int64","data":[1.5]}}}"#,
        r#"{"model_input_tokens":[1],"loss_fn_inputs":{"target_tokens":{"dtype":"int64","shape":[1,2],"data":[1]}}}"#,
        r#"{"model_input_tokens":[1],"target_tokens":[1],"loss_fn_inputs":{"mask":{"dtype":"float32","data":[1]}}}"#,
    ]
    .into_iter()
    .map(|json| read(json).unwrap_err())
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}
