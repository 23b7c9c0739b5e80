//! What a run would do: counts, and the first program with its environment.

use std::path::Path;

use metaclaw_chat::head;
use serde_json::Value;

use super::{
    order::{TaskOrder, n_steps},
    programs::local_program,
    setup::{RunSetup, RunTasks},
};
use crate::{episode::TaskRunError, file::RewardSource, program::ProgramJob};

const TASK_SHOWN: usize = 400;

/// What a run would do, in lines. Nothing is opened and no program is started.
///
/// # Errors
/// If the file names no program.
pub fn dry_run(setup: &RunSetup<'_>, tasks: &RunTasks) -> Result<Vec<String>, TaskRunError> {
    let mut lines = match &setup.eval {
        Some(eval) => {
            let n = tasks.measured().len();
            let tries = eval.tries.unwrap_or(setup.file.group_size);
            let adapter = eval.adapter.as_deref().unwrap_or("the adapter that serves");
            let all = n as u64 * u64::from(tries);
            vec![format!(
                "measures: {n} tasks, {tries} tries of each = {all} episodes, under {adapter}; nothing is trained"
            )]
        }
        None => training(setup, tasks),
    };
    let file = setup.file;
    lines.push(format!("agent:    {}", file.agent));
    lines.push(format!(
        "at once:  {}, each for at most {}",
        file.at_once, file.timeout
    ));
    lines.push(format!("reward:   {}", reward(&file.reward)));
    if file.environments.is_empty() {
        lines.extend(program(setup, tasks)?);
    } else {
        let urls: Vec<String> = file.environments.iter().map(ToString::to_string).collect();
        lines.push(format!("runs at:  {}", urls.join(", ")));
    }
    Ok(lines)
}

fn training(setup: &RunSetup<'_>, tasks: &RunTasks) -> Vec<String> {
    let file = setup.file;
    let steps = n_steps(file, tasks);
    let least = file.tasks_per_step as u64 * u64::from(file.group_size);
    let most = (file.tasks_per_step + file.resample) as u64 * u64::from(file.group_size);
    let mut lines = vec![
        format!(
            "tasks:    {}, and {} held out",
            tasks.train.len(),
            tasks.held_out.len()
        ),
        format!(
            "steps:    {steps}, each of {} groups of {} episodes, and at most {} groups more for those without difference",
            file.tasks_per_step, file.group_size, file.resample
        ),
        format!("episodes: {} to {}", steps * least, steps * most),
    ];
    if !tasks.held_out.is_empty() {
        let between = file
            .eval_every
            .map_or(0, |every| steps.saturating_sub(1) / every);
        let times = between + 2;
        let each = tasks.held_out.len() as u64 * u64::from(file.eval_tries);
        lines.push(format!("measures: {times} times, {each} episodes each"));
    }
    lines
}

fn program(setup: &RunSetup<'_>, tasks: &RunTasks) -> Result<Vec<String>, TaskRunError> {
    let folder = setup.folder.join("dry-run");
    let file = setup.file;
    let program = local_program(file, &setup.metaclaw, &folder)?;
    let mut lines = vec![
        format!("command:  {}", program.words.join(" ")),
        format!("in:       {}", file.folder().display()),
    ];
    let first = match &setup.eval {
        Some(_) => tasks.measured().first(),
        None => tasks
            .train
            .get(TaskOrder::new(tasks.train.len(), file.seed).at(0)),
    };
    let Some(task) = first else {
        return Ok(lines);
    };
    let proxy = file.proxy_url.as_ref().unwrap_or(&setup.proxy.base_url);
    let base = proxy.origin().ascii_serialization();
    let job = ProgramJob {
        rollout: metaclaw_chat::RolloutId::new(0, 0),
        task: task.fields.clone(),
        base_url: format!("{base}/rollout/ID/v1"),
        anthropic_base_url: format!("{base}/rollout/ID"),
        api_key: "KEY".to_owned(),
        max_turns: file.max_turns,
    };
    lines.push("with:".to_owned());
    let variables = program.variables(&job, Path::new("FOLDER"));
    lines.extend(
        variables
            .iter()
            .map(|(name, value)| format!("    {name}={value}")),
    );
    let text = Value::Object(task.fields.clone()).to_string();
    lines.push(format!("first:    {}", head(&text, TASK_SHOWN)));
    Ok(lines)
}

fn reward(source: &RewardSource) -> String {
    match source {
        RewardSource::ExitCode => "1 if the program ends with code 0, else 0".to_owned(),
        RewardSource::File => "what the program writes to METACLAW_REWARD".to_owned(),
        RewardSource::Function(function) => format!("asked at {}", function.url),
        RewardSource::Judge => "the judge of config.yaml".to_owned(),
        RewardSource::JudgeModel(judge) => format!("{} at {}", judge.model, judge.base_url),
    }
}
