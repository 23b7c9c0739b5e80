//! `metaclaw compare`: one's own questions, answered with and without what was learned, side by side.

use std::process::ExitCode;

use clap::Args;
use metaclaw_chat::{AgentId, Usage};
use metaclaw_control::{
    caller::ControlCaller,
    compare::{
        ComparedAnswer, ComparedQuestion, ComparisonPlan, ComparisonWanted, GivenLessons,
        MAX_ANSWER, PlannedQuestion,
    },
};
use serde::Serialize;

use super::{
    calling::{agent, caller},
    columns::{TextColumn, side_by_side},
    context::Context,
};
use crate::{out, terminal};

/// Where the output is no terminal.
const WIDTH: usize = 100;

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The agent whose questions and lessons they are: `main` for OpenClaw's; without one, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// So many of your last questions.
    #[arg(short = 'n', long = "n", value_name = "N", default_value_t = 5, value_parser = number)]
    n: usize,
    /// These, in place of your last ones.
    #[arg(last = true, value_name = "QUESTION")]
    questions: Vec<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=20) => Ok(n),
        _ => Err("a number from 1 to 20".to_owned()),
    }
}

/// One question with its answers, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Compared {
    question: String,
    /// What a new session would be given with it.
    lessons: Option<String>,
    answers: Vec<(GivenLessons, ComparedAnswer)>,
}

// === impl CompareArgs ===

impl CompareArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let caller = caller(context, "compare").await?;
        let agent = agent(context, self.agent.as_ref()).await?;
        let wanted = ComparisonWanted {
            agent: agent.clone(),
            n: self.n,
            questions: self.questions.clone(),
        };
        let plan = caller.call(wanted).await?;
        anyhow::ensure!(
            !plan.questions.is_empty(),
            "agent {agent} has asked nothing yet that could be asked again: `metaclaw compare -- \"What is rain?\"` takes a question of yours"
        );
        anyhow::ensure!(
            plan.adapter.is_some() || plan.questions.iter().any(|it| it.lessons.is_some()),
            "nothing that agent {agent} learned fits these questions, so both answers would be the same: `metaclaw wishes list --agent {agent}` shows its wishes"
        );
        out::aside(before(&plan));
        let mut compared = Vec::new();
        for planned in &plan.questions {
            let one = self.one(&caller, &agent, &plan, planned).await?;
            if !self.json {
                out::line(shown(&one))?;
            }
            compared.push(one);
        }
        if self.json {
            out::json(&compared)?;
        }
        out::aside(after(&compared));
        Ok(ExitCode::SUCCESS)
    }

    async fn one(
        &self,
        caller: &ControlCaller,
        agent: &AgentId,
        plan: &ComparisonPlan,
        planned: &PlannedQuestion,
    ) -> anyhow::Result<Compared> {
        let (question, lessons) = (&planned.question, planned.lessons.clone());
        let mut answers = Vec::new();
        for given in columns_of(plan, lessons.is_some()) {
            let asked = ComparedQuestion {
                agent: agent.clone(),
                text: question.clone(),
                given,
            };
            let answered = caller.call(asked).await?;
            answers.push((given, answered));
        }
        Ok(Compared {
            question: question.clone(),
            lessons,
            answers,
        })
    }
}

/// What there is to compare for a question.
fn columns_of(plan: &ComparisonPlan, has_lessons: bool) -> Vec<GivenLessons> {
    let lessons = has_lessons.then_some(GivenLessons::Lessons);
    let weights = plan.adapter.as_ref().map(|_| GivenLessons::Weights);
    [Some(GivenLessons::Nothing), lessons, weights]
        .into_iter()
        .flatten()
        .collect()
}

/// What it will cost, before anything is asked. Four characters make about a token.
fn before(plan: &ComparisonPlan) -> String {
    let (mut n_requests, mut n_chars) = (0, 0);
    for planned in &plan.questions {
        for given in columns_of(plan, planned.lessons.is_some()) {
            n_requests += 1;
            n_chars += planned.question.chars().count();
            if given != GivenLessons::Nothing {
                n_chars += planned.lessons.as_ref().map_or(0, |it| it.chars().count());
            }
        }
    }
    let most = n_requests * u64::from(MAX_ANSWER);
    format!(
        "asking {}: {n_requests} requests, about {} tokens in and at most {most} out; none of it is kept or learned from",
        plan.model,
        n_chars / 4
    )
}

/// What it did cost.
fn after(compared: &[Compared]) -> String {
    let answers = || compared.iter().flat_map(|it| &it.answers);
    let usage: Vec<Usage> = answers().filter_map(|(_, it)| it.usage).collect();
    let sum = |of: fn(&Usage) -> u64| usage.iter().map(of).sum::<u64>();
    let uncounted = answers().count() - usage.len();
    let cost = format!(
        "spent: {} tokens in, {} out",
        sum(|it| it.prompt_tokens),
        sum(|it| it.completion_tokens)
    );
    match uncounted {
        0 => cost,
        n => format!("{cost}; of {n} answers nobody said what they cost"),
    }
}

fn shown(compared: &Compared) -> String {
    let columns: Vec<TextColumn<'_>> = compared
        .answers
        .iter()
        .map(|(given, answered)| TextColumn {
            title: title(*given),
            text: &answered.text,
        })
        .collect();
    let width = terminal::width().unwrap_or(WIDTH);
    let heading = textwrap::fill(&format!("> {}", compared.question), width);
    format!("{heading}\n\n{}\n", side_by_side(&columns, width))
}

fn title(given: GivenLessons) -> &'static str {
    match given {
        GivenLessons::Nothing => "without",
        GivenLessons::Lessons => "with wishes and skills",
        GivenLessons::Weights => "with all that was learned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_told_before_and_after() {
        let planned = |lessons: Option<&str>| PlannedQuestion {
            question: "What is rain?".to_owned(),
            lessons: lessons.map(str::to_owned),
        };
        let plan = ComparisonPlan {
            model: "m at http://x/v1".to_owned(),
            adapter: None,
            questions: vec![planned(Some("- Be brief.")), planned(None)],
        };
        insta::assert_snapshot!(before(&plan), @"asking m at http://x/v1: 3 requests, about 12 tokens in and at most 2400 out; none of it is kept or learned from");
        let answered = |usage| ComparedAnswer {
            text: "Water.".to_owned(),
            usage,
        };
        let usage = Usage {
            prompt_tokens: 7,
            completion_tokens: 2,
            cached_tokens: 0,
        };
        let compared = Compared {
            question: "What is rain?".to_owned(),
            lessons: None,
            answers: vec![
                (GivenLessons::Nothing, answered(Some(usage))),
                (GivenLessons::Lessons, answered(None)),
            ],
        };
        insta::assert_snapshot!(after(&[compared]), @"spent: 7 tokens in, 2 out; of 1 answers nobody said what they cost");
    }
}
