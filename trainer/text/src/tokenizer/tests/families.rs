//! Small tokenizers and templates that resemble each family, for tests.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::testing::TEMPLATE;
use crate::tokenizer::{ChatTokenizer, byte_letters};

/// How a family encodes text and ends turns.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    template: &'static str,
    sentencepiece: Option<Prefix>,
    special: &'static [&'static str],
    /// Added tokens that are not special.
    plain: &'static [&'static str],
    /// `bos_token` and `eos_token`.
    ends: [&'static str; 2],
}

/// Where SentencePiece adds `▁`.
#[derive(Clone, Copy)]
enum Prefix {
    Normaliser,
    First,
    Never,
}

const fn family(
    name: &'static str,
    template: &'static str,
    sentencepiece: Option<Prefix>,
    [special, plain]: [&'static [&'static str]; 2],
    ends: [&'static str; 2],
) -> Family {
    Family {
        name,
        template,
        sentencepiece,
        special,
        plain,
        ends,
    }
}

pub(crate) const FAMILIES: [Family; 8] = [
    family("chatml", TEMPLATE, None, [CHATML, &[]], QWEN_ENDS),
    family(
        "qwen3",
        include_str!("../testdata/qwen3.jinja"),
        None,
        [QWEN, QWEN_PLAIN],
        QWEN_ENDS,
    ),
    family(
        "qwen35",
        include_str!("../testdata/qwen35.jinja"),
        None,
        [QWEN, QWEN_PLAIN],
        QWEN_ENDS,
    ),
    family(
        "coder",
        include_str!("../testdata/coder.jinja"),
        None,
        [QWEN, QWEN_PLAIN],
        QWEN_ENDS,
    ),
    family(
        "llama3",
        include_str!("../testdata/llama3.jinja"),
        None,
        [LLAMA_3, &[]],
        ["<|begin_of_text|>", "<|eot_id|>"],
    ),
    family(
        "llama2",
        include_str!("../testdata/llama2.jinja"),
        Some(Prefix::Normaliser),
        [&["<unk>", "<s>", "</s>"], &[]],
        ["<s>", "</s>"],
    ),
    family(
        "mistral",
        include_str!("../testdata/mistral.jinja"),
        Some(Prefix::First),
        [MISTRAL, &[]],
        ["<s>", "</s>"],
    ),
    family(
        "gemma4",
        include_str!("../testdata/gemma4.jinja"),
        Some(Prefix::Never),
        [GEMMA_4, &[]],
        ["<bos>", "<eos>"],
    ),
];

/// Gemma 3 is separate from the others: its template has no tools, and system prompts have no turn of their own.
pub(crate) const GEMMA: Family = family(
    "gemma",
    include_str!("../../template/testdata/gemma.jinja"),
    Some(Prefix::Never),
    [GEMMA_SPECIAL, &["<unused0>"]],
    ["<bos>", "<end_of_turn>"],
);

const CHATML: &[&str] = &["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<filename>"];
const QWEN: &[&str] = &["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const QWEN_ENDS: [&str; 2] = ["<|endoftext|>", "<|im_end|>"];
#[rustfmt::skip]
const LLAMA_3: &[&str] = &[
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>",
];
#[rustfmt::skip]
const MISTRAL: &[&str] = &[
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
];
#[rustfmt::skip]
const GEMMA_SPECIAL: &[&str] = &[
    "<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
];

#[rustfmt::skip]
const GEMMA_4: &[&str] = &[
    "<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", "<|\"|>", "<|channel>", "<channel|>", "<|think|>", "<|image|>",
];

/// The last one is a run of white space, which some models add. It is no control token.
#[rustfmt::skip]
const QWEN_PLAIN: &[&str] = &[
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "  ",
];

impl Family {
    pub(crate) fn controls(&self) -> impl Iterator<Item = &'static str> + use<> {
        let all = self.special.iter().chain(self.plain).copied();
        all.filter(|token| !token.trim().is_empty())
    }

    pub(crate) fn json(&self) -> Value {
        let mut vocab = Map::new();
        let (letters, blank): (Vec<String>, _) = if self.sentencepiece.is_some() {
            let bytes = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>"));
            let letters = (' '..='~').map(String::from);
            let all = bytes.chain(letters).chain(["\u{2581}".into()]);
            (all.collect(), "\u{2581}")
        } else {
            (byte_letters().iter().map(char::to_string).collect(), "Ġ")
        };
        let pairs = "h e,l l,he ll,hell o,i m,< |,| >,o u,s e,se r,u ser,_ u,_ <,_ _";
        let merges: Vec<String> = pairs
            .split(',')
            .map(|pair| pair.replace('_', blank))
            .collect();
        let merged = merges.iter().map(|pair| pair.replace(' ', ""));
        for token in letters.into_iter().chain(merged) {
            let id = vocab.len();
            vocab.entry(token).or_insert(json!(id));
        }
        let n = vocab.len();
        let added = self.special.iter().map(|token| (token, true));
        let added = added.chain(self.plain.iter().map(|token| (token, false)));
        let added = added.enumerate().map(|(i, (content, special))| {
            json!({"id": n + i, "content": content, "special": special, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false})
        });
        let added: Vec<Value> = added.collect();
        if self.sentencepiece.is_some() {
            // As in Llama's file, the model contains its special tokens too.
            let entry = |token: &Value| {
                (
                    token["content"].as_str().unwrap().to_owned(),
                    token["id"].clone(),
                )
            };
            vocab.extend(added.iter().map(entry));
        }
        let [normalizer, pre_tokenizer, decoder] = self.steps();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
            "decoder": decoder,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true,
                "byte_fallback": self.sentencepiece.is_some(), "ignore_merges": false,
                "vocab": vocab, "merges": merges,
            },
        })
    }

    fn steps(&self) -> [Value; 3] {
        let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let blanks = json!({"String": " "});
        let whole = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
        ]});
        let mut decoder = whole.clone();
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        decoder["decoders"].as_array_mut().unwrap().push(strip);
        match self.sentencepiece {
            None => [json!({"type": "NFC"}), level.clone(), level],
            Some(Prefix::Normaliser) => {
                let normalizer = json!({"type": "Sequence", "normalizers": [
                    {"type": "Prepend", "prepend": "\u{2581}"},
                    {"type": "Replace", "pattern": blanks, "content": "\u{2581}"},
                ]});
                [normalizer, Value::Null, decoder]
            }
            Some(Prefix::First) => {
                let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}",
                    "prepend_scheme": "first", "split": false});
                [Value::Null, metaspace, decoder]
            }
            Some(Prefix::Never) => {
                let normalizer =
                    json!({"type": "Replace", "pattern": blanks, "content": "\u{2581}"});
                let split = json!({"type": "Split", "pattern": blanks,
                    "behavior": "MergedWithPrevious", "invert": false});
                [normalizer, split, whole]
            }
        }
    }

    /// Loads the tokenizer with its template.
    pub(crate) fn load(&self) -> ChatTokenizer {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        ChatTokenizer::load(dir.path()).unwrap()
    }

    pub(crate) fn write(&self, dir: &Path) {
        let [bos, eos] = self.ends;
        let config = json!({"bos_token": bos, "eos_token": {"content": eos}, "chat_template": self.template});
        std::fs::write(dir.join("tokenizer.json"), self.json().to_string()).unwrap();
        std::fs::write(dir.join("tokenizer_config.json"), config.to_string()).unwrap();
    }

    /// Returns special tokens by their role.
    pub(crate) fn ends(&self) -> [&'static str; 2] {
        self.ends
    }

    pub(crate) fn template(&self) -> &'static str {
        self.template
    }
}
