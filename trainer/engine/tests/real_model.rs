//! Compares the demo model with the results of transformers.
//!
//! It runs if METACLAW_TEST_MODEL names SmolLM2-135M-Instruct.Q4_1.gguf, and says otherwise why it does not. The values
//! are those of transformers 5.23 with PyTorch 2.11, f32, for the converted folder.

use std::path::PathBuf;

use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::generate::{FinishReason, GenerateEvent, GenerateRequest};
use metaclaw_engine::sampler::SamplingParams;
use serde_json::json;

const TEXTS: [(&str, &[u32]); 6] = [
    (
        "The capital of France is Paris.",
        &[504, 3575, 282, 4649, 314, 7042, 30],
    ),
    (
        "今天天气很好，我们去公园吧。🙂",
        &[
            15076, 228, 18614, 119, 18614, 119, 177, 125, 238, 29157, 226, 48392, 138, 12831,
            19805, 235, 15076, 122, 44652, 136, 17086, 122, 23022, 251, 16357, 117, 19076, 10813,
            38887,
        ],
    ),
    (
        "def f(x):\n    return x ** 2  # 12345 tokens\n",
        &[
            1604, 275, 24, 104, 727, 472, 1003, 1792, 1903, 216, 34, 216, 907, 216, 33, 34, 35, 36,
            37, 17837, 198,
        ],
    ),
    (
        "  leading\t tabs\n\n\nand   spaces  ",
        &[216, 2899, 197, 29416, 1116, 198, 397, 256, 5600, 256],
    ),
    (
        "<|im_start|>user\nHi<|im_end|>\n",
        &[1, 4093, 198, 26843, 2, 198],
    ),
    (
        "naïve café 3.14159 don't WON'T",
        &[
            3546, 46494, 37366, 216, 35, 30, 33, 36, 33, 37, 41, 1326, 982, 408, 2154, 23, 68,
        ],
    ),
];
const RENDERED: &str = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";
/// The reply is greedy, with the log-probability of the first token.
const REPLY: [u32; 8] = [504, 3575, 282, 4649, 314, 7042, 30, 2];
const FIRST_LOGPROB: f32 = -1.864_306_2;

#[expect(clippy::print_stdout, reason = "a test that did not run says so")]
fn model() -> Option<PathBuf> {
    let model = std::env::var_os("METACLAW_TEST_MODEL");
    if model.is_none() {
        println!("skipped: METACLAW_TEST_MODEL is not set");
    }
    model.map(PathBuf::from)
}

#[tokio::test]
async fn ids_template_and_reply_are_those_of_transformers() {
    let Some(model) = model() else { return };
    let cache = tempfile::tempdir().unwrap();
    let mut config = EngineConfig::new(model, cache.path().into(), cache.path().into());
    config.dtype = Some(Dtype::F32);
    let engine = Engine::start(config).unwrap();
    let tokenizer = engine.tokenizer();
    for (text, ids) in TEXTS {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode_special(ids), text);
    }
    let user = json!({"role": "user", "content": "What is the capital of France?"});
    let rendered = tokenizer.render(&[user], None, true).unwrap();
    assert_eq!(rendered.text(), RENDERED);
    let prompt_ids = tokenizer.encode_rendered(&rendered).unwrap();
    assert_eq!(prompt_ids, tokenizer.encode(RENDERED).unwrap());
    let request = GenerateRequest {
        prompt_ids,
        sampling: SamplingParams::greedy(),
        max_tokens: 24,
        ..GenerateRequest::default()
    };
    let mut stream = engine.generate(request).await.unwrap();
    let mut tokens = Vec::new();
    let finished = loop {
        match stream.recv().await.unwrap().unwrap() {
            GenerateEvent::Token(token) => tokens.push(token),
            GenerateEvent::Finished(finished) => break finished,
        }
    };
    assert_eq!(tokens.iter().map(|t| t.id).collect::<Vec<_>>(), REPLY);
    let text: String = tokens.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(text, "The capital of France is Paris.");
    assert!(
        (tokens[0].logprob - FIRST_LOGPROB).abs() < 1e-3,
        "{}",
        tokens[0].logprob
    );
    assert_eq!(
        (finished.reason, finished.n_prompt),
        (FinishReason::Stop, 37)
    );
}
