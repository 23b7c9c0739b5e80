//! A proxy with a wish of everyone's, rules that hear and a judge that keeps what it is shown: all
//! that the product makes of an agent's requests can be seen.

use std::{collections::BTreeSet, time::Duration};

use metaclaw_chat::{Message, Role, SessionId};
use metaclaw_test_kit::until_within;
use metaclaw_turns::{Turn, TurnKind};
use serde_json::{Value, json};

use crate::{
    external,
    home::{Home, Proxy},
    judge::Judge,
    upstream::{Asked, Play, Received, Upstream},
};

/// What stands in each request that is taught anything.
pub const WISH: &str = "Please always answer in capital letters.";
/// How long until a turn is in the log and judged.
const NOTED_WITHIN: Duration = Duration::from_secs(20);

pub struct Watched {
    pub home: Home,
    pub proxy: Proxy,
    pub upstream: Upstream,
    judge: Judge,
}

// === impl Watched ===

impl Watched {
    /// Starts it before an upstream of this dialect that plays this script.
    pub async fn start(
        dialect: &str,
        script: impl Fn(&Asked<'_>) -> Play + Send + Sync + 'static,
    ) -> Self {
        let upstream = Upstream::scripted(script);
        let judge = Judge::start();
        let more = json!({"judge": {"kind": "http", "url": judge.url}});
        let home = Home::before(&external::bin_dir(), &upstream, dialect, &more);
        let shared = home.path().join("skills/_shared");
        std::fs::create_dir_all(&shared).expect("a writable home");
        std::fs::write(shared.join("WISHES.md"), format!("- {WISH}\n")).expect("a writable home");
        let proxy = home.start().await.expect("the proxy starts");
        Self {
            home,
            proxy,
            upstream,
            judge,
        }
    }

    /// Every turn in the log, the oldest first, once there are as many as requests for a reply.
    pub async fn turns(&self) -> Vec<Turn> {
        let state = async || (self.asked().len(), self.home.turns().await);
        let is_noted = |state: &(usize, Vec<Turn>)| state.1.len() >= state.0;
        let (_, mut turns) = until_within(NOTED_WITHIN, "turns", state, is_noted).await;
        turns.sort_by_key(|turn| turn.meta.started_ms);
        turns
    }

    /// The requests for a reply that reached the upstream.
    pub fn asked(&self) -> Vec<Received> {
        let received = self.upstream.received().into_iter();
        let is_chat = |path: &str| !path.ends_with("/models") && !path.ends_with("/count_tokens");
        let asks = |it: &Received| !it.body.is_empty() && is_chat(it.path());
        received.filter(|it| asks(it)).collect()
    }

    /// Waits until these words of the owner's were heard as wishes of this agent, and no others, in force
    /// or waiting for a look.
    pub async fn assert_heard(&self, agent: &str, words: &[&str]) {
        let heard = async || self.heard(agent).await;
        let is_all = |heard: &Vec<String>| heard.len() >= words.len();
        let heard = until_within(NOTED_WITHIN, "wishes", heard, is_all).await;
        assert_eq!(heard, words);
    }

    async fn heard(&self, agent: &str) -> Vec<String> {
        let list = ["wishes", "list", "--json", "--agent", agent];
        let list = self.home.ask(&list).await.expect("metaclaw lists");
        let lessons = list["lessons"].as_array().expect("lessons").iter();
        let heard = lessons.map(|it| it["heard"].as_str().expect("words").to_owned());
        heard.collect()
    }

    /// What `turns list` says was asked in the main turns, each text once, the oldest first.
    pub async fn listed(&self) -> Vec<String> {
        let list = ["turns", "list", "--json", "-n", "1000"];
        let list = self.home.ask(&list).await.expect("metaclaw lists");
        let mut turns = list.as_array().expect("turns").clone();
        turns.retain(|turn| turn["kind"] == "main");
        turns.sort_by_key(|turn| turn["started_ms"].as_u64());
        // After a call it is the tool that speaks.
        let asked = turns.iter().filter_map(|turn| turn["asked"].as_str());
        let typed = asked.filter(|text| !text.is_empty());
        let mut asked: Vec<String> = typed.map(str::to_owned).collect();
        asked.dedup();
        asked
    }

    /// Waits until the judge was asked about a main turn with `text` in what followed it.
    pub async fn wait_for_evidence(&self, text: &str) {
        let is_shown = |judged: &Value| judged["next"].to_string().contains(text);
        let asked = async || self.judge.asked();
        until_within(NOTED_WITHIN, text, asked, |it| it.iter().any(is_shown)).await;
    }

    /// What the agent sent on an errand of its own is known: such a turn is side, was taught nothing, was
    /// not judged, and is nobody's evidence. `is_it` tells a message of its first request.
    pub async fn assert_is_errand(&self, is_it: impl Fn(&str) -> bool) {
        let turns = self.turns().await;
        let errands: Vec<&Turn> = turns.iter().filter(|it| is_told(it, &is_it)).collect();
        let said: Vec<Vec<String>> = turns.iter().map(told).collect();
        assert!(!errands.is_empty(), "nobody sent it: {said:?}");
        for errand in errands {
            assert_eq!(errand.meta.kind, TurnKind::Side, "{:?}", told(errand));
            self.assert_is_left_alone(errand);
        }
        for judged in self.judge.asked() {
            let next: Vec<Message> =
                serde_json::from_value(judged["next"].clone()).expect("messages");
            let mut said = next.iter().filter(|it| it.role() == Role::User);
            let shown = said.find(|it| is_it(&it.text()));
            assert!(shown.is_none(), "evidence for {}: {shown:?}", judged["id"]);
        }
    }

    fn assert_is_left_alone(&self, errand: &Turn) {
        let served = &errand.served;
        assert_eq!(served.system_block, None, "{}", errand.id);
        assert_eq!(served.user_line, None, "{}", errand.id);
        assert!(served.skills.is_empty(), "{}: {served:?}", errand.id);
        assert!(errand.verdict.is_none(), "{}: {errand:?}", errand.id);
        let id = json!(errand.id);
        let is_judged = self.judge.asked().iter().any(|it| it["id"] == id);
        assert!(!is_judged, "{} was judged", errand.id);
    }
}

/// The names of these turns' sessions.
pub fn sessions<'t>(turns: impl IntoIterator<Item = &'t Turn>) -> BTreeSet<SessionId> {
    let names = turns.into_iter().map(|turn| turn.session.clone());
    names.collect()
}

/// What stands in a user's place behind the last reply in a turn's request, message by message.
pub fn told(turn: &Turn) -> Vec<String> {
    let messages = turn.request.messages.iter().rev();
    let since_reply = messages.take_while(|it| it.role() != Role::Assistant);
    let users = since_reply.filter(|it| it.role() == Role::User);
    users.map(|it| it.text().into_owned()).collect()
}

/// Whether some of that is so.
pub fn is_told(turn: &Turn, is_it: impl Fn(&str) -> bool) -> bool {
    told(turn).iter().any(|text| is_it(text))
}
