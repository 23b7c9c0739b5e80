//! Stop texts, regardless of token boundaries.

/// Holds back text that may be the beginning of a stop text.
#[derive(Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Empty stop texts would end every reply at once, so they are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self {
            stops,
            held: String::new(),
        }
    }

    /// Processes new text. Returns the text that is certain, and whether a stop text ended it.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        // The earliest match counts, whichever stop text it is.
        if let Some(at) = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop))
            .min()
        {
            let mut certain = std::mem::take(&mut self.held);
            certain.truncate(at);
            return (certain, true);
        }
        let overlaps = self.stops.iter().map(|stop| overlap(&self.held, stop));
        let keep = overlaps.max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Returns the held text when nothing more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Returns the length in bytes of the longest end of `text` that is a beginning of `stop`, but not all of `stop`: the
/// caller has searched for that already.
fn overlap(text: &str, stop: &str) -> usize {
    let mut lengths = (1..stop.len().min(text.len() + 1)).rev();
    let is_end = |&n: &usize| stop.is_char_boundary(n) && text.ends_with(&stop[..n]);
    lengths.find(is_end).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut out = Vec::new();
        for piece in pieces {
            let (text, stopped) = matcher.push(piece);
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        out.push(matcher.finish());
        (out, false)
    }

    #[test]
    fn a_stop_text_across_pieces_is_found_and_not_given_out() {
        let (out, stopped) = run(&["\n\nUser:"], &["Yes.\n", "\nUs", "er", ": next"]);
        assert_eq!(
            (out, stopped),
            (
                vec!["Yes.".into(), String::new(), String::new(), String::new()],
                true
            )
        );
    }

    #[test]
    fn what_turns_out_to_be_no_stop_text_is_given_out() {
        let (out, stopped) = run(&["abc"], &["xab", "d", "ab"]);
        assert_eq!((out.concat(), stopped), ("xabdab".into(), false));
        assert_eq!(out[0], "x");
    }

    #[test]
    fn the_earliest_of_several_counts() {
        assert_eq!(run(&["c", "bc"], &["abcd"]), (vec!["a".into()], true));
        assert_eq!(run(&["好"], &["é好x"]), (vec!["é".into()], true));
        assert_eq!(run(&["", "x"], &["ab"]).0.concat(), "ab");
    }

    proptest! {
        #[test]
        fn cutting_never_changes_the_text(text in "[ab]{0,30}", stop in "[ab]{1,4}", cut in 1..5_usize) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(cut).map(|c| c.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (out, stopped) = run(&[&stop], &pieces);
            let want = text.find(&stop).map_or(text.as_str(), |at| &text[..at]);
            prop_assert_eq!(out.concat(), want);
            prop_assert_eq!(stopped, text.contains(&stop));
        }
    }
}
