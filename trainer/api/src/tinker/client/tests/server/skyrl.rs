//! What SkyRL 0.3.0 was seen to do with its JAX back end, and the cloud does not.
//!
//! A model is sampled where it is trained: an adapter is loaded over the weights that are being trained, and answers with
//! what is trained after. A slot keeps its gradients when its model is unloaded. Requests are carried out as often as they
//! are sent. After a restart, models are listed and not held.

use serde_json::{Value, json};

use super::state::{Answer, Inner, N_SLOTS, Outcome, Slot, answer, refused, run_of};
use crate::tinker::SampleOutput;

pub(super) fn not_loaded(model: &str) -> String {
    format!("Model {model} not loaded")
}

// === impl Inner ===

impl Inner {
    pub(super) fn is_held(&self, model: &str) -> bool {
        !self.manner.is_skyrl || self.models[model].slot.number > 0
    }

    /// Gives a model the first slot that is free, with the gradients that are left in it.
    pub(super) fn make(&mut self, model: &str) -> Outcome {
        let is_free = |slot: &usize| self.models.values().all(|it| it.slot.number != *slot);
        let Some(free) = (1..N_SLOTS).find(is_free) else {
            let why = format!("Maximum number of LoRA adapters ({N_SLOTS}) reached");
            return Outcome::Failed(why);
        };
        let it = self.models.get_mut(model).unwrap();
        it.slot.number = free;
        it.gradient = std::mem::take(&mut self.left[free]);
        Outcome::Json(json!({"model_id": model, "base_model": "Qwen/Qwen3-8B"}))
    }

    pub(super) fn unload(&mut self, model: &str) -> Outcome {
        let it = self.models.get_mut(model).unwrap();
        let slot = std::mem::take(&mut it.slot);
        self.left[slot.number] = std::mem::take(&mut it.gradient);
        it.weights.clear();
        Outcome::Json(json!({"model_id": model, "status": "unloaded"}))
    }

    /// Killed and started again with the same database.
    pub(super) fn forget_models(&mut self) {
        self.left = Default::default();
        for model in self.models.values_mut() {
            model.slot = Slot::default();
            model.weights.clear();
            model.gradient.clear();
        }
    }

    pub(super) fn weights_info(&self, path: &str) -> Answer {
        if self.saved.iter().any(|saved| saved.path == path) {
            let info = json!({"base_model": "Qwen/Qwen3-8B", "is_lora": true, "lora_rank": 16});
            return answer(200, &info);
        }
        refused(404, "Checkpoint not found")
    }

    /// The answer to a sample, with no entry for the prompt's first token.
    pub(super) fn by_slot(&mut self, path: &str, mut output: SampleOutput) -> Outcome {
        if let Some(all) = &mut output.prompt_logprobs {
            all.remove(0);
        }
        output.topk_prompt_logprobs = None;
        let answer = Outcome::Json(serde_json::to_value(output.to_json(&[])).unwrap());
        let Some(saved) = self.saved.iter().find(|it| it.is_at(path)) else {
            self.answered.push(Vec::new());
            return answer;
        };
        let model = run_of(&saved.path).to_owned();
        let (weights, name) = (saved.weights.clone(), path.to_owned());
        if !self.is_held(&model) {
            return Outcome::Failed(not_loaded(&model));
        }
        let it = self.models.get_mut(&model).unwrap();
        if it.slot.loaded.as_ref() != Some(&name) {
            it.slot.loaded = Some(name);
            it.weights = weights;
        }
        self.answered.push(it.weights.clone());
        answer
    }
}

/// What a listing of runs says of one.
pub(super) fn run(id: &str) -> Value {
    json!({"training_run_id": id, "base_model": "m", "is_lora": true, "last_request_time": "2026-01-01T00:00:00"})
}
