//! Questions on a terminal, and secrets that are not shown while they are typed.

use std::{
    io::{self, BufRead, IsTerminal, Read, Write},
    os::fd::{AsFd, OwnedFd},
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::out;

const MAX_ANSWER: u64 = 64 << 10;

pub(crate) struct TerminalPrompt {
    input: Box<dyn BufRead>,
    out: Box<dyn Write>,
    /// The terminal whose echo is off while a secret is typed.
    terminal: Option<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct PromptChoice<'a> {
    pub name: &'a str,
    /// Its description, in a few words.
    pub about: &'a str,
}

/// A terminal without echo, which is restored on drop.
struct NoEcho<'a> {
    terminal: &'a OwnedFd,
    before: Termios,
}

// === impl TerminalPrompt ===

impl TerminalPrompt {
    /// Creates it on standard input and error, or returns `None` if no person types.
    pub(crate) fn on_terminal() -> Option<Self> {
        let input = io::stdin();
        let terminal = input.as_fd().try_clone_to_owned().ok()?;
        input.is_terminal().then(|| Self {
            input: Box::new(input.lock()),
            out: Box::new(io::stderr()),
            terminal: Some(terminal),
        })
    }

    #[cfg(test)]
    pub(crate) fn scripted(input: &str, out: impl Write + 'static) -> Self {
        Self {
            input: Box::new(io::Cursor::new(input.to_owned())),
            out: Box::new(out),
            terminal: None,
        }
    }

    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.write(&format!("{text}\n"))
    }

    /// Asks a question with one line as its answer; Enter takes the default `preset`.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::UnexpectedEof`] if the input has ended.
    pub(crate) fn ask(&mut self, question: &str, preset: &str) -> io::Result<String> {
        let preset_shown = match preset {
            "" => String::new(),
            preset => format!(" [{preset}]"),
        };
        self.write(&format!("{question}{preset_shown}: "))?;
        let answer = self.line()?;
        Ok(if answer.is_empty() {
            preset.to_owned()
        } else {
            answer
        })
    }

    pub(crate) fn secret(&mut self, question: &str) -> io::Result<String> {
        let terminal = self.terminal.take();
        // Echo is off before the question, so that a quick answer is not shown either.
        let hidden = terminal.as_ref().map(NoEcho::begin).transpose()?;
        self.write(&format!("{question}: "))?;
        let answer = self.line();
        if hidden.is_some() {
            // The Enter was not shown either.
            self.write("\n")?;
        }
        drop(hidden);
        self.terminal = terminal;
        answer
    }

    pub(crate) fn yes(&mut self, question: &str, preset: Option<bool>) -> io::Result<bool> {
        let word = match preset {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        loop {
            match self.ask(question, word)?.to_lowercase().as_str() {
                "y" | "yes" | "true" => return Ok(true),
                "n" | "no" | "false" => return Ok(false),
                _ => self.say("  yes or no, please")?,
            }
        }
    }

    pub(crate) fn choose(
        &mut self,
        question: &str,
        choices: &[PromptChoice<'_>],
        preset: &str,
    ) -> io::Result<String> {
        for (n, choice) in choices.iter().enumerate() {
            self.say(&format!(
                "  {:>2}  {:<12}  {}",
                n + 1,
                choice.name,
                choice.about
            ))?;
        }
        loop {
            let given = self.ask(question, preset)?;
            let number = given.parse::<usize>().ok();
            let by_number = number.and_then(|n| choices.get(n.checked_sub(1)?));
            let by_name = choices.iter().find(|choice| choice.name == given);
            match by_name.or(by_number) {
                Some(choice) => return Ok(choice.name.to_owned()),
                None => self.say(&format!(
                    "  {given:?} is none of them: a number from 1 to {}, or a name",
                    choices.len()
                ))?,
            }
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        // A list of models, or an error, comes from a server.
        let text = out::for_reader(text, true);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let n_bytes = (&mut self.input).take(MAX_ANSWER).read_line(&mut line)?;
        if n_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim().to_owned())
    }
}

// === impl NoEcho ===

impl<'a> NoEcho<'a> {
    fn begin(terminal: &'a OwnedFd) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for NoEcho<'_> {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        tcsetattr(self.terminal, OptionalActions::Now, &self.before).ok();
    }
}

/// Reads a secret: typed without echo on a terminal, else all of standard input.
///
/// # Errors
///
/// Returns an error if the input is empty.
pub(crate) fn secret(question: &str) -> anyhow::Result<String> {
    let given = if let Some(mut prompt) = TerminalPrompt::on_terminal() {
        prompt.secret(question)?
    } else {
        let mut text = String::new();
        let input = io::stdin().lock();
        input.take(MAX_ANSWER).read_to_string(&mut text)?;
        text.trim().to_owned()
    };
    anyhow::ensure!(!given.is_empty(), "nothing was given on standard input");
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(answers: &str) -> TerminalPrompt {
        TerminalPrompt::scripted(answers, io::sink())
    }

    #[test]
    fn enter_takes_what_is_preset() {
        let mut it = prompt("\nmine\n\nmaybe\nn\n");
        assert_eq!(it.ask("Port", "30000").unwrap(), "30000");
        assert_eq!(it.ask("Port", "30000").unwrap(), "mine");
        assert!(it.yes("Sure", Some(true)).unwrap());
        assert!(!it.yes("Sure", Some(true)).unwrap());
        let error = it.ask("Port", "30000").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn where_nothing_is_preset_only_a_plain_answer_counts() {
        for (answers, expected) in [
            ("maybe\n\nYES\n", Some(true)),
            ("n\n", Some(false)),
            ("\n", None),
            ("", None),
        ] {
            let answer = prompt(answers).yes("Sure", None).ok();
            assert_eq!(answer, expected, "{answers:?}");
        }
    }

    #[test]
    fn a_choice_is_made_by_number_or_name() {
        let choices = ["one", "two"].map(|name| PromptChoice { name, about: "" });
        let chosen = |answers: &str| prompt(answers).choose("Which", &choices, "two").unwrap();
        assert_eq!(chosen("1\n"), "one");
        assert_eq!(chosen("\n"), "two");
        assert_eq!(chosen("0\n3\nthree\none\n"), "one");
    }
}
