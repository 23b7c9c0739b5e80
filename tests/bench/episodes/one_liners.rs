//! One-line commands in a shell: "Extract the first 3 lines of films.txt." is to become `head -n 3 films.txt > out.txt`.
//!
//! A command is right if it leaves the right file behind, whatever it is. The prompt shows eighteen tasks with their
//! commands.

use serde_json::{Value, json};

use crate::{
    draw::SeededDraw,
    share::{Share, SharedOut},
};

const SYSTEM: &str = "You work in a Linux shell. Do each task with one command, in a code block. The result always \
                      goes into out.txt.";
/// A copy of the task's file for the check: a command may change the file itself.
const ORIGINAL: &str = ".original";

/// Tasks of one kind.
#[derive(Debug)]
struct CommandKind {
    /// Wordings, with `{f}`, `{n}` and `{w}` for the file, a number and a word.
    wordings: SharedOut,
    /// What prints the right result, for the check.
    right: &'static str,
}

const KINDS: [CommandKind; 6] = [
    CommandKind {
        wordings: SharedOut {
            train: &[
                "How many lines does {f} have?",
                "Count the lines of {f}.",
                "Tell me how many lines {f} has.",
                "The number of lines of {f}, please.",
            ],
            held_out: &[
                "What number of lines does {f} have?",
                "I want to know how many lines are in {f}.",
            ],
        },
        right: "wc -l < .original",
    },
    CommandKind {
        wordings: SharedOut {
            train: &[
                "Take the first {n} lines of {f}.",
                "The first {n} lines of {f}, please.",
                "Give me the top {n} lines of {f}.",
                "How does {f} begin? {n} lines are enough.",
            ],
            held_out: &[
                "Show the first {n} lines of {f}.",
                "I only need {f} up to line {n}.",
            ],
        },
        right: "head -n {n} .original",
    },
    CommandKind {
        wordings: SharedOut {
            train: &[
                "Take the last {n} lines of {f}.",
                "The last {n} lines of {f}, please.",
                "Give me the bottom {n} lines of {f}.",
                "How does {f} end? {n} lines are enough.",
            ],
            held_out: &[
                "Show the last {n} lines of {f}.",
                "I only need the final {n} lines of {f}.",
            ],
        },
        right: "tail -n {n} .original",
    },
    CommandKind {
        wordings: SharedOut {
            train: &[
                "Take the lines of {f} that contain {w}.",
                "Find {w} in {f}.",
                "Give me all lines with {w} in {f}.",
                "Does {f} mention {w}? I need the lines.",
            ],
            held_out: &[
                "Show me every line of {f} with {w}.",
                "Which lines of {f} say {w}?",
            ],
        },
        right: "grep {w} .original",
    },
    CommandKind {
        wordings: SharedOut {
            train: &[
                "Bring {f} into alphabetical order.",
                "Give me the lines of {f} sorted.",
                "Put the lines of {f} in order.",
                "I need {f} ordered by letter.",
            ],
            held_out: &[
                "Put {f} into alphabetical order.",
                "Order the lines of {f} from A to Z.",
            ],
        },
        right: "sort .original",
    },
    CommandKind {
        wordings: SharedOut {
            train: &[
                "Take the contents of {f}.",
                "What is in {f}?",
                "Give me {f}.",
                "Save the text of {f}.",
            ],
            held_out: &["Show me {f}.", "I need a copy of {f}."],
        },
        right: "cat .original",
    },
];

const FILES: SharedOut = SharedOut {
    train: &[
        "notes.txt",
        "todo.txt",
        "poem.txt",
        "guests.txt",
        "words.txt",
        "tasks.txt",
        "books.txt",
        "birds.txt",
        "menu.txt",
        "trips.txt",
        "letters.txt",
        "plants.txt",
    ],
    held_out: &[
        "rivers.txt",
        "colours.txt",
        "sports.txt",
        "rooms.txt",
        "games.txt",
        "stories.txt",
        "flowers.txt",
    ],
};

const NUMBERS: SharedOut = SharedOut {
    train: &["1", "2", "3", "5", "6"],
    held_out: &["2", "3", "4", "5"],
};

const WORDS: SharedOut = SharedOut {
    train: &[
        "apple", "river", "green", "paper", "stone", "winter", "table", "music", "garden", "silver",
    ],
    held_out: &["lemon", "castle", "purple", "mirror", "autumn", "harbour"],
};

/// Words of the files that no task asks for.
const FILLERS: [&str; 12] = [
    "cloud", "forest", "letter", "bottle", "horse", "candle", "market", "island", "planet",
    "coffee", "pencil", "engine",
];

/// The exchanges of the prompt; each command is followed by `> out.txt`.
const EARLIER: [(&str, &str); 18] = [
    ("How many lines are in report.txt?", "wc -l report.txt"),
    ("Get the first 4 lines of names.txt.", "head -n 4 names.txt"),
    ("Get the lines of log.txt with error.", "grep error log.txt"),
    ("Sort towns.txt, please.", "sort towns.txt"),
    ("Take the end of data.txt, 2 lines.", "tail -n 2 data.txt"),
    ("Copy all of letter.txt.", "cat letter.txt"),
    ("Look for invoice in mail.txt.", "grep invoice mail.txt"),
    ("What is the length of mail.txt in lines?", "wc -l mail.txt"),
    (
        "I need the top 7 lines of prices.txt.",
        "head -n 7 prices.txt",
    ),
    ("What does diary.txt say?", "cat diary.txt"),
    ("I need people.txt from A to Z.", "sort people.txt"),
    ("The bottom 6 lines of essay.txt.", "tail -n 6 essay.txt"),
    ("Which lines of code.txt have fix?", "grep fix code.txt"),
    ("Count lines: names.txt", "wc -l names.txt"),
    ("Make a copy of essay.txt.", "cat essay.txt"),
    ("List words.txt alphabetically.", "sort words.txt"),
    ("Only the first 2 lines of log.txt.", "head -n 2 log.txt"),
    (
        "I want the last 9 lines of towns.txt.",
        "tail -n 9 towns.txt",
    ),
];

/// Returns the task with number `i`, without its id.
pub fn task(i: usize, share: Share, draw: &mut SeededDraw) -> Value {
    let kind = &KINDS[i % KINDS.len()];
    let file = FILES.pick(share, draw);
    let number = NUMBERS.pick(share, draw);
    let word = WORDS.pick(share, draw);
    let filled = |text: &str| {
        text.replace("{f}", file)
            .replace("{n}", number)
            .replace("{w}", word)
    };
    let text = file_text(word, share, draw);
    let earlier = EARLIER.map(|(task, command)| {
        let reply = format!("```bash\n{command} > out.txt\n```");
        json!({"user": task, "assistant": reply})
    });
    json!({
        "system": SYSTEM, "earlier": earlier, "prompt": filled(kind.wordings.pick(share, draw)),
        "files": {file: text}, "check": check(&filled(kind.right)), "check_files": {ORIGINAL: text},
        "max_turns": 1, "max_tokens": 40, "temperature": 1,
    })
}

/// A script that fails unless out.txt has the lines that `right` prints. After a number, as `wc` writes it, a name may
/// follow. A link that the model has left in the place of `.right` goes first.
fn check(right: &str) -> String {
    format!(
        "rm -rf .right; test -f out.txt && {right} > .right && sed 's/^ *\\([0-9][0-9]*\\) .*/\\1/' out.txt | cmp -s - .right"
    )
}

/// Returns 7 to 12 lines of words, some with `word`.
fn file_text(word: &str, share: Share, draw: &mut SeededDraw) -> String {
    let n = 7 + draw.below(6);
    let mut lines: Vec<Vec<&str>> = Vec::with_capacity(n);
    for _ in 0..n {
        let words = 1 + draw.below(4);
        let mut line = vec![draw.pick(&FILLERS)];
        line.extend((0..words).map(|_| WORDS.pick(share, draw)));
        lines.push(line);
    }
    let first = draw.below(n);
    lines[first].push(word);
    // A result is never empty, and never the whole file.
    lines[(first + 1) % n].retain(|it| *it != word);
    lines.iter().map(|line| line.join(" ") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

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
        let mut draw = SeededDraw::new(5);
        for (i, kind) in KINDS.iter().enumerate() {
            let task = task(i, Share::HeldOut, &mut draw);
            let files = task["files"].as_object().unwrap();
            let file = files.keys().next().unwrap();
            let checked = task["check"].as_str().unwrap();
            let right = checked.split_once("&& ").unwrap().1;
            let right = right.split_once(" > .right").unwrap().0;
            let right = right.replace(ORIGINAL, file);
            assert!(passes(&task, &format!("{right} > out.txt")), "{right}");
            assert!(!passes(&task, &right), "{right}");
            assert!(!passes(&task, "echo 99 > out.txt"), "{right}");
            assert!(
                !passes(&task, &format!("> {file}; {right} > out.txt")),
                "{kind:?}"
            );
        }
        let count = task(0, Share::Train, &mut draw);
        let file = count["files"].as_object().unwrap().keys().next().unwrap();
        assert!(passes(&count, &format!("wc -l {file} > out.txt")));
    }
}
