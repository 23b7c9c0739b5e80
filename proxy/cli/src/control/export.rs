//! The log as lines, passed on as they are read: never all of it in memory.

use std::io::{self, Write};

use futures_util::{Stream, stream};
use metaclaw_turns::{ExportError, Exported, TurnLog};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::sync::oneshot;

use crate::app::App;

/// Bytes on their way: a slow reader holds the writer, not memory.
const PIECE: usize = 64 * 1024;

/// Pieces of all turns as JSON lines; the last one is an error when the log could not be read to
/// its end, so that half of it never looks like all of it.
pub(super) fn stream(app: &App) -> impl Stream<Item = io::Result<Vec<u8>>> + use<> {
    let (mut writer, reader) = duplex(PIECE);
    let (ended, outcome) = oneshot::channel();
    let log = app.log.clone();
    app.tasks.spawn(async move {
        let written = log.export(&mut writer).await;
        if let Some(missing) = written.as_ref().ok().and_then(missing) {
            tracing::warn!("{missing}");
        }
        // The caller hung up.
        ended
            .send(written.map_err(|error| io::Error::other(error.to_string())))
            .ok();
    });
    stream::try_unfold(
        (reader, Some(outcome)),
        |(mut reader, outcome)| async move {
            if let Some(piece) = piece(&mut reader).await? {
                return Ok(Some((piece, (reader, outcome))));
            }
            match outcome {
                Some(outcome) => outcome.await.map_err(io::Error::other)?.map(|_| None),
                None => Ok(None),
            }
        },
    )
}

/// Writes all turns as JSON lines.
pub(crate) async fn write(log: &TurnLog, to: &mut impl Write) -> Result<Exported, ExportError> {
    let (mut writer, mut reader) = duplex(PIECE);
    // It owns its end: when nobody takes the lines any more, the other end learns of it.
    let copy = async move {
        while let Some(piece) = piece(&mut reader).await? {
            to.write_all(&piece)?;
        }
        to.flush()
    };
    let export = async move { log.export(&mut writer).await };
    let (exported, copied) = tokio::join!(export, copy);
    copied.map_err(ExportError::from)?;
    exported
}

/// What is said of turns that do not read back.
pub(crate) fn missing(exported: &Exported) -> Option<String> {
    let ids: Vec<String> = exported
        .unreadable
        .iter()
        .map(ToString::to_string)
        .collect();
    (!ids.is_empty()).then(|| {
        let ids = ids.join(", ");
        format!("damaged turns are missing in the export: {ids} (`metaclaw turns show` says why)")
    })
}

async fn piece(reader: &mut DuplexStream) -> io::Result<Option<Vec<u8>>> {
    let mut piece = Vec::with_capacity(PIECE);
    let n_bytes = reader.read_buf(&mut piece).await?;
    Ok((n_bytes > 0).then_some(piece))
}
