//! Rows as token ids, with the ids that the model is to say.

use std::{ops::Range, path::Path};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use metaclaw_trainer_api::{
    BackendError, Datum, DatumError, TrainingBackend,
    wire::{TokenizeReply, TokenizeRequest},
};
use serde_json::Value;

use super::{
    error::SftError,
    rows::{DataRow, RowContent, RowError},
};
use crate::error::TrainError;

/// Rows that are tokenised at once.
const AT_ONCE: usize = 8;

/// A row as ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenRow {
    /// Its line in the file.
    pub(super) line: usize,
    /// Of a chat, as few sequences as the template allows; of a pair, the one with the chosen reply and the one with the
    /// rejected reply.
    pub(super) examples: Vec<TokenExample>,
}

/// A sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenExample {
    pub(super) ids: Vec<u32>,
    /// The ids that the model is to say: at least one, and never the first.
    pub(super) trained: Vec<Range<usize>>,
}

/// Tokenises the rows of a file by the chat template of the model.
pub(super) async fn token_rows(
    backend: &dyn TrainingBackend,
    file: &Path,
    rows: Vec<DataRow>,
) -> Result<Vec<TokenRow>, SftError> {
    let tokenised = rows.into_iter().map(|row| token_row(backend, file, row));
    stream::iter(tokenised)
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

async fn token_row(
    backend: &dyn TrainingBackend,
    file: &Path,
    row: DataRow,
) -> Result<TokenRow, SftError> {
    let mut examples = Vec::new();
    match &row.content {
        RowContent::Chat { messages, trained } => {
            for at in trained {
                add(
                    &mut examples,
                    example(backend, file, &row, &messages[..=*at]).await?,
                );
            }
        }
        RowContent::Pair { chosen, rejected } => {
            for messages in [chosen, rejected] {
                examples.push(example(backend, file, &row, messages).await?);
            }
        }
    }
    let line = row.line;
    Ok(TokenRow { line, examples })
}

/// One sequence, of which the last message is trained.
async fn example(
    backend: &dyn TrainingBackend,
    file: &Path,
    row: &DataRow,
    messages: &[Value],
) -> Result<TokenExample, SftError> {
    let request = TokenizeRequest {
        tools: row.tools.clone(),
        chat_template_kwargs: row.variables.clone(),
        add_generation_prompt: false,
        split_reply: true,
        ..TokenizeRequest::messages(messages.to_vec())
    };
    let line = row.line;
    let refused = |why: String| SftError::Row {
        file: file.to_owned(),
        error: RowError { line, why },
    };
    let TokenizeReply {
        tokens,
        reply_start,
        max_model_len,
        ..
    } = match backend.tokenize(request).await {
        // What the template refuses is the row's fault, and so is a text that is too long.
        Err(BackendError::Status {
            status: 400 | 413 | 422,
            message,
            ..
        }) => return Err(refused(message)),
        reply => reply.map_err(|error| TrainError::NoTrainer { why: error.words() })?,
    };
    let start = reply_start.ok_or(SftError::NoSplit)? as usize;
    let n = tokens.len();
    if n > max_model_len as usize {
        return Err(refused(format!(
            "it has {n} tokens, and the model takes at most {max_model_len}"
        )));
    }
    if start == 0 || start >= n {
        return Err(refused("its reply has no token after a prompt".to_owned()));
    }
    Ok(TokenExample {
        ids: tokens,
        trained: std::iter::once(start..n).collect(),
    })
}

/// Adds the sequence of a later reply of the same chat: to the one before where it begins like that, so that what both
/// share is computed once. A template that rewrites what was said before gives each reply a sequence of its own.
fn add(examples: &mut Vec<TokenExample>, later: TokenExample) {
    if let Some(last) = examples.last_mut()
        && later.ids.starts_with(&last.ids)
        && later.trained[0].start >= last.ids.len()
    {
        last.ids = later.ids;
        last.trained.extend(later.trained);
    } else {
        examples.push(later);
    }
}

// === impl TokenRow ===

impl TokenRow {
    pub(super) fn n_tokens(&self) -> usize {
        self.examples.iter().map(TokenExample::n_tokens).sum()
    }

    pub(super) fn n_trained(&self) -> usize {
        self.examples.iter().map(TokenExample::n_trained).sum()
    }
}

// === impl TokenExample ===

impl TokenExample {
    pub(super) fn n_tokens(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn n_trained(&self) -> usize {
        self.trained.iter().map(Range::len).sum()
    }

    /// The positions that predict what is trained, ascending.
    pub(super) fn positions(&self) -> Vec<usize> {
        let trained = self.trained.iter();
        trained.flat_map(|ids| ids.start - 1..ids.end - 1).collect()
    }

    /// The sequence with this weight at each id that is trained.
    ///
    /// # Errors
    /// Of a weight that is no number.
    pub(super) fn datum(&self, weight: f32) -> Result<Datum, DatumError> {
        let n = self.ids.len() - 1;
        let mut weights = vec![0.0; n];
        for at in self.positions() {
            weights[at] = weight;
        }
        Datum::cross_entropy(self.ids[..n].to_vec(), self.ids[1..].to_vec(), weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(ids: &[u32], trained: &[Range<usize>]) -> TokenExample {
        TokenExample {
            ids: ids.to_vec(),
            trained: trained.to_vec(),
        }
    }

    /// The same with one range.
    fn with_one(ids: &[u32], trained: Range<usize>) -> TokenExample {
        example(ids, std::slice::from_ref(&trained))
    }

    #[test]
    fn replies_of_one_chat_share_a_sequence_unless_the_history_is_rewritten() {
        let mut examples = Vec::new();
        add(&mut examples, with_one(&[1, 2, 3], 1..3));
        add(&mut examples, with_one(&[1, 2, 3, 4, 5], 4..5));
        assert_eq!(examples, [example(&[1, 2, 3, 4, 5], &[1..3, 4..5])]);
        add(&mut examples, with_one(&[1, 9, 3, 4, 5, 6], 5..6));
        assert_eq!(examples.len(), 2);
    }

    #[test]
    fn a_datum_has_its_weight_where_the_next_id_is_trained() {
        let example = example(&[7, 8, 9, 10, 11], &[1..2, 3..5]);
        assert_eq!(
            (example.n_trained(), example.positions()),
            (3, vec![0, 2, 3])
        );
        let datum = example.datum(0.5).unwrap();
        let parts = datum.parts();
        assert_eq!(parts.model_input_tokens, [7, 8, 9, 10]);
        assert_eq!(parts.target_tokens.values(), [8, 9, 10, 11]);
        let weights = parts.weights.as_ref().unwrap();
        assert_eq!(weights.values(), [0.5, 0.0, 0.5, 0.5]);
        assert!(example.datum(f32::NAN).is_err());
    }
}
