//! The questions about what is learned, and how.
//!
//! A question is asked where its key does something. Where the original asked and nothing of ours would
//! come of the answer, a line says why.

use super::interview::Interview;
use metaclaw_settings::{edit, unbuilt};

const JUDGE: &str = "judge.kind";

// === impl Interview ===

impl Interview<'_> {
    /// Skills: whether, where, and who writes them.
    pub(super) fn lessons(&mut self) -> anyhow::Result<()> {
        self.yes(
            "skills.enabled",
            "Give the model skills that fit a request",
            true,
        )?;
        if self.answers.get("skills.enabled") == Some("false") {
            return Ok(());
        }
        let usual = self.context.home.skills();
        self.optional("skills.dir", "Folder of skills", &usual.to_string_lossy())?;
        self.yes(
            "skills.auto_evolve",
            "Write new skills from what went wrong",
            true,
        )
    }

    /// The model whose weights are trained, its judge, and when; whether there is one.
    pub(super) async fn training(&mut self, tries: bool) -> anyhow::Result<bool> {
        self.prompt.say(
            "Weights are trained on this machine, at rl.remote_url, or by a service with Tinker's API (docs/training/tinker.md).",
        )?;
        if self.cloud(tries).await? {
            self.judged_by_itself()?;
            self.schedule()?;
            return Ok(true);
        }
        let what = "Model to train: a folder in Hugging Face form, a GGUF file, demo (Enter: none)";
        self.optional("trainer.model", what, "")?;
        if self.answers.get("trainer.model").is_none() {
            return Ok(false);
        }
        let judges = if self.has_model_with_key() {
            "the provider's model judges"
        } else {
            "the model judges its own replies"
        };
        let what = &format!("Address of the judge (Enter: {judges})");
        self.optional("judge.url", what, "")?;
        if self.answers.get("judge.url").is_some() {
            self.optional("judge.model", "Model of the judge", "")?;
            self.judge_key()?;
        }
        self.judged_by_itself()?;
        self.optional("rl.lora_rank", "Rank of the adapters", "32")?;
        self.schedule()?;
        Ok(true)
    }

    /// Whether a provider's model is asked with a key of ours.
    fn has_model_with_key(&self) -> bool {
        self.answers.get("llm.api_base").is_some() && self.answers.key(self.loaded).is_some()
    }

    /// Has the model judge its own replies where nobody else does: weights learn from nothing else than judged turns.
    fn judged_by_itself(&mut self) -> anyhow::Result<()> {
        let is_set = |key| self.answers.get(key).is_some();
        if is_set(JUDGE) || is_set("judge.url") || self.has_model_with_key() {
            return Ok(());
        }
        self.answers.set(JUDGE, Some("base".to_owned()));
        let said = "The model judges its own replies (judge.kind base), because no provider with a key is there to do it.";
        Ok(self.prompt.say(said)?)
    }

    fn judge_key(&mut self) -> anyhow::Result<()> {
        let key = self
            .prompt
            .secret("Key of the judge (not shown; Enter for none, or as it is)")?;
        if !key.is_empty() {
            self.answers.set("judge.key", Some(key));
        }
        Ok(())
    }

    fn schedule(&mut self) -> anyhow::Result<()> {
        if self.answers.get("mode") != Some("auto") {
            return Ok(());
        }
        let what = "You are away after so many minutes without a turn";
        self.optional("scheduler.idle_minutes", what, "30")?;
        self.optional("scheduler.sleep_start", "You sleep from", "23:00")?;
        self.optional("scheduler.sleep_end", "You sleep until", "07:00")?;
        self.unless_unbuilt("scheduler.calendar.enabled")?;
        Ok(())
    }

    /// A value that may be left at what is usual, and is not written then.
    pub(super) fn optional(
        &mut self,
        key: &str,
        question: &str,
        usual: &str,
    ) -> anyhow::Result<()> {
        if self.answers.is_given(key) || !self.unless_unbuilt(key)? {
            return Ok(());
        }
        let preset = self.answers.before(key).unwrap_or(usual).to_owned();
        loop {
            let given = self.prompt.ask(question, &preset)?;
            if given == preset {
                return Ok(());
            }
            match edit::allowed(key, &given) {
                Ok(value) => {
                    self.answers.set(key, Some(value));
                    return Ok(());
                }
                Err(error) => self.prompt.say(&format!("  {error}"))?,
            }
        }
    }

    fn yes(&mut self, key: &str, question: &str, usual: bool) -> anyhow::Result<()> {
        if self.answers.is_given(key) || !self.unless_unbuilt(key)? {
            return Ok(());
        }
        let preset = self.answers.before(key).map_or(usual, |it| it == "true");
        let given = self.prompt.yes(question, preset)?;
        if given != preset {
            self.answers.set(key, Some(given.to_string()));
        }
        Ok(())
    }

    /// Whether a key does anything; says so where it does not.
    fn unless_unbuilt(&mut self, key: &str) -> anyhow::Result<bool> {
        let Some(reason) = unbuilt(key) else {
            return Ok(true);
        };
        self.prompt
            .say(&format!("({key} is not asked: {reason})"))?;
        Ok(false)
    }
}
