//! The `README.md` of an adapter that other programs may use wrongly.

use crate::lora::Lora;

/// The file's name. PEFT also writes a file with this name.
pub(super) const FILE: &str = "README.md";

/// Returns what a person must know before using an adapter in another program, or `None` if there is nothing to know.
///
/// If the LM head is tied to the embedding, both are one matrix. PEFT's form of an adapter of the LM head is correct
/// for it (PEFT 0.21.2 gives the engine's logits), but merging it into that matrix changes the embedding too.
pub(super) fn text(lora: &Lora, base_name: &str) -> Option<String> {
    let is_needed = lora.dims.tied && lora.spec.targets.lm_head;
    is_needed.then(|| TIED.replace("BASE", base_name))
}

const TIED: &str = "# An adapter of BASE with a part for the LM head

This model has one matrix for its embedding and its LM head (`tie_word_embeddings`). The adapter changes the LM head
alone.

- **metaclaw-trainer** serves it as it was trained.
- **PEFT** does too: `PeftModel.from_pretrained(model, folder)`. Do not merge it as it is: PEFT would change the
  embedding as well, and warns that it does. Give the model a matrix of its own first:

      model = AutoModelForCausalLM.from_pretrained(\"BASE\")
      model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
      model.config.tie_word_embeddings = False
      merged = PeftModel.from_pretrained(model, folder).merge_and_unload()

- **llama.cpp** refuses to convert it (\"lm_head is present in adapter, but is ignored in base model\"). **vLLM** was not
  tried. Merge it as above, and give them the merged model. Or train without the LM head: `train_unembed=False` with
  Tinker's SDK, no `lm_head` in `targets` of `POST /v1/lora/create`.
";
