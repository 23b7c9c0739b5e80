//! `metaclaw config`: show, get, set; and the original's `config KEY` and `config KEY VALUE`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use metaclaw_settings::{Effective, edit, example, one_line};

use super::{auth, context::Context};
use crate::{out, prompt};

/// What the original kept apart from the settings, and so do we.
const TOKEN: &str = "llm.oauth_token";
/// In place of a value: it comes on standard input, and is not shown.
const ON_STDIN: &str = "-";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: Option<ConfigCommand>,
    /// A key, for example rl.batch_size, whose value is printed; or a section, for example skills, whose keys are.
    key: Option<String>,
    /// The new value, or - to read it from standard input, without echo.
    value: Option<String>,
    /// The file of settings. Without it, config.yaml in the home folder.
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// List every key that has an effect, its value, and where it was set.
    Show,
    /// Print the value of a key.
    Get {
        /// The key, for example rl.batch_size.
        key: String,
    },
    /// Set a key in the file. Comments stay.
    Set {
        /// The key, for example rl.batch_size.
        key: String,
        /// The new value, or - to read it from standard input, without echo.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a key or a section from the file. Its default applies again.
    Unset {
        /// The key, for example rl.batch_size.
        key: String,
    },
    /// Print an example file with every key and its default.
    Example,
    /// Print a table of all keys, with older names and keys without effect.
    Reference,
}

// === impl ConfigArgs ===

impl ConfigArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        let Self {
            what,
            key,
            value,
            config,
            json,
        } = self;
        let what = what.or(match (key, value) {
            (Some(key), Some(value)) => Some(ConfigCommand::Set { key, value }),
            (Some(key), None) => Some(ConfigCommand::Get { key }),
            (None, _) => None,
        });
        match what {
            None | Some(ConfigCommand::Show) => show(context, config, json)?,
            Some(ConfigCommand::Get { key }) => get(context, config, &key, json)?,
            Some(ConfigCommand::Set { key, value }) => set(context, config, &key, &value)?,
            Some(ConfigCommand::Unset { key }) => unset(context, config, &key)?,
            Some(ConfigCommand::Example) => out::line(example::example().trim_end())?,
            Some(ConfigCommand::Reference) => out::line(example::reference().trim())?,
        }
        Ok(())
    }
}

fn show(context: &Context, file: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let loaded = context.settings(file, Vec::new())?;
    let effective = loaded.effective();
    print_keys(&effective, json)?;
    for unknown in &loaded.unknown {
        out::aside(format!("warning: {unknown}"));
    }
    for notice in &loaded.notices {
        out::aside(format!("warning: {notice}"));
    }
    Ok(())
}

fn print_keys(keys: &[Effective], json: bool) -> std::io::Result<()> {
    let row = |it: &Effective| {
        let origin = it.origin.clone().unwrap_or_else(|| "default".to_owned());
        // The value last: one may be long, and the others stay below one another.
        vec![it.key.clone(), origin, one_line(&it.value)]
    };
    out::answer_table(keys, json, &["key", "from", "value"], row)
}

/// Prints a key's value, or the keys of a section.
fn get(context: &Context, file: Option<PathBuf>, key: &str, json: bool) -> anyhow::Result<()> {
    let loaded = context.settings(file, Vec::new())?;
    let section = format!("{key}.");
    let mut below = loaded.effective();
    below.retain(|one| one.key.starts_with(&section));
    if !below.is_empty() {
        return Ok(print_keys(&below, json)?);
    }
    let one = loaded.get(key).map_err(|message| anyhow!(message))?;
    Ok(out::answer(&one, json, |one| one_line(&one.value))?)
}

fn set(context: &Context, file: Option<PathBuf>, key: &str, value: &str) -> anyhow::Result<()> {
    context.home.create()?;
    let file = file.unwrap_or_else(|| context.home.config());
    let typed = (value == ON_STDIN).then(|| prompt::secret(&format!("{key} (not shown)")));
    let typed = typed.transpose()?;
    if key == TOKEN {
        return auth::keep_token(context, typed.unwrap_or_else(|| value.to_owned()));
    }
    let edited = edit::set_in_file(&file, key, typed.as_deref().unwrap_or(value))?;
    out::aside(format!("{} is set in {}", edited.key, file.display()));
    if let Some(note) = edited.note {
        out::aside(format!("warning: {} has no effect: {note}", edited.key));
    }
    tell_running(context)
}

fn unset(context: &Context, file: Option<PathBuf>, key: &str) -> anyhow::Result<()> {
    let file = file.unwrap_or_else(|| context.home.config());
    let shown = file.display();
    if edit::unset_in_file(&file, key)? {
        out::aside(format!("{key} is out of {shown}"));
        tell_running(context)
    } else {
        Err(anyhow!("{key} is not set in {shown}"))
    }
}

fn tell_running(context: &Context) -> anyhow::Result<()> {
    if context.home.holder()?.is_some() {
        out::aside("the running metaclaw takes it at its next start");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::check_made;

    /// `METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw example` writes both anew.
    #[test]
    fn the_example_file_and_the_reference_say_what_the_settings_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        check_made(&root.join("config.example.yaml"), &example::example());
        let docs = root.join("docs/operating/config.md");
        let text = std::fs::read_to_string(&docs).unwrap_or_default();
        let mark = "<!-- made from the table of keys -->";
        let (head, _) = text.split_once(mark).unwrap_or(("# Configuration\n\n", ""));
        check_made(&docs, &format!("{head}{mark}\n{}", example::reference()));
    }
}
