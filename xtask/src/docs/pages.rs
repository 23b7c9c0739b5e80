//! Finds the commands of the Markdown pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The first words of lines that are commands, in blocks that do not say that they are shell.
const PROGRAMS: [&str; 33] = [
    "apt",
    "apt-get",
    "brew",
    "cargo",
    "cd",
    "chmod",
    "cp",
    "curl",
    "docker",
    "export",
    "firectl",
    "git",
    "install",
    "journalctl",
    "metaclaw",
    "metaclaw-trainer",
    "mkdir",
    "npm",
    "npx",
    "openclaw",
    "pass",
    "pip",
    "pipx",
    "python",
    "python3",
    "sha256sum",
    "ssh",
    "sudo",
    "systemctl",
    "tar",
    "uv",
    "wget",
    "rsync",
];

/// Subcommands that docs/using/commands.md lists under another name.
const ALIASES: [&str; 1] = ["metaclaw adapters promote"];

/// A command of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocCommand {
    /// The page's path in the checkout.
    pub(super) page: String,
    /// The number of the command's first line, from 1.
    pub(super) line: usize,
    /// The command without its comment. Continued lines are joined.
    pub(super) text: String,
}

/// A block of code that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodeBlock {
    /// Every line is a command.
    Shell,
    /// Lines that begin with a program are commands.
    Unnamed,
    /// Another language.
    Other,
}

/// Returns the pages whose commands are run: README.md, CONTRIBUTING.md, docs/, packages/ and the READMEs of examples of
/// tasks.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages.extend(sources(&root.join("docs"), "md")?);
    pages.extend(sources(&root.join("examples/rollouts"), "md")?);
    pages.extend(sources(&root.join("packages"), "md")?);
    Ok(pages)
}

/// Returns the commands of all pages, in order.
pub(super) fn commands(root: &Path) -> Result<Vec<DocCommand>> {
    let pages = pages(root)?;
    let mut found = Vec::new();
    for path in pages {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let page = path.strip_prefix(root).unwrap_or(&path);
        found.extend(of_page(&page.display().to_string(), &text));
    }
    Ok(found)
}

/// The page whose tables name commands of other systems too. A test of its own asks the command line about ours.
const OTHER_SYSTEMS: &str = "docs/using/coming-from-elsewhere.md";

/// Returns where a text names a subcommand of `metaclaw` that docs/using/commands.md does not list.
pub(super) fn unknown_subcommands(root: &Path) -> Result<Vec<String>> {
    let list = fs::read_to_string(root.join("docs/using/commands.md"))?;
    let headings = list.lines().filter_map(|line| line.strip_prefix("##"));
    let headings = headings.map(|line| line.trim_start_matches('#').trim());
    let known: BTreeSet<&str> = headings.chain(ALIASES).collect();
    let pages = pages(root)?;
    let mut unknown = Vec::new();
    for path in pages.into_iter().filter(|it| !it.ends_with(OTHER_SYSTEMS)) {
        let text = fs::read_to_string(&path)?;
        let page = path.strip_prefix(root).unwrap_or(&path).display();
        for (line, text) in (1..).zip(text.lines()) {
            let named = text.split('`').skip(1).step_by(2);
            let named = named.filter_map(|code| subcommand(code, &known));
            unknown.extend(named.map(|it| format!("{page}:{line}: there is no `{it}`")));
        }
    }
    Ok(unknown)
}

/// Returns the subcommand in a piece of code, if it is one that does not exist.
fn subcommand(code: &str, known: &BTreeSet<&str>) -> Option<String> {
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let words = code.strip_prefix("metaclaw ")?.split_whitespace();
    let mut words = words.take_while(|it| is_name(it) && !it.starts_with('-'));
    let first = format!("metaclaw {}", words.next()?);
    if !known.contains(first.as_str()) {
        return Some(first);
    }
    let prefix = format!("{first} ");
    let has_subcommands = known.iter().any(|it| it.starts_with(&prefix));
    let second = format!("{first} {}", words.next()?);
    (has_subcommands && !known.contains(second.as_str())).then_some(second)
}

/// Returns the files with an extension below a folder, in order, without what builds leave.
pub(super) fn sources(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            found.extend(sources(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the commands of a page.
fn of_page(page: &str, text: &str) -> Vec<DocCommand> {
    let mut found: Vec<DocCommand> = Vec::new();
    let mut fence = None;
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(block(info.trim())),
            };
            is_open = false;
            continue;
        }
        let block = match fence {
            Some(block) => block,
            None if line.starts_with("    ") => CodeBlock::Unnamed,
            None => CodeBlock::Other,
        };
        let code = without_comment(line).trim();
        if is_open && let Some(last) = found.last_mut() {
            is_open = join(&mut last.text, code);
            continue;
        }
        // README names the program where the build leaves it.
        let code = code.strip_prefix("$ ").unwrap_or(code);
        let code = &code.replace("target/release/metaclaw", "metaclaw");
        if is_command(block, code) {
            let mut text = String::new();
            is_open = join(&mut text, code);
            found.push(DocCommand {
                page: page.to_owned(),
                line: number,
                text,
            });
        }
    }
    found
}

fn block(info: &str) -> CodeBlock {
    match info {
        "" => CodeBlock::Unnamed,
        "sh" | "bash" | "shell" | "console" => CodeBlock::Shell,
        _ => CodeBlock::Other,
    }
}

fn is_command(block: CodeBlock, code: &str) -> bool {
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            !name.is_empty() && name.chars().all(is_part)
        })
    };
    let program = code.split_whitespace().find(|word| !is_assignment(word));
    let begins = code.split_whitespace().next().is_some_and(is_assignment);
    match block {
        CodeBlock::Shell => !code.is_empty(),
        CodeBlock::Unnamed => {
            (begins && program.is_none())
                || program.is_some_and(|it| PROGRAMS.contains(&it) || is_script(it))
        }
        CodeBlock::Other => false,
    }
}

fn is_script(program: &str) -> bool {
    Path::new(program).extension().is_some_and(|it| it == "sh")
}

/// Adds a line to a command. Returns whether the next line belongs to it too.
fn join(text: &mut String, line: &str) -> bool {
    if !text.is_empty() {
        text.push(' ');
    }
    if let Some(line) = line.strip_suffix('\\') {
        text.push_str(line.trim_end());
        return true;
    }
    text.push_str(line);
    is_quoted(text)
}

/// Returns whether a text ends within single quotes.
fn is_quoted(text: &str) -> bool {
    let mut quote = None;
    for c in text.chars().filter(|c| matches!(c, '\'' | '"')) {
        quote = match quote {
            None => Some(c),
            Some(open) if open == c => None,
            open => open,
        };
    }
    quote == Some('\'')
}

/// Returns a line without the comment that follows two spaces, or that is all of it.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    line.split_once("  #").map_or(line, |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_that_is_not_listed_is_found() {
        let known = BTreeSet::from(["metaclaw turns", "metaclaw turns list", "metaclaw undo"]);
        let unknown = |code| subcommand(code, &known);
        assert_eq!(unknown("metaclaw turns list --json"), None);
        assert_eq!(unknown("metaclaw turns"), None);
        assert_eq!(unknown("metaclaw undo last"), None);
        assert_eq!(unknown("metaclaw --version"), None);
        assert_eq!(
            unknown("metaclaw turns fly").as_deref(),
            Some("metaclaw turns fly")
        );
        assert_eq!(unknown("metaclaw fly").as_deref(), Some("metaclaw fly"));
    }

    #[test]
    fn commands_are_found_in_blocks_without_comments_and_joined() {
        let page = "\
Text with `metaclaw status`.

    metaclaw status     # how it is
    cache:   61 % of today
    KEY=x metaclaw start
    MODEL=/srv/models    # a folder
    loss = - A

``` sh
curl -d '{
  \"a\": 1}'
# only a comment
any program \\
  of two lines
```

``` yaml
metaclaw: no command
```
";
        let found = of_page("page", page);
        let found: Vec<_> = found.iter().map(|it| (it.line, it.text.as_str())).collect();
        assert_eq!(
            found,
            [
                (3, "metaclaw status"),
                (5, "KEY=x metaclaw start"),
                (6, "MODEL=/srv/models"),
                (10, "curl -d '{ \"a\": 1}'"),
                (13, "any program of two lines"),
            ]
        );
    }
}
