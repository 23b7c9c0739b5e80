//! Tests that the results for a prompt equal those of one dense pass, however the prompt was read.

use super::serving::{core, run_all};
use super::*;
use crate::generate::{PromptLogprobs, PromptToken};
use tch::Tensor;

/// Returns the log-probability of each token from the second on, and the ids and log-probabilities of the most likely
/// ones there, `[n, k]`.
fn dense(model: &Model, lora: Option<&Lora>, prompt: &[u32], k: i64) -> (Vec<f32>, Tensor, Tensor) {
    let logits = forward(model, &prompt[..prompt.len() - 1], lora);
    let all = logits.log_softmax(-1, Kind::Float);
    let targets: Vec<i64> = prompt[1..].iter().copied().map(i64::from).collect();
    let own = all.gather(1, &Tensor::from_slice(&targets).unsqueeze(1), false);
    let (top, ids) = all.topk(k, -1, true, true);
    (Vec::try_from(&own.reshape([-1])).unwrap(), ids, top)
}

#[track_caller]
fn assert_told(tokens: &[PromptToken], (own, ids, top): &(Vec<f32>, Tensor, Tensor)) {
    assert_eq!(tokens.len(), own.len());
    let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-3;
    for ((i, token), own) in (0..).zip(tokens).zip(own) {
        assert!(near(token.logprob, f64::from(*own)), "token {}", i + 1);
        let k = ids.size()[1];
        assert_eq!(token.top.len(), usize::try_from(k).unwrap());
        for (j, (id, logprob)) in (0..).zip(&token.top) {
            assert_eq!(i64::from(*id), ids.int64_value(&[i, j]), "token {}", i + 1);
            assert!(near(*logprob, top.double_value(&[i, j])));
        }
    }
}

fn told(prompt_ids: &[u32], top: usize) -> GenerateRequest {
    GenerateRequest {
        prompt_logprobs: Some(PromptLogprobs { top }),
        ..request(prompt_ids, 3)
    }
}

async fn tell(engine: &Engine, request: GenerateRequest) -> (Vec<PromptToken>, Vec<u32>) {
    let mut stream = engine.generate(request).await.unwrap();
    let told = stream.prompt().await.unwrap();
    assert!(stream.prompt().await.is_none(), "it was given");
    (told, ids(&collect(&mut stream).await.unwrap().0))
}

#[tokio::test]
async fn a_prompt_is_told_under_every_adapter_and_from_a_warm_cache() {
    let place = Place::new();
    let (engine, model) = (place.engine(), place.model());
    let lora = place.adapter("a", 3);
    // It is longer than the rows of the first round, and than the positions of the LM head at once.
    let prompt = prompt(300);
    // The whole prompt is cached before it is requested.
    let plain = ids(&run(&engine, request(&prompt, 3)).await.unwrap().0);
    let adapted = run(&engine, under("a", request(&prompt, 3)))
        .await
        .unwrap()
        .0;
    let (base, own) = tokio::join!(
        tell(&engine, told(&prompt, 4)),
        tell(&engine, under("a", told(&prompt, 0)))
    );
    assert_told(&base.0, &dense(&model, None, &prompt, 4));
    assert_told(&own.0, &dense(&model, Some(&lora), &prompt, 0));
    // Replies are the same.
    assert_eq!((base.1, own.1), (plain, ids(&adapted)));
    assert!((base.0[0].logprob - own.0[0].logprob).abs() > 1e-3);
}

#[tokio::test]
async fn what_is_not_asked_for_or_cannot_be_is_not_told() {
    let place = Place::new();
    let engine = place.engine();
    let mut stream = engine.generate(request(&[7, 8], 1)).await.unwrap();
    assert!(stream.prompt().await.is_none());
    let (of_one, reply) = tell(&engine, told(&[7], 2)).await;
    assert_eq!((of_one.len(), reply.len()), (0, 3));
    let refused = refusal(&engine, told(&[7, 8], 129)).await;
    assert_eq!(refused, "prompt_logprobs is 129, allowed: 0 to 128");
}

/// If a reply loses its place in the middle of its prompt, it continues there, and reports nothing twice.
#[test]
fn a_prompt_that_is_put_off_is_told_once() {
    let place = Place::new();
    let (model, lora) = (place.model(), place.adapter("a", 3));
    let prompt = prompt(400);
    let mut core = core(&place, 1024);
    let mut answer = begin(&mut core, under("a", told(&prompt, 2)));
    // Of 128 positions, 127 or 128 are reported.
    core.round();
    core.serving_mut().put_youngest_off();
    assert_eq!(core.serving().n_preempted(), 1);
    let mut begun = stream(&mut answer);
    while core.serving().has_live() {
        core.round();
    }
    let told = block_on(begun.prompt());
    assert_told(&told.unwrap(), &dense(&model, Some(&lora), &prompt, 2));
    // The next one can use its pages.
    let next = under("a", request(&prompt, 3));
    assert!(run_all(&mut core, &[next])[0].1.cached >= 384);
}

#[tokio::test]
async fn nothing_ends_a_reply_that_has_no_stops_and_ignores_the_models_own() {
    let place = Place::new();
    let engine = place.engine();
    let end = engine.info().end_ids[0];
    let noise = |seed, ignore_eos| {
        let request = sampled(100.0, Some(seed), request(&prompt(10), 400));
        GenerateRequest {
            ignore_eos,
            ..request
        }
    };
    for seed in 0..20 {
        let (all, finished) = run(&engine, noise(seed, true)).await.unwrap();
        assert_eq!((all.len(), finished.reason), (400, FinishReason::Length));
        let Some(at) = ids(&all).iter().position(|&id| id == end) else {
            continue;
        };
        let (tokens, finished) = run(&engine, noise(seed, false)).await.unwrap();
        assert_eq!(tokens.len(), at + 1);
        assert_eq!(finished.reason, FinishReason::Stop);
        return;
    }
    panic!("no seed gives an end id");
}
