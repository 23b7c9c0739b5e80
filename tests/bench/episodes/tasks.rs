//! The two families of tasks. Each has its own wordings and values for training and for the held-out tasks. All choices
//! follow from a seed, on every machine and with every version.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Result, ensure};
use metaclaw_tests::questions::split_mix;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

const SMART_HOME: &str = include_str!("smart_home.yaml");
const ONE_LINERS: &str = include_str!("one_liners.yaml");
const TOOLS: &str = include_str!("tools.json");
/// The tasks of a run that are trained on.
const N_TRAIN: usize = 240;
/// The held-out tasks, which are the same for all runs.
const N_HELD_OUT: usize = 64;
/// How often a wording is drawn again because the task exists already.
const DRAWS: usize = 10_000;
/// The kinds of requests in a home come in turn within so many tasks.
const N_HOME: usize = 24;

/// What the tasks are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchFamily {
    /// Requests in a home, each for one call of a tool (track `toolcall`).
    SmartHome,
    /// One-line commands in a shell (track `terminal`).
    OneLiners,
}

/// Which tasks are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    Train,
    HeldOut,
}

/// Texts for training, and others for the held-out tasks.
#[derive(Debug, Deserialize)]
struct SharedOut {
    train: Vec<String>,
    held_out: Vec<String>,
}

/// The file smart_home.yaml.
#[derive(Debug, Deserialize)]
struct SmartHome {
    system: String,
    earlier: Value,
    kinds: Vec<HomeKind>,
    values: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct HomeKind {
    n: usize,
    values: String,
    expect: Value,
    wordings: SharedOut,
}

/// The file one_liners.yaml.
#[derive(Debug, Deserialize)]
struct OneLiners {
    system: String,
    earlier: Vec<ShownCommand>,
    kinds: Vec<CommandKind>,
    files: SharedOut,
    numbers: SharedOut,
    words: SharedOut,
    fillers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ShownCommand {
    user: String,
    command: String,
}

#[derive(Debug, Deserialize)]
struct CommandKind {
    right: String,
    wordings: SharedOut,
}

// === impl BenchFamily ===

impl BenchFamily {
    pub const ALL: [Self; 2] = [Self::SmartHome, Self::OneLiners];

    /// The name of the track that runs the tasks.
    pub fn track(self) -> &'static str {
        match self {
            Self::SmartHome => "toolcall",
            Self::OneLiners => "terminal",
        }
    }

    /// Returns tasks for a track. No two ask the same, and each kind has its share.
    fn tasks(self, share: Share, mut seed: u64) -> Vec<Value> {
        let n = match share {
            Share::Train => N_TRAIN,
            Share::HeldOut => N_HELD_OUT,
        };
        let (home, shell): (SmartHome, OneLiners) = (read(SMART_HOME), read(ONE_LINERS));
        let mut asked = HashSet::new();
        let mut tasks = Vec::with_capacity(n);
        for i in 0..DRAWS {
            let mut task = match self {
                Self::SmartHome => home.task(i, share, &mut seed),
                Self::OneLiners => shell.task(i, share, &mut seed),
            };
            if asked.insert(task["prompt"].to_string()) {
                task["id"] = json!(format!("{}-{}", share.name(), tasks.len()));
                tasks.push(task);
            }
            if tasks.len() == n {
                break;
            }
        }
        tasks
    }

    /// Writes the tasks and all files that they name into a folder.
    ///
    /// # Errors
    /// If there are too few wordings, or the folder cannot be written.
    pub fn write(self, folder: &Path, seed: u64) -> Result<()> {
        for (share, seed, n) in [
            (Share::Train, seed, N_TRAIN),
            (Share::HeldOut, 0, N_HELD_OUT),
        ] {
            let tasks = self.tasks(share, seed);
            ensure!(tasks.len() == n, "only {} different tasks", tasks.len());
            let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
            fs::write(
                folder.join(format!("{}.jsonl", share.name())),
                lines.join("\n") + "\n",
            )?;
        }
        if self == Self::SmartHome {
            fs::write(folder.join("tools.json"), TOOLS)?;
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("a file of this bench")
}

/// Returns a number below `n`, which is at least 1.
fn below(n: usize, seed: &mut u64) -> usize {
    let below = split_mix(seed) % n as u64;
    usize::try_from(below).expect("it is below a usize")
}

fn pick<'a>(texts: &'a [String], seed: &mut u64) -> &'a str {
    &texts[below(texts.len(), seed)]
}

// === impl Share ===

impl Share {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::HeldOut => "held-out",
        }
    }
}

// === impl SharedOut ===

impl SharedOut {
    fn pick(&self, share: Share, seed: &mut u64) -> &str {
        match share {
            Share::Train => pick(&self.train, seed),
            Share::HeldOut => pick(&self.held_out, seed),
        }
    }
}

// === impl SmartHome ===

impl SmartHome {
    /// Returns the task with number `i`, without its id.
    fn task(&self, i: usize, share: Share, seed: &mut u64) -> Value {
        let mut kinds = self
            .kinds
            .iter()
            .flat_map(|kind| std::iter::repeat_n(kind, kind.n));
        // 7 has no common factor with 24: neighbours are of different kinds.
        let kind = kinds.nth(i * 7 % N_HOME).expect("24 in all");
        let values = SharedOut::deserialize(&self.values[&kind.values]).expect("two lists");
        let value = values.pick(share, seed);
        let prompt = kind.wordings.pick(share, seed).replace("{}", value);
        json!({
            "system": self.system, "earlier": self.earlier, "prompt": prompt, "tools": "tools.json",
            "expect": filled(&kind.expect, value), "max_turns": 1, "max_tokens": 40, "temperature": 1,
        })
    }
}

/// Puts the value in its places.
fn filled(expect: &Value, value: &str) -> Value {
    match expect {
        Value::Array(all) => all.iter().map(|inner| filled(inner, value)).collect(),
        Value::Object(all) => {
            let inner = all
                .iter()
                .map(|(key, inner)| (key.clone(), filled(inner, value)));
            Value::Object(inner.collect())
        }
        Value::String(text) => match &**text {
            "{}" => json!(value),
            "{n}" => json!(value.parse::<u32>().expect("a number of minutes")),
            "{C}" => json!(value[..1].to_uppercase() + &value[1..]),
            _ => expect.clone(),
        },
        _ => expect.clone(),
    }
}

// === impl OneLiners ===

impl OneLiners {
    /// Returns the task with number `i`, without its id.
    fn task(&self, i: usize, share: Share, seed: &mut u64) -> Value {
        let kind = &self.kinds[i % self.kinds.len()];
        let file = self.files.pick(share, seed);
        let number = self.numbers.pick(share, seed);
        let word = self.words.pick(share, seed);
        let filled = |text: &str| {
            text.replace("{f}", file)
                .replace("{n}", number)
                .replace("{w}", word)
        };
        let text = self.file_text(word, share, seed);
        let earlier = self.earlier.iter().map(|ShownCommand { user, command }| {
            let reply = format!("```bash\n{command} > out.txt\n```");
            json!({"user": user, "assistant": reply})
        });
        // A command may change the file itself, so the check has a copy.
        json!({
            "system": self.system, "earlier": earlier.collect::<Vec<_>>(),
            "prompt": filled(kind.wordings.pick(share, seed)),
            "files": {file: text}, "check": check(&filled(&kind.right)), "check_files": {".original": text},
            "max_turns": 1, "max_tokens": 40, "temperature": 1,
        })
    }

    /// Returns 7 to 12 lines of words, some with `word`.
    fn file_text(&self, word: &str, share: Share, seed: &mut u64) -> String {
        let n = 7 + below(6, seed);
        let mut lines: Vec<Vec<&str>> = Vec::with_capacity(n);
        for _ in 0..n {
            let words = 1 + below(4, seed);
            let mut line = vec![pick(&self.fillers, seed)];
            line.extend((0..words).map(|_| self.words.pick(share, seed)));
            lines.push(line);
        }
        let first = below(n, seed);
        lines[first].push(word);
        // A result is never empty, and never the whole file.
        lines[(first + 1) % n].retain(|other| *other != word);
        lines.iter().map(|line| line.join(" ") + "\n").collect()
    }
}

/// A script that fails unless out.txt has the lines that `right` prints. After a number, as `wc` writes it, a name may
/// follow. A link that the model has left in the place of `.right` goes first.
fn check(right: &str) -> String {
    format!(
        "rm -rf .right; test -f out.txt && {right} > .right && sed 's/^ *\\([0-9][0-9]*\\) .*/\\1/' out.txt | cmp -s - .right"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tasks_follow_from_the_seed_and_none_is_held_out_and_trained() {
        for family in BenchFamily::ALL {
            let train = family.tasks(Share::Train, 1);
            let held_out = family.tasks(Share::HeldOut, 0);
            assert_eq!((train.len(), held_out.len()), (N_TRAIN, N_HELD_OUT));
            assert_eq!(train, family.tasks(Share::Train, 1));
            assert_ne!(train, family.tasks(Share::Train, 2));
            let is_trained =
                |task: &Value| train.iter().any(|other| other["prompt"] == task["prompt"]);
            assert!(!held_out.iter().any(is_trained));
        }
    }

    #[test]
    fn a_request_has_the_call_that_fulfils_it() {
        let home: SmartHome = read(SMART_HOME);
        assert_eq!(home.kinds.iter().map(|kind| kind.n).sum::<usize>(), N_HOME);
        // The kinds with numbers 2 and 3 come at these places.
        for (i, on) in [(8, true), (11, false), (13, false)] {
            let task = home.task(i * 7 % N_HOME, Share::HeldOut, &mut 3);
            let arguments = &task["expect"]["calls"][0]["arguments"];
            let room = arguments["room"]["one_of"][0].as_str().unwrap();
            assert!(task["prompt"].as_str().unwrap().contains(room), "{task}");
            assert_eq!(arguments["on"], on, "{task}");
        }
    }

    /// Runs a command and then a task's check in a folder with the task's files.
    fn passes(task: &Value, command: &str) -> bool {
        let folder = tempfile::TempDir::new().unwrap();
        let run = |script: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", script]).current_dir(folder.path());
            shell.status().unwrap().success()
        };
        let write = |files: &Value| {
            for (name, text) in files.as_object().unwrap() {
                fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
            }
        };
        write(&task["files"]);
        run(command);
        write(&task["check_files"]);
        run(task["check"].as_str().unwrap())
    }

    #[test]
    fn the_right_command_passes_and_another_does_not() {
        let shell: OneLiners = read(ONE_LINERS);
        let mut seed = 5;
        let file = |task: &Value| {
            task["files"]
                .as_object()
                .unwrap()
                .keys()
                .next()
                .unwrap()
                .clone()
        };
        for i in 0..shell.kinds.len() {
            let task = shell.task(i, Share::HeldOut, &mut seed);
            let checked = task["check"].as_str().unwrap();
            let right = checked
                .split_once("&& ")
                .unwrap()
                .1
                .split_once(" > .right")
                .unwrap()
                .0;
            let file = file(&task);
            let right = right.replace(".original", &file);
            assert!(passes(&task, &format!("{right} > out.txt")), "{right}");
            for wrong in [
                &right,
                "echo 99 > out.txt",
                &format!("> {file}; {right} > out.txt"),
            ] {
                assert!(!passes(&task, wrong), "{wrong}");
            }
        }
        let count = shell.task(0, Share::Train, &mut seed);
        assert!(passes(&count, &format!("wc -l {} > out.txt", file(&count))));
    }
}
