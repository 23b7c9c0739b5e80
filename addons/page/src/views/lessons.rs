//! What was learned in words: wishes and skills, where they come from, what they did, and how to take them back.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::replies::{Lesson, LessonState, Proposal, ProposalState, Skill};
use metaclaw_control::{
    lesson_list::{LessonList, LessonSource},
    lessons::{LessonsView, SkillView},
    operations::lessons::{ListLessons, ListProposals, ListSkills, ListWishes},
};
use serde::Deserialize;

use crate::{
    elements::{ActionForm, ButtonKind, ago, count, effect, empty, hidden, live},
    failure::PageFailure,
    layout::{Frame, Section},
    query::encoded,
    state::PageState,
    view_query::ViewQuery,
};

const JOURNAL: usize = 200;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct AgentQuery {
    pub(crate) agent: Option<AgentId>,
}

struct LessonsPage<'a> {
    agent: &'a AgentId,
    wishes: &'a LessonsView,
    skills: &'a [SkillView],
    proposals: &'a [Proposal],
    list: &'a LessonList,
    here: &'a str,
    now_ms: u64,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(query): ViewQuery<AgentQuery>,
) -> Result<Markup, PageFailure> {
    let listed = state.agents().await?;
    let agent = match query.agent {
        Some(agent) => agent,
        None => state.newest_agent(&listed.shown).await?,
    };
    let mut agents = listed.shown.clone();
    agents.extend([agent.clone(), AgentId::shared()]);
    agents.sort();
    agents.dedup();
    let mut proposals = state.ask(ListProposals).await?;
    proposals.retain(|it| it.source.agent == agent && it.state != ProposalState::Forgotten);
    let view = LessonsPage {
        agent: &agent,
        wishes: &state.ask(ListWishes(agent.clone())).await?,
        skills: &state.ask(ListSkills(Some(agent.clone()))).await?,
        proposals: &proposals,
        list: &state.ask(ListLessons(agent.clone())).await?,
        here: &frame.here,
        now_ms: now_ms(),
    };
    let body = html! {
        h1 { "Lessons" }
        (agent_tabs("/ui/lessons", &agents, &agent))
        (listed.left_out())
        p { a href={ "/ui/compare?agent=" (encoded(agent.as_str())) } { "Compare replies with and without what was learned" } }
        (view.body())
    };
    Ok(frame.page("Lessons", Section::Lessons, &body))
}

pub(crate) fn agent_tabs(address: &str, agents: &[AgentId], current: &AgentId) -> Markup {
    html! {
        @if agents.len() > 1 {
            nav.tabs aria-label="Agents" {
                @for agent in agents {
                    a href={ (address) "?agent=" (encoded(agent.as_str())) } aria-current=[(agent == current).then_some("page")] {
                        @if agent.is_shared() { "all agents" } @else { (agent) }
                    }
                }
            }
        }
    }
}

// === impl LessonsPage ===

impl LessonsPage<'_> {
    fn body(&self) -> Markup {
        html! {
            (live("waiting", &waiting(&self.wishes.lessons, self.proposals, self.here, self.now_ms)))
            section aria-labelledby="in-force" {
                h2 #in-force { "Wishes in force" }
                (live("wishes", &self.in_force()))
                (self.add())
            }
            section aria-labelledby="skills-title" {
                h2 #skills-title { "Skills" }
                (live("skills", &self.skills()))
            }
            section aria-labelledby="own" {
                h2 #own { "Notes that " (self.agent) " keeps itself" }
                (live("own-lessons", &self.own()))
            }
            section aria-labelledby="all" {
                h2 #all { "All wishes that were heard" }
                (live("journal", &self.journal()))
            }
        }
    }

    fn in_force(&self) -> Markup {
        let view = self.wishes;
        if view.wishes.is_empty() {
            let next = html! { "Tell your agent, for example “please always answer in one sentence”, or write it here." };
            return empty("No wish is in force.", &next);
        }
        html! {
            ul.cards {
                @for (at, wish) in view.wishes.iter().enumerate() {
                    li.card {
                        p.words { (wish) }
                        p.facts { (self.origin(wish)) }
                        @if let Some(counts) = view.counts.get(at) { (effect(counts)) }
                        (self.wish_actions(at, wish))
                    }
                }
            }
        }
    }

    fn lesson(&self, wish: &str) -> Option<&Lesson> {
        let mut lessons = self.wishes.lessons.iter().rev();
        lessons.find(|it| it.wish == wish && it.state == LessonState::InForce)
    }

    fn origin(&self, wish: &str) -> Markup {
        let view = self.wishes;
        html! {
            @if view.shared.iter().any(|it| it == wish) {
                "a wish for all agents"
            } @else {
                @match self.lesson(wish) {
                    Some(lesson) => { (source(lesson, self.now_ms)) }
                    None => { "written by hand in " code { (view.file.display()) } }
                }
            }
            @if view.untold.iter().any(|it| it == wish) { " · now learned by the model itself, so no longer added to prompts" }
        }
    }

    fn wish_actions(&self, at: usize, wish: &str) -> Markup {
        let shared = AgentId::shared();
        let is_shared = self.wishes.shared.iter().any(|it| it == wish);
        let owner = if is_shared { &shared } else { self.agent };
        let fields = [
            ("what", "remove"),
            ("agent", owner.as_str()),
            ("wish", wish),
        ];
        let id = format!("edit-{at}");
        html! {
            div.actions {
                @if let Some(lesson) = self.lesson(wish).filter(|_| !is_shared) {
                    (undo(lesson, self.here))
                } @else {
                    (ActionForm {
                        action: "wish", fields: &fields, label: "Undo", about: wish, back: self.here,
                        kind: ButtonKind::Plain,
                    })
                }
                details.confirm id=(id) {
                    summary { "Edit" }
                    form.stack method="post" action="/ui/do/wish" {
                        (hidden(&[("what", "edit"), ("agent", owner.as_str()), ("wish", wish)], self.here))
                        label for={ (id) "-to" } { "New text" }
                        input id={ (id) "-to" } name="to" value=(wish) required maxlength="500";
                        button.main { "Save" }
                    }
                }
            }
        }
    }

    fn add(&self) -> Markup {
        html! {
            form.stack #add method="post" action="/ui/do/wish" {
                (hidden(&[("what", "add"), ("agent", self.agent.as_str())], self.here))
                label for="add-wish" { "Add a wish " span.soft { "One line, in your own words. It counts from the next session on." } }
                div.row {
                    input #add-wish name="wish" required maxlength="500" autocomplete="off";
                    button.main { "Add" }
                }
            }
        }
    }

    fn skills(&self) -> Markup {
        if self.skills.is_empty() {
            let next = html! { "MetaClaw proposes one when similar turns go wrong. You can also put a SKILL.md into the folder of skills." };
            return empty("There are no skills.", &next);
        }
        let (used, unused): (Vec<&SkillView>, Vec<&SkillView>) =
            self.skills.iter().partition(|it| it.counts.injected > 0);
        html! {
            ul.cards {
                @for skill in used {
                    li.card {
                        p { (self.skill_link(&skill.name)) }
                        p.soft { (skill.description) }
                        (effect(&skill.counts))
                    }
                }
            }
            @if !unused.is_empty() {
                details #unused {
                    summary { (unused.len()) " not used yet" }
                    ul { @for skill in unused { li { (self.skill_link(&skill.name)) " " span.soft { (skill.description) } } } }
                }
            }
            (self.settled())
        }
    }

    fn skill_link(&self, name: &str) -> Markup {
        html! { a href={ "/ui/skill?agent=" (encoded(self.agent.as_str())) "&name=" (encoded(name)) } { (name) } }
    }

    fn settled(&self) -> Markup {
        let settled: Vec<&Proposal> = self
            .proposals
            .iter()
            .filter(|it| !it.is_waiting())
            .collect();
        html! {
            @if !settled.is_empty() {
                details #settled {
                    summary { (settled.len()) " proposals decided, by you or by a trial" }
                    ul.lessons {
                        @for it in settled.iter().rev() {
                            li.lesson { div {
                                p { @if it.state == ProposalState::Accepted { (self.skill_link(it.name.as_str())) } @else { (it.name) }
                                    " " span.soft { (decided(it.state)) } }
                                @if matches!(it.state, ProposalState::Declined | ProposalState::AgedOut) { ul.why { @for why in &it.why { li { (why) } } } }
                                (evidence(it, self.now_ms))
                            } }
                        }
                    }
                }
            }
        }
    }

    fn own(&self) -> Markup {
        let own = self.list.lessons.iter();
        let own: Vec<_> = own.filter(|it| it.source == LessonSource::Host).collect();
        if own.is_empty() {
            let next = html! { "Some agents keep notes about you. MetaClaw shows here those that it can read." };
            return empty("No notes were found.", &next);
        }
        html! {
            ul { @for it in own { li { span.soft { (it.kind) } " " (it.lesson)
                @if let Some(about) = &it.about { " " span.soft { (about) } } } } }
        }
    }

    fn journal(&self) -> Markup {
        let shown: Vec<&Lesson> = self
            .wishes
            .lessons
            .iter()
            .rev()
            .filter(|it| it.state != LessonState::Forgotten)
            .take(JOURNAL)
            .collect();
        if shown.is_empty() {
            let next = html! { "When you ask for something once and for all, it appears here, with a link to where you said it." };
            return empty("Nothing was heard yet.", &next);
        }
        html! { ul.lessons { @for it in shown { (lesson_row(it, self.here, self.now_ms)) } } }
    }
}

fn decided(state: ProposalState) -> &'static str {
    match state {
        ProposalState::Waiting => "waits for you",
        ProposalState::Accepted => "accepted",
        ProposalState::Rejected => "rejected",
        ProposalState::Reverted => "undone",
        ProposalState::AgedOut => "not used for long, so dropped",
        ProposalState::Declined => "declined by its trial",
        ProposalState::Forgotten => "forgotten",
    }
}

pub(crate) fn lesson_row(lesson: &Lesson, here: &str, now_ms: u64) -> Markup {
    let is_gone = matches!(
        lesson.state,
        LessonState::Replaced { .. }
            | LessonState::Repeated
            | LessonState::Undone
            | LessonState::Forgotten
    );
    html! {
        li.lesson.gone[is_gone] #{ "n" (lesson.n) } {
            div {
                p.words { (lesson.wish) }
                @if lesson.heard != lesson.wish { p.soft { "you said: “" (lesson.heard) "”" } }
                p.facts { (lesson.state) " · " (lesson.origin.agent) " · " (source(lesson, now_ms)) }
            }
            @if lesson.state.can_be_undone() { (undo(lesson, here)) }
        }
    }
}

fn source(lesson: &Lesson, now_ms: u64) -> Markup {
    html! {
        @match lesson.origin.turn {
            Some(turn) => { a href={ "/ui/turns/" (turn) } { "source" } ", " }
            None => { "written by you, " }
        }
        (ago(lesson.origin.at_ms, now_ms))
    }
}

fn undo(lesson: &Lesson, here: &str) -> Markup {
    let n = lesson.n.to_string();
    let form = ActionForm {
        action: "wish",
        fields: &[("what", "undo"), ("n", &n)],
        label: "Undo",
        about: &lesson.wish,
        back: here,
        kind: ButtonKind::Plain,
    };
    html! { (form) }
}

/// What waits for a decision; nothing where nothing does.
pub(crate) fn waiting(
    lessons: &[Lesson],
    proposals: &[Proposal],
    here: &str,
    now_ms: u64,
) -> Markup {
    let is_waiting = |it: &&Lesson| matches!(it.state, LessonState::Review { .. });
    let lessons: Vec<&Lesson> = lessons.iter().filter(is_waiting).collect();
    let skills: Vec<&Proposal> = proposals.iter().filter(|it| it.is_waiting()).collect();
    html! {
        @if !lessons.is_empty() || !skills.is_empty() {
            section aria-labelledby="waits" {
                h2 #waits { "Waiting for your decision" }
                ul.cards {
                    @for it in lessons { (waiting_lesson(it, here, now_ms)) }
                    @for it in skills { (waiting_skill(it, here, now_ms)) }
                }
            }
        }
    }
}

fn waiting_lesson(lesson: &Lesson, here: &str, now_ms: u64) -> Markup {
    let LessonState::Review { why } = &lesson.state else {
        return html! {};
    };
    html! {
        li.card #{ "n" (lesson.n) } {
            p.words { (lesson.wish) }
            @if lesson.heard != lesson.wish { p.soft { "you said: “" (lesson.heard) "”" } }
            ul.why { @for why in why { li { (why) } } }
            p.facts { "a wish of " (lesson.origin.agent) " · " (source(lesson, now_ms)) }
            (decision("wish", ("n", lesson.n), ("dismiss", "Dismiss"), &lesson.wish, here))
        }
    }
}

fn waiting_skill(proposal: &Proposal, here: &str, now_ms: u64) -> Markup {
    let skill = Skill::parse(&proposal.text).ok();
    html! {
        li.card #{ "skill-" (proposal.n) } {
            p { strong { (proposal.name) } }
            @if let Some(skill) = &skill { p.soft { (skill.description) } }
            ul.why { @for why in &proposal.why { li { (why) } } }
            details id={ "skill-text-" (proposal.n) } { summary { "The whole text" } pre.added { (proposal.text) } }
            (evidence(proposal, now_ms))
            (decision("skill", ("which", proposal.n), ("reject", "Reject"), proposal.name.as_str(), here))
        }
    }
}

/// The buttons of `about`, which waits: to accept it, and to `refuse` it, by a word and a label.
fn decision(
    action: &str,
    (field, n): (&str, u64),
    refuse: (&str, &str),
    about: &str,
    back: &str,
) -> Markup {
    let n = n.to_string();
    let button = |(what, label), kind| {
        let fields = &[("what", what), (field, n.as_str())];
        html! { (ActionForm { action, fields, label, about, back, kind }) }
    };
    html! {
        div.actions {
            (button(("accept", "Accept"), ButtonKind::Main))
            (button(refuse, ButtonKind::Plain))
        }
    }
}

pub(crate) fn evidence(proposal: &Proposal, now_ms: u64) -> Markup {
    let source = &proposal.source;
    let n = u64::try_from(source.turns.len()).unwrap_or(u64::MAX);
    if let Some(shared) = &proposal.shared {
        return html! {
            p.facts {
                "a skill for " (source.agent) ", received " (ago(source.at_ms, now_ms)) " from " (shared)
                @if shared.is_withdrawn { "; its author has withdrawn it" }
            }
        };
    }
    html! {
        p.facts {
            "a skill for " (source.agent) ", written " (ago(source.at_ms, now_ms)) " from " (count(n, "turn")) " that went wrong: "
            @for (at, turn) in source.turns.iter().enumerate() {
                @if at > 0 { ", " }
                a href={ "/ui/turns/" (turn) } { (turn) }
            }
        }
    }
}
