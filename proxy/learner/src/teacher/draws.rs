//! The teacher's replies to one turn: what came after the turn, the words that the teacher is told because of it, the draws,
//! and how relevant each is beside the other questions that it is compared with.

use std::collections::BTreeSet;

use metaclaw_chat::{Message, Score, TurnId, count_words, owners_words};
use metaclaw_reward::Evidence;
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::{LogError, Turn};
use serde_json::Value;

use super::conversation::TeacherConversation;
use crate::{
    calls::{has_broken_call, mentions_call, reply_message},
    judge::AskFailed,
    lineage::BaseModel,
    owner_text::owner_says,
    policy::{By, DrawRequest, DrawnReply, PolicyModel, ScoredPair, distinct_share, relevance},
    sample::{
        ExcludeReason, MIN_TARGET_WORDS, hint, is_owners_answer, is_tool_turn, is_whole_target,
        score,
    },
    shared::Shared,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TeachError {
    /// No turn can be sent.
    #[error(transparent)]
    Server(#[from] BackendError),
    /// This turn could not be sent while others can; it is tried again.
    #[error(transparent)]
    Turn(BackendError),
    #[error(transparent)]
    Judge(#[from] AskFailed),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Answers to a failed turn are searched among this many turns after it.
const FOLLOWERS: usize = 8;
/// A longer complaint is a text to work on.
const MOST_WORDS: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct After {
    /// What would have been better, in the owner's words if they are known.
    pub(crate) hint: Option<String>,
    pub(crate) accepted: Option<Turn>,
}

/// Returns what came after a turn; for a turn that did not fail, the result is empty.
///
/// # Errors
/// Returns the log's errors.
pub(crate) async fn after(shared: &Shared, turn: &Turn) -> Result<After, LogError> {
    let mut after = After::default();
    if score(turn) != Some(Score::Bad) {
        return Ok(after);
    }
    after.hint = hint(turn).cloned();
    let mut failed = BTreeSet::from([turn.id]);
    for id in followers(shared, turn).await? {
        let later = shared.turn(id).await?;
        let answers = |later: &Turn| later.parent.is_some_and(|parent| failed.contains(&parent));
        let Some(later) = later.filter(|later| answers(later) && is_owners_answer(later)) else {
            continue;
        };
        if after.hint.is_none() && later.parent == Some(turn.id) {
            after.hint = owner_says(&later).filter(|said| is_complaint(said));
        }
        match score(&later) {
            Some(Score::Bad) => {
                failed.insert(later.id);
            }
            Some(Score::Good) if is_whole_target(&later) && is_of_same_base(turn, &later) => {
                after.accepted = Some(later);
                break;
            }
            Some(Score::Good | Score::Unclear) | None => {}
        }
    }
    Ok(after)
}

async fn followers(shared: &Shared, turn: &Turn) -> Result<Vec<TurnId>, LogError> {
    let later = || shared.log.turns_after(turn.id, FOLLOWERS);
    shared.persist(later).await
}

fn is_complaint(said: &str) -> bool {
    !said.trim().is_empty() && count_words(said) <= MOST_WORDS
}

fn is_of_same_base(one: &Turn, other: &Turn) -> bool {
    let base = |turn: &Turn| turn.tokens.as_ref().map(BaseModel::of_tokens);
    let bases = base(one).zip(base(other));
    bases.is_some_and(|(one, other)| one.is(&other))
}

/// Everyday questions that do not resemble each other: a reply that fits its own question no better than two of these
/// is no answer.
const OTHERS: &str = include_str!("others.txt");

pub(super) fn line(wishes: Option<&str>, hint: Option<&str>) -> Option<String> {
    let wishes = wishes.unwrap_or_default().trim();
    // A complaint also becomes a wish; if it were said twice, it would have too much weight.
    let hint = hint.map(str::trim).filter(|hint| !wishes.contains(hint));
    let parts = [Some(wishes), hint].into_iter().flatten();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Returns two questions other than this one, the same for a turn each time.
pub(crate) fn others(id: TurnId, question: &str) -> Vec<&'static str> {
    let all = OTHERS.lines().map(str::trim);
    let others: Vec<&str> = all
        .filter(|other| !other.is_empty() && !question.contains(other))
        .collect();
    let n = others.len().max(1);
    let first = usize::try_from(seed(id)).unwrap_or(0) % n;
    // The two are not neighbours in the list, because neighbours would always come together.
    let second = (first + n / 2) % n;
    let two = [first, second].into_iter();
    two.filter_map(|at| others.get(at).copied()).collect()
}

/// Returns the seed of a turn's draws, which is the same after a restart.
pub(crate) fn seed(id: TurnId) -> u64 {
    let hash = blake3::hash(id.to_string().as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    u64::from(u32::from_le_bytes([a, b, c, d]))
}

/// The longest draw, whatever the client allowed: a reply that takes longer is seldom what a wish is about.
const MOST_TOKENS: u64 = 512;
/// What stands at the end of a reply that was to go on, though its model ended it.
const GOES_ON: [&str; 4] = [":", ",", "...", "\u{2026}"];
/// The likeliest ids of a `top_k` target: what is left of the probability beyond them is little.
pub(super) const TOP_K: u32 = 20;
/// Of the 4-grams of a reply that was cut: one that repeats itself would not have ended later either. 4 of 34 replies with numbered
/// steps and 3 of 8 for a child of six had fewer.
const MIN_DISTINCT: f64 = 0.9;
/// Ids of a reply that was cut, some 45 words: the beginning of a long reply would pass as a brief one. However little its
/// client allows, the teacher may say as much.
const LEAST_CUT: u32 = 64;
/// Ids of a reply by which it is scored: twice as many as the gate's, since one reply is judged by itself and no mean of 16 is taken.
const SCORED: usize = 64;

/// A reply that could be taught: it says something, and where it ended it was not to go on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TeacherReply {
    pub(super) ids: Vec<u32>,
    pub(super) text: String,
    /// Whether it calls tools, each of which was offered and can be carried out.
    pub(super) is_call: bool,
    /// In nat a token.
    pub(super) relevance: f64,
    /// Whether the teacher said it; else it is the session's own, which was accepted.
    pub(super) is_teachers: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TeacherAnswers {
    pub(super) prompt: Vec<u32>,
    pub(super) told: Vec<u32>,
    pub(super) asked: String,
    pub(super) candidates: Vec<TeacherReply>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Draws<'a> {
    pub(super) shared: &'a Shared,
    pub(super) policy: &'a PolicyModel,
}

// === impl Draws ===

impl Draws<'_> {
    pub(super) async fn answer(
        self,
        turn: &Turn,
        wishes: Option<&str>,
    ) -> Result<Result<TeacherAnswers, ExcludeReason>, TeachError> {
        let after = after(self.shared, turn).await?;
        let calls = is_tool_turn(turn);
        // Wishes are about the text of replies: they do not say what was wrong with a call.
        let is_hinted = after.hint.is_some() || !calls;
        let asked = line(wishes, after.hint.as_deref()).filter(|_| is_hinted);
        let Some(asked) = asked else {
            return Ok(Err(ExcludeReason::NotHinted));
        };
        let Some(conversation) = TeacherConversation::from_turn(turn) else {
            return Ok(Err(ExcludeReason::TeacherRefused));
        };
        let prompt = self.students_prompt(turn, &conversation).await?;
        let told = self
            .policy
            .render_for(turn, conversation.told(&asked))
            .await?;
        let mut candidates = self.draw(turn, &told).await?;
        if !calls {
            // After a call, it answers the tool's result as well, which is not in this prompt.
            candidates.extend(after.accepted.and_then(TeacherReply::accepted));
        }
        self.weigh(turn, &conversation, &prompt, &mut candidates)
            .await?;
        Ok(Ok(TeacherAnswers {
            prompt,
            told,
            asked,
            candidates,
        }))
    }

    /// What is to be answered without being told: the turn's own ids where no wish stood in them, since the same text may
    /// have others.
    async fn students_prompt(
        self,
        turn: &Turn,
        conversation: &TeacherConversation,
    ) -> Result<Vec<u32>, TeachError> {
        let own = turn.tokens.as_ref().map(|token| &token.prompt_ids);
        match own.filter(|ids| turn.served.wishes.is_none() && !ids.is_empty()) {
            Some(ids) => Ok(ids.clone()),
            None => Ok(self.policy.render_for(turn, conversation.plain()).await?),
        }
    }

    async fn draw(self, turn: &Turn, told: &[u32]) -> Result<Vec<TeacherReply>, TeachError> {
        let draws = self.policy.draw(DrawRequest {
            n: self.shared.config.rl.draws,
            seed: seed(turn.id),
            ..DrawRequest::new(None, told, draw_tokens(turn))
        });
        let drawn = draws.await?.into_iter();
        let tools = turn.request.tools.as_deref().and_then(Value::as_array);
        let tools = tools.map(Vec::as_slice).unwrap_or_default();
        Ok(drawn
            .filter_map(|draw| TeacherReply::drawn(draw, tools))
            .collect())
    }

    /// Works out how relevant each is: under the same conversation with another question at its end it is less likely.
    async fn weigh(
        self,
        turn: &Turn,
        conversation: &TeacherConversation,
        prompt: &[u32],
        candidates: &mut [TeacherReply],
    ) -> Result<(), TeachError> {
        if candidates.is_empty() {
            return Ok(());
        }
        let said = owners_words(&turn.request.messages).next();
        let said = said.map(|(_, words)| words.text).unwrap_or_default();
        let mut prompts = vec![prompt.to_vec()];
        for other in others(turn.id, &said) {
            prompts.push(
                self.policy
                    .render_for(turn, conversation.asking(other))
                    .await?,
            );
        }
        let pairs = candidates.iter().flat_map(|candidate| {
            let reply = &candidate.ids;
            prompts
                .iter()
                .map(move |prompt| ScoredPair { prompt, reply })
        });
        let pairs: Vec<ScoredPair<'_>> = pairs.collect();
        let scores = self.policy.score(By::Base, &pairs, SCORED).await?;
        for (candidate, scores) in candidates.iter_mut().zip(scores.chunks(prompts.len())) {
            if let [own, others @ ..] = scores {
                candidate.relevance = relevance(*own, others);
            }
        }
        Ok(())
    }
}

fn draw_tokens(turn: &Turn) -> u32 {
    max_tokens(turn).max(LEAST_CUT)
}

pub(crate) fn max_tokens(turn: &Turn) -> u32 {
    let params = &turn.request.params;
    let most = ["max_completion_tokens", "max_tokens"]
        .iter()
        .find_map(|name| params.get(*name)?.as_u64());
    let most = most.unwrap_or(MOST_TOKENS).clamp(1, MOST_TOKENS);
    u32::try_from(most).unwrap_or(u32::MAX)
}

// === impl TeacherReply ===

impl TeacherReply {
    /// What the teacher said. One that was cut has no end among its ids, so that what is taught is how to begin, and not to
    /// stop there: a wish for steps or for simple words is seldom done within what the client allows, and the few that are
    /// short enough are not what it is about.
    /// One that calls a tool has to be whole, and each call one that can be carried out; it needs no words.
    fn drawn(draw: DrawnReply, tools: &[Value]) -> Option<Self> {
        if mentions_call(&draw.text) {
            let is_whole = draw.ended && !draw.ids.is_empty();
            let calls = reply_message(&draw.text).tool_calls();
            let can_be_carried_out = !calls.is_empty() && !has_broken_call(&draw.text, tools);
            return (is_whole && can_be_carried_out).then_some(Self {
                ids: draw.ids,
                text: draw.text,
                is_call: true,
                relevance: 0.0,
                is_teachers: true,
            });
        }
        if draw.ended {
            return Self::whole(draw.ids, draw.text, true);
        }
        let is_long = draw.ids.len() >= LEAST_CUT as usize;
        let goes_round = distinct_share(&[&draw]) < MIN_DISTINCT;
        let reply = Self::new(draw.ids, draw.text, true);
        reply.filter(|_| is_long && !goes_round)
    }

    fn accepted(turn: Turn) -> Option<Self> {
        let text = turn.reply.as_ref()?.text().into_owned();
        Self::whole(turn.tokens?.ids, text, false)
    }

    fn whole(ids: Vec<u32>, text: String, is_teachers: bool) -> Option<Self> {
        let goes_on = GOES_ON.iter().any(|sign| text.trim_end().ends_with(sign));
        let reply = Self::new(ids, text, is_teachers);
        reply.filter(|_| !goes_on)
    }

    fn new(ids: Vec<u32>, text: String, is_teachers: bool) -> Option<Self> {
        // What was cut while it thought has said nothing.
        let said = Evidence::new(&[], Message::assistant(text.as_str()), &[]).said();
        let says_something = !ids.is_empty() && count_words(&said) >= MIN_TARGET_WORDS;
        says_something.then_some(Self {
            ids,
            text,
            is_call: false,
            relevance: 0.0,
            is_teachers,
        })
    }
}

// === impl TeacherAnswers ===

impl TeacherAnswers {
    pub(super) fn relevances(&self) -> Vec<f64> {
        self.candidates.iter().map(|c| c.relevance).collect()
    }

    /// Of each that the teacher said in words. The marks and braces of a call are as likely after any question.
    pub(super) fn own_relevances(&self) -> impl Iterator<Item = f64> + '_ {
        let is_own = |reply: &&TeacherReply| reply.is_teachers && !reply.is_call;
        let own = self.candidates.iter().filter(is_own);
        own.map(|reply| reply.relevance)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_complaint_that_became_a_wish_is_said_once() {
        let of = |wishes, hint| line(wishes, hint);
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(""), Some(" ")), None);
        assert_eq!(of(Some("Be brief."), None).unwrap(), "Be brief.");
        assert_eq!(of(None, Some("Too long.")).unwrap(), "Too long.");
        let both = of(Some("In French. Be brief."), Some("Be brief.")).unwrap();
        assert_eq!(both, "In French. Be brief.");
        let both = of(Some("In French."), Some("Too long.")).unwrap();
        assert_eq!(both, "In French. Too long.");
    }

    #[test]
    fn the_other_questions_are_two_the_same_each_time_and_none_is_the_own_one() {
        for seq in 0..200 {
            let id = TurnId { session: 7, seq };
            let two = others(id, "");
            assert_eq!(two.len(), 2);
            assert_ne!(two[0], two[1]);
            assert_eq!(two, others(id, ""));
            let own = two[0];
            assert!(!others(id, &format!("Hi. {own}")).contains(&own));
        }
    }

    #[test]
    fn what_says_too_little_or_goes_round_is_never_taught() {
        let of = |ids: &[u32], text: &str, ended| {
            let (ids, text) = (ids.to_vec(), text.to_owned());
            TeacherReply::drawn(DrawnReply { ids, text, ended }, &[])
        };
        let many: Vec<u32> = (0..64).collect();
        let drawn = |text: &str, ended| of(&many, text, ended);
        assert!(drawn("It is Paris.", true).is_some());
        assert!(drawn("It is Paris and", false).is_some());
        assert!(drawn("Paris!", true).is_none());
        assert!(drawn("<think>Which town was it", false).is_none());
        assert!(of(&[1; 64], "ha ha ha ha ha ha ha ha", false).is_none());
        assert!(of(&many[1..], "It is Paris and", false).is_none());
        for unfinished in ["You freeze berries by...", "To freeze berries:\n"] {
            assert!(drawn(unfinished, true).is_none(), "{unfinished}");
        }
        assert!(TeacherReply::drawn(DrawnReply::nothing(), &[]).is_none());
    }

    /// Before this test, no draw for a client that allows 40 tokens could be taught.
    #[test]
    fn a_draw_may_be_as_long_as_what_is_taught_of_it() {
        for (allowed, tokens) in [(1, LEAST_CUT), (40, LEAST_CUT), (100, 100), (4_096, 512)] {
            let mut turn = crate::testing::judged_turn(vec![Message::user("Where?")]);
            turn.request
                .params
                .insert("max_tokens".to_owned(), allowed.into());
            assert_eq!(draw_tokens(&turn), tokens);
            let ids: Vec<u32> = (0..tokens).collect();
            let (text, ended) = ("It is Paris and".to_owned(), false);
            let drawn = TeacherReply::drawn(DrawnReply { ids, text, ended }, &[]);
            assert!(drawn.is_some(), "{allowed}");
        }
    }

    #[test]
    fn a_call_that_can_be_carried_out_is_taught_and_no_other() {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let tools =
            [json!({"type": "function", "function": {"name": "ls", "parameters": parameters}})];
        let of = |text: &str, ended, tools: &[Value]| {
            let draw = DrawnReply {
                ids: vec![1, 2],
                text: text.to_owned(),
                ended,
            };
            TeacherReply::drawn(draw, tools)
        };
        let call = r#"<tool_call>{"name": "ls", "arguments": {"path": "/"}}</tool_call>"#;
        assert!(of(call, true, &tools).is_some_and(|reply| reply.is_call));
        let text = of("I cannot see that folder.", true, &tools);
        let is_so = text.is_some_and(|text| !text.is_call);
        assert!(is_so, "text may be the better reply");
        assert!(of(call, true, &[]).is_none(), "no tool was offered");
        assert!(of(call, false, &tools).is_none(), "it was cut");
        for broken in [
            call.replace("ls", "rm"),
            call.replace("path", "folder"),
            call.replace("</tool_call>", ""),
            format!("{call}<tool_call>"),
            // The form of another family, which is not read.
            r#"[TOOL_CALLS][{"name": "ls", "arguments": {"path": "/"}}]"#.to_owned(),
        ] {
            assert!(of(&broken, true, &tools).is_none(), "{broken}");
        }
    }
}
