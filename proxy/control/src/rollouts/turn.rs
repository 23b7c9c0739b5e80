//! Converts a rollout to a turn of the log.

use metaclaw_chat::{ChainHash, JudgedBy, Message, Verdict, Vote};
use metaclaw_learner::POLICY_UPSTREAM;
use metaclaw_turns::{ImportedTurn, JsonText, NewMessage, NewTurn, Served, Tokens, TurnMeta};

use super::line::{Response, Rollout, RolloutPrompt};

/// The upstream of turns without token ids, which no step can use.
const NO_UPSTREAM: &str = "import";

/// The model that the ids belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutBase {
    pub name: String,
    pub fingerprint: Option<String>,
}

// === impl Rollout ===

impl Rollout {
    pub(super) fn turn(
        self,
        file: &str,
        base: Option<&RolloutBase>,
        now_ms: u64,
    ) -> anyhow::Result<ImportedTurn> {
        // The same line gives the same turn, however often its file is imported.
        let reply_id = format!("import-{}", digest(&self)?);
        let messages = match self.prompt {
            Some(RolloutPrompt::Messages(messages)) => messages,
            Some(RolloutPrompt::Said(text)) => vec![Message::user(text)],
            None => Vec::new(),
        };
        let reply = self.response.map(|response| match response {
            Response::Text(text) => Message::assistant(text),
            Response::Message(message) => message,
        });
        let ids = RolloutIds {
            prompt_ids: self.prompt_ids,
            ids: self.response_ids,
            logprobs: self.logprobs,
        };
        let tokens = tokens(ids, self.model.as_deref(), base)?;
        let chain = ChainHash::chain(&self.agent, &messages);
        let chain = chain.last().copied();
        let ended_ms = self.time_ms.unwrap_or(now_ms);
        let upstream = if tokens.is_some() {
            POLICY_UPSTREAM
        } else {
            NO_UPSTREAM
        };
        let (score, hint) = (self.score, self.hint);
        let verdict = score.map(|score| Verdict {
            votes: vec![Vote::new(score, hint.clone())],
            hint,
            ..Verdict::new(score, JudgedBy::Import)
        });
        let turn = NewTurn {
            session: self.session,
            meta: TurnMeta {
                reply_id: Some(reply_id),
                finish_reason: Some(self.finish_reason.unwrap_or_else(|| "stop".to_owned())),
                ..TurnMeta::whole(
                    chain.unwrap_or_else(|| ChainHash::start(&self.agent)),
                    ended_ms,
                )
            },
            messages: NewMessage::all(&self.agent, &messages)?,
            agent: self.agent,
            continues: None,
            tools: self.tools.as_ref().map(JsonText::of).transpose()?,
            params: self.params,
            reply,
            served: Served {
                upstream: upstream.to_owned(),
                model: self.model.unwrap_or_default(),
                imported: Some(file.to_owned()),
                ..Served::default()
            },
            tokens,
        };
        Ok(ImportedTurn { turn, verdict })
    }
}

struct RolloutIds {
    prompt_ids: Option<Vec<u32>>,
    ids: Option<Vec<u32>>,
    logprobs: Option<Vec<f32>>,
}

fn tokens(
    ids: RolloutIds,
    model: Option<&str>,
    base: Option<&RolloutBase>,
) -> anyhow::Result<Option<Tokens>> {
    let RolloutIds {
        prompt_ids: Some(prompt_ids),
        ids: Some(ids),
        logprobs: Some(logprobs),
    } = ids
    else {
        return Ok(None);
    };
    let Some(base) = base else {
        anyhow::bail!("it has token ids, and no policy model runs that they could be of");
    };
    if base.name.is_empty() && base.fingerprint.is_none() {
        anyhow::bail!("it has token ids, and the trainer does not say which model it has");
    }
    // A trainer reports its model's name once a run exists.
    let other = model.filter(|model| !base.name.is_empty() && *model != base.name);
    if let Some(model) = other {
        anyhow::bail!(
            "its ids are of {model:?}, and the trainer has {:?}: leave model out where that is the same",
            base.name
        );
    }
    Ok(Some(Tokens {
        prompt_ids,
        ids,
        logprobs,
        sampling_logprobs: Vec::new(),
        adapter: None,
        version: None,
        base: if base.name.is_empty() {
            model.unwrap_or_default().to_owned()
        } else {
            base.name.clone()
        },
        base_fingerprint: base.fingerprint.clone(),
    }))
}

/// The hash covers everything in the line.
fn digest(rollout: &Rollout) -> serde_json::Result<String> {
    let hash = blake3::hash(&serde_json::to_vec(rollout)?).to_hex();
    Ok(hash[..32].to_owned())
}
