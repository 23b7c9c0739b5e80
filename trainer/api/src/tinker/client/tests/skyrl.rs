//! Tests of the client with SkyRL's observed behaviour.

use super::*;

/// Makes a step on one sequence, its checkpoint, and its adapter of the same name.
async fn made(backend: &TinkerBackend, run: &RunId, mark: u32) -> String {
    let name = format!("main-1-{mark}");
    train_and_save(backend, run, mark, &name).await;
    let saved = backend.save_adapter(run.clone(), adapter(&name));
    saved.await.unwrap();
    name
}

async fn ask(backend: &TinkerBackend, name: &str) -> Result<(), BackendError> {
    let asked = SampleRequest::one_token(name.to_owned());
    backend.sample(asked).await.map(|_| ())
}

fn last_answered(server: &Server) -> Vec<u32> {
    server.inner().answered.last().unwrap().clone()
}

#[tokio::test]
async fn an_adapter_answers_with_its_own_weights_while_others_are_trained() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    let first = made(&backend, &run, 11).await;
    ask(&backend, &first).await.unwrap();
    assert_eq!(last_answered(&server), [11]);
    // The next step is made, and not yet saved; the first adapter has not changed.
    train(&backend, &run, &[12]).await;
    ask(&backend, &first).await.unwrap();
    assert_eq!(last_answered(&server), [11]);
    // Sampling did not replace what is trained.
    save(&backend, &run, "main-1-12").await.unwrap();
    let held = server.saved("/weights/").pop().unwrap();
    assert_eq!(held.1, [11, 12], "{}", held.0);
}

#[tokio::test]
async fn an_adapter_answers_again_after_a_restart() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    let name = made(&backend, &run, 11).await;
    ask(&backend, &name).await.unwrap();
    server.restart();
    ask(&backend, &name).await.unwrap();
    assert_eq!(last_answered(&server), [11]);
    // The same holds with the chat's call, and for a process that has not seen the adapter before.
    server.restart();
    let mut request = chat(1);
    request.adapter = Some(adapter(&name));
    let sampling = Sampler::sample(&backend.sampler(), request).await.unwrap();
    let events: Vec<_> = sampling.events.collect().await;
    assert!(events.iter().all(Result::is_ok), "{events:?}");
    assert_eq!(last_answered(&server), [11]);
    server.restart();
    let other = TinkerBackend::new(super::config(&server));
    let listed = other.adapters().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    ask(&other, &name).await.unwrap();
    assert_eq!(last_answered(&server), [11]);
    // The trained run is not known any more, and is loaded again.
    let error = pass(&backend, &run, &[12]).await.unwrap_err();
    assert!(error.is_unknown_run(), "{error}");
    assert_eq!(load(&backend, &run, &name).await, 1);
    made(&backend, &run, 12).await;
    let held = server.saved("/weights/").pop().unwrap();
    assert_eq!(held.1, [11, 12]);
}

#[tokio::test]
async fn gradients_that_a_slot_was_left_with_are_applied_to_no_other_model() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    made(&backend, &run, 11).await;
    // There are gradients without a step, so the run is closed, as after a failure.
    pass(&backend, &run, &[99]).await.unwrap();
    backend.close_run(run).await.unwrap();
    let fresh = open(&backend).await;
    made(&backend, &fresh, 12).await;
    assert_eq!(server.saved("/weights/").pop().unwrap().1, [12]);
    pass(&backend, &fresh, &[98]).await.unwrap();
    assert_eq!(load(&backend, &fresh, "main-1-11").await, 1);
    made(&backend, &fresh, 13).await;
    assert_eq!(server.saved("/weights/").pop().unwrap().1, [11, 13]);
}

#[tokio::test]
async fn the_adapter_that_was_not_asked_longest_makes_room() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    let mut names = Vec::new();
    for mark in 11..=14 {
        names.push(made(&backend, &run, mark).await);
        ask(&backend, names.last().unwrap()).await.unwrap();
    }
    for (name, mark) in names.iter().zip(11..) {
        ask(&backend, name).await.unwrap();
        let expected: Vec<u32> = (11..=mark).collect();
        assert_eq!(last_answered(&server), expected, "{name}");
    }
    // Other clients take the free capacity; then the server has none.
    let other = TinkerBackend::new(super::config(&server));
    backend.finish().await;
    server.restart();
    for mark in 21..=23 {
        let run = open(&other).await;
        pass(&other, &run, &[mark]).await.unwrap();
    }
    let error = ask(&backend, &names[0]).await.unwrap_err();
    assert_eq!(error.status(), Some(503), "{error}");
    assert!(error.to_string().contains("max_lora_adapters"), "{error}");
}

/// The learner forgets a run whose server it could not reach, or which the server does not know.
#[tokio::test]
async fn models_of_runs_that_were_given_up_make_room() {
    let (server, backend) = world(SKYRL).await;
    for mark in 1..=5 {
        let run = open(&backend).await;
        pass(&backend, &run, &[mark]).await.unwrap();
        server.fail("optim_step", &[Fault::After]);
        let error = step(&backend, &run).await.unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
    }
    for mark in 1..=5 {
        let run = open(&backend).await;
        pass(&backend, &run, &[mark]).await.unwrap();
    }
}

#[tokio::test]
async fn the_base_model_scores_a_prompt_whose_first_token_is_left_out() {
    for manner in [CLOUD, SKYRL] {
        let (_server, backend) = world(manner).await;
        let run = open(&backend).await;
        let found = backend.forward(score(&run, false, 0)).await.unwrap();
        assert_eq!(found.logprobs, [[-0.6, -0.8]], "{manner:?}");
        let found = backend.forward(score(&run, true, 2)).await;
        assert_eq!(found.is_ok(), manner == CLOUD, "{found:?}");
        if let Err(error) = found {
            assert!(error.is_not_supported(), "{error}");
        }
    }
}

#[tokio::test]
async fn a_policy_loss_weighs_only_what_has_an_advantage() {
    for manner in [CLOUD, SKYRL] {
        let (server, backend) = world(manner).await;
        let run = open(&backend).await;
        let datum = Datum::policy(vec![1, 2], vec![2, 3], vec![-1.0, -1.0], vec![0.0, 2.0]);
        let request = ForwardBackwardRequest {
            session_id: run,
            datums: vec![datum.unwrap(), taught(4)],
            loss_fn: LossFn::ImportanceSampling,
            loss_fn_config: LossConfig::new(),
        };
        backend.forward_backward(request).await.unwrap();
        let body = server.last_asked("forward_backward");
        if manner == SKYRL {
            let data = &body["forward_backward_input"]["data"];
            let weights = &data[0]["loss_fn_inputs"]["weights"]["data"];
            assert_eq!(*weights, json!([0.0, 1.0]), "{body}");
        } else {
            assert!(body.is_null(), "protobuf: {body}");
        }
    }
}

#[tokio::test]
async fn what_the_server_cannot_delete_stays_ours() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    for mark in 1..=7 {
        made(&backend, &run, mark).await;
    }
    let deleted = backend.prune(vec![checkpoint("main-1-1")]).await.unwrap();
    assert!(deleted.is_empty(), "{deleted:?}");
    assert_eq!(backend.checkpoints().await.unwrap().len(), 7);
    assert_eq!(server.saved("/weights/").len(), 14);
}

#[tokio::test]
async fn a_place_that_could_not_be_filled_is_given_up() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    let name = made(&backend, &run, 11).await;
    for _ in 0..5 {
        server.fail("load_weights", &[Fault::Fails("user", "no such file")]);
        let error = ask(&backend, &name).await.unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }
    ask(&backend, &name).await.unwrap();
    assert_eq!(last_answered(&server), [11]);
}
