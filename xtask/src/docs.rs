//! `cargo xtask docs` checks the commands of README, CONTRIBUTING.md, docs/ and the pages beside examples and packages.
//!
//! Each `metaclaw` command of a page must name a subcommand and flags that docs/using/commands.md has, which is made from
//! the program's help, and each `cargo xtask` command one of ours. Those of `docs/commands.txt` are also run, in a scratch
//! home with a scripted upstream.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::command;

use crate::cargo::cargo;
use crate::files;
use crate::places::Places;
use crate::upstream;

const USAGE: &str = include_str!("usage.txt");
const COMMANDS: &str = include_str!("docs/commands.txt");
/// The page whose tables name commands of other systems too.
const OTHER_SYSTEMS: &str = "docs/using/coming-from-elsewhere.md";
/// Commands that docs/using/commands.md lists under another name.
const ALIASES: [&str; 1] = ["metaclaw adapters promote"];

#[derive(Debug, Default, PartialEq)]
struct DocCommand<'a> {
    /// As it stands on a page; `None` if it only prepares what follows.
    on_page: Option<&'a str>,
    run: &'a str,
    exit: i32,
    prints: Vec<&'a str>,
}

/// Checks the pages, then runs the commands. `--check` runs nothing.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    check(places)?;
    match args {
        [only] if only == "--check" => return Ok(()),
        [] => {}
        _ => bail!("it takes only --check"),
    }
    let bin_dir = if let Some(given) = std::env::var_os("METACLAW_TEST_BIN_DIR") {
        PathBuf::from(given)
    } else {
        command::run(&mut cargo(places, &["build", "-p", "metaclaw"]))?;
        places.target.join("debug")
    };
    run_commands(places, &bin_dir)
}

pub(crate) fn check(places: &Places) -> Result<()> {
    let wrong = find_wrong(&places.root)?.join("\n");
    ensure!(
        wrong.is_empty(),
        "the pages and the commands do not fit:\n{wrong}"
    );
    Ok(())
}

/// Runs the commands of `commands.txt` with the programs of a folder.
///
/// # Errors
/// The commands whose exit code or output is another.
pub(crate) fn run_commands(places: &Places, bin_dir: &Path) -> Result<()> {
    let scratch = Scratch::new(&places.root, bin_dir)?;
    let mut failed = Vec::new();
    for command in read_commands(COMMANDS)? {
        let (code, printed) = scratch.run(command.run)?;
        let has_words = command.prints.iter().all(|words| printed.contains(words));
        let is_well = code == command.exit && has_words;
        if !is_well {
            println!("FAILED  {command:?}\nexit code {code}\n{printed}");
            failed.push(command.run);
        } else if command.on_page.is_some() {
            println!("ok      {}", command.run);
        }
    }
    // The proxy may still run if a command failed.
    scratch.run("metaclaw stop")?;
    let (failed, home) = (failed.join(" | "), scratch.folder.display());
    ensure!(
        failed.is_empty(),
        "these commands do not do what xtask/src/docs/commands.txt says: {failed}; the home is kept: {home}"
    );
    fs::remove_dir_all(&scratch.folder).ok();
    Ok(())
}

fn read_commands(text: &str) -> Result<Vec<DocCommand<'_>>> {
    let mut commands = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.starts_with('#')) {
        let mut lines = block.trim().lines();
        let first = lines.next().context("an empty command")?;
        let (on_page, run) = match first.split_once(' ') {
            Some(("$", text)) => (Some(text), text),
            Some(("!", run)) => (None, run),
            _ => bail!("`{first}` begins with neither `$` nor `!`"),
        };
        let mut command = DocCommand {
            on_page,
            run,
            ..DocCommand::default()
        };
        for line in lines {
            match line.split_once(' ') {
                Some(("as", run)) => command.run = run,
                Some(("exit", code)) => command.exit = code.parse()?,
                _ => command.prints.push(line),
            }
        }
        commands.push(command);
    }
    Ok(commands)
}

fn find_wrong(root: &Path) -> Result<Vec<String>> {
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "examples/rollouts", "addons/packages"] {
        collect_pages(&root.join(folder), &mut pages)?;
    }
    let help = fs::read_to_string(root.join("docs/using/commands.md"))?;
    let sections = read_help(&help);
    let mut wrong = Vec::new();
    let commands = read_commands(COMMANDS)?.into_iter();
    let mut unseen: Vec<&str> = commands.filter_map(|command| command.on_page).collect();
    for path in pages {
        let text = files::read(&path)?;
        for (line, code) in find_code(&text) {
            unseen.retain(|command| *command != code);
            if path.ends_with(OTHER_SYSTEMS) {
                continue;
            }
            let complaints = invocations(&code).filter_map(|words| complaint(&sections, &words));
            let page = path.strip_prefix(root).unwrap_or(&path).display();
            wrong.extend(complaints.map(|why| format!("{page}:{line}: {why}")));
        }
    }
    let is_nowhere =
        |command| format!("no page has `{command}`, which xtask/src/docs/commands.txt runs");
    wrong.extend(unseen.into_iter().map(is_nowhere));
    Ok(wrong)
}

fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for path in files::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            collect_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns each line of a code block, without its comment and with the lines that continue it, and each piece of code in
/// a paragraph; with the number of its line.
fn find_code(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_fenced, mut is_continued) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            let before = line.split_once("  #").map_or(line, |(code, _)| code);
            let code = before.trim().trim_start_matches("$ ");
            // README names the program where the build leaves it.
            let code = code.replace("target/release/metaclaw", "metaclaw");
            let whole = code.trim_end_matches('\\').trim_end();
            match found.last_mut() {
                Some((_, first)) if is_continued => {
                    first.push(' ');
                    first.push_str(whole);
                }
                _ => found.push((number, whole.to_owned())),
            }
            is_continued = code.ends_with('\\');
        } else {
            let pieces = line.split('`').skip(1).step_by(2);
            found.extend(pieces.map(|code| (number, code.to_owned())));
        }
    }
    found
}

fn invocations(code: &str) -> impl Iterator<Item = Vec<&str>> {
    let calls = code.split(['|', ';']).flat_map(|part| part.split("&&"));
    calls.filter_map(|call| {
        let is_variable = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
        let is_assignment = |word: &&str| {
            let parts = word.split_once('=');
            parts.is_some_and(|(name, _)| name.chars().all(is_variable))
        };
        let words: Vec<&str> = call.split_whitespace().skip_while(is_assignment).collect();
        let is_ours = matches!(words[..], ["metaclaw", ..] | ["cargo", "xtask", ..]);
        is_ours.then_some(words)
    })
}

fn read_help(help: &str) -> BTreeMap<&str, &str> {
    let headings = help.split("\n##").skip(1);
    let sections = headings.map(|section| section.split_once('\n').unwrap_or((section, "")));
    let named = sections.map(|(heading, text)| (heading.trim_start_matches('#').trim(), text));
    named.chain(ALIASES.map(|alias| (alias, ""))).collect()
}

fn complaint(sections: &BTreeMap<&str, &str>, words: &[&str]) -> Option<String> {
    if let ["cargo", "xtask", command, ..] = words {
        let mut known = USAGE.lines().filter_map(|line| line.strip_prefix("  "));
        let is_known = known.any(|line| line.split(' ').next() == Some(command));
        let is_flag = command.starts_with('-') || *command == "help";
        return (!is_known && !is_flag).then(|| format!("there is no `cargo xtask {command}`"));
    }
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let (mut name, mut help) = ("metaclaw".to_owned(), "");
    let mut allowed = String::from("`--help` `--version` `--home` `--port`");
    for word in words.iter().skip(1) {
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split(['=', '`']).next().unwrap_or_default();
            let ends = [' ', '`', ',', '<', '['].map(|end| format!("--{flag}{end}"));
            let is_listed = ends.iter().any(|flag| allowed.contains(flag));
            if !flag.is_empty() && !is_listed {
                return Some(format!("`{name}` has no --{flag}"));
            }
            continue;
        }
        let longer = format!("{name} {word}");
        if let Some(&section) = sections.get(longer.as_str()) {
            (name, help) = (longer, section);
            allowed.push_str(section);
        } else if is_name(word) && !help.contains("| `<") && !help.contains("| `[") {
            let subcommand = format!("{name} ");
            let mut others = sections.keys();
            let has_subcommands =
                name == "metaclaw" || others.any(|other| other.starts_with(&subcommand));
            if has_subcommands && !word.starts_with('-') {
                return Some(format!("there is no `{longer}`"));
            }
            break;
        } else if !word.starts_with('-') {
            help = "| `<";
        }
    }
    None
}

struct Scratch {
    folder: PathBuf,
    path: String,
    proxy: String,
    upstream: String,
}

impl Scratch {
    fn new(root: &Path, bin_dir: &Path) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("metaclaw-docs-{}", std::process::id()));
        let home = folder.join(".metaclaw");
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        symlink(root.join("examples"), folder.join("examples"))?;
        let upstream = upstream::start()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = home.join("config.yaml");
        let settings = format!(
            "mode: skills_only\nproxy: {{port: {port}}}\nllm: {{api_base: '{upstream}', model_id: demo, api_key: k}}\n"
        );
        fs::write(&config, settings)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        let path = std::env::var("PATH").unwrap_or_default();
        Ok(Self {
            path: format!("{}:{path}", bin_dir.display()),
            proxy: format!("127.0.0.1:{port}"),
            upstream,
            folder,
        })
    }

    /// Runs a command by bash. Returns its exit code, -1 after a signal, and its output and errors together.
    fn run(&self, text: &str) -> Result<(i32, String)> {
        let log = self.folder.join("output");
        let output = fs::File::create(&log)?;
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-c", text]).env_clear();
        bash.current_dir(&self.folder).env("HOME", &self.folder);
        bash.envs([
            ("PATH", &self.path),
            ("PROXY", &self.proxy),
            ("UPSTREAM", &self.upstream),
        ]);
        bash.env("OPENAI_API_KEY", "sk-of-the-docs");
        bash.stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        // A file and no pipe, because a program in the background keeps its output open.
        let code = bash.status().context("cannot run bash")?.code();
        let printed = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok((code.unwrap_or(-1), printed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn every_command_of_the_pages_exists() {
        assert_eq!(find_wrong(root()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn commands_are_found_in_blocks_and_paragraphs_and_what_does_not_exist_is_said() {
        let help = "\n## metaclaw turns\n### metaclaw turns list\n| `-n, --limit <N>` | how many |\n## metaclaw undo\n\
                    | `[WHICH]` | which |\n## metaclaw config\n| `[KEY]` | a key |\n### metaclaw config set\n";
        let sections = read_help(help);
        let page = "Text with `metaclaw turns fly` and `cargo xtask fly`.\n\n    \
                    KEY=x metaclaw turns list --json  # comment\n    metaclaw undo last \\\n      --flag=2\n\n\
                    ``` sh\n$ cat file | metaclaw fly && metaclaw config mode auto\n```\n    metaclaw turns list --limit 3\n";
        let found: Vec<(usize, String)> = find_code(page)
            .iter()
            .flat_map(|(line, code)| {
                let complaints = invocations(code).filter_map(|words| complaint(&sections, &words));
                complaints.map(|why| (*line, why)).collect::<Vec<_>>()
            })
            .collect();
        let expected = [
            (1, "there is no `metaclaw turns fly`"),
            (1, "there is no `cargo xtask fly`"),
            (3, "`metaclaw turns list` has no --json"),
            (4, "`metaclaw undo` has no --flag"),
            (8, "there is no `metaclaw fly`"),
        ];
        assert_eq!(found, expected.map(|(line, why)| (line, why.to_owned())));
    }

    #[test]
    fn ci_runs_the_test_that_the_readme_names() {
        let last = |file| {
            let text = fs::read_to_string(root().join(file)).unwrap();
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(last(".ci/run"), "exec cargo xtask test");
        assert_eq!(last(".github/workflows/ci.yml"), "      - run: .ci/run");
        let nightly = last(".github/workflows/nightly.yml");
        assert_eq!(nightly, "      - run: cargo xtask test --all");
    }

    #[test]
    fn readme_and_contributing_need_the_same_packages() {
        for page in ["README.md", "CONTRIBUTING.md"] {
            let text = fs::read_to_string(root().join(page)).unwrap();
            let needed = "`apt install g++ python3-pip python3-venv npm`";
            assert_eq!(text.matches(needed).count(), 1, "{page}");
        }
    }
}
