//! `metaclaw compare`: one's own questions, answered with and without what was learned, side by side.

use clap::{Args, builder::RangedU64ValueParser};
use metaclaw_chat::{AgentId, Usage};
use metaclaw_control::compare::{Compare, ComparedQuestion, Comparison, GivenLessons, MAX_ANSWER};

use super::{
    calling::{agent, caller},
    columns::{TextColumn, side_by_side},
    context::Context,
};
use crate::{out, terminal};

/// Where the output is no terminal.
const WIDTH: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The agent: `main` for OpenClaw's. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// How many of your last questions are asked.
    #[arg(short = 'n', long = "n", value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=20))]
    n: usize,
    /// Questions to ask instead of your last ones.
    #[arg(last = true, value_name = "QUESTION")]
    questions: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl CompareArgs ===

impl CompareArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let caller = caller(context, "compare").await?;
        let agent = agent(context, self.agent.as_ref()).await?;
        let wanted = |questions, asks| Compare {
            agent: agent.clone(),
            n: self.n,
            questions,
            asks,
        };
        let plan = caller.call(wanted(self.questions.clone(), false)).await?;
        anyhow::ensure!(
            !plan.questions.is_empty(),
            "agent {agent} has asked nothing yet that could be asked again: `metaclaw compare -- \"What is rain?\"` takes a question of yours"
        );
        anyhow::ensure!(
            plan.adapter.is_some()
                || plan
                    .questions
                    .iter()
                    .any(|question| question.lessons.is_some()),
            "nothing that agent {agent} learned fits these questions, so both answers would be the same: `metaclaw wishes list --agent {agent}` shows its wishes"
        );
        out::aside(before(&plan));
        let mut compared = Vec::new();
        for planned in &plan.questions {
            let question = vec![planned.question.clone()];
            let answered = caller.call(wanted(question, true)).await?;
            for question in answered.questions {
                if !self.json {
                    out::line(shown(&question))?;
                }
                compared.push(question);
            }
        }
        if self.json {
            out::json(&compared)?;
        }
        out::aside(after(&compared));
        Ok(())
    }
}

/// Returns the highest cost of a comparison, for display before anything is asked. A token is about four characters.
fn before(plan: &Comparison) -> String {
    let (mut n_requests, mut n_chars) = (0, 0);
    for planned in &plan.questions {
        for given in plan.columns(planned) {
            n_requests += 1;
            n_chars += planned.question.chars().count();
            if given != GivenLessons::Nothing {
                n_chars += planned
                    .lessons
                    .as_deref()
                    .map_or(0, |lessons| lessons.chars().count());
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

fn after(compared: &[ComparedQuestion]) -> String {
    let answers = || compared.iter().flat_map(|question| &question.answers);
    let usage: Vec<Usage> = answers().filter_map(|(_, answer)| answer.usage).collect();
    let sum = |of: fn(&Usage) -> u64| usage.iter().map(of).sum::<u64>();
    let uncounted = answers().count() - usage.len();
    let cost = format!(
        "spent: {} tokens in, {} out",
        sum(|usage| usage.prompt_tokens),
        sum(|usage| usage.completion_tokens)
    );
    match uncounted {
        0 => cost,
        n => format!("{cost}; of {n} answers nobody said what they cost"),
    }
}

fn shown(compared: &ComparedQuestion) -> String {
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
    use metaclaw_control::compare::ComparedAnswer;

    use super::*;

    #[test]
    fn the_cost_is_told_before_and_after() {
        let planned = |lessons: Option<&str>| ComparedQuestion {
            question: "What is rain?".to_owned(),
            lessons: lessons.map(str::to_owned),
            answers: Vec::new(),
        };
        let plan = Comparison {
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
        let compared = ComparedQuestion {
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
