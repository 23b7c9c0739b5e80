//! The log as lines, passed on as they are read: never all of it in memory.

use std::io;

use futures_util::{Stream, StreamExt as _, stream};
use metaclaw_turns::{Exported, TurnLog};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

/// Bytes on their way: a slow reader holds the writer, not memory.
const PIECE: usize = 64 * 1024;

/// Pieces of all turns as JSON lines; one is an error when the log could not be read to its end, so that half of it never
/// looks like all of it.
pub(crate) fn pieces(log: TurnLog, note: fn(&str)) -> impl Stream<Item = io::Result<Vec<u8>>> {
    let (mut writer, reader) = duplex(PIECE);
    // It owns its end of the pipe: when all is written the reader learns of it.
    let export = async move {
        let exported = log.export(&mut writer).await;
        match exported {
            Ok(exported) => {
                if let Some(missing) = missing(&exported) {
                    note(&missing);
                }
                None
            }
            Err(error) => Some(Err(io::Error::other(error))),
        }
    };
    let pieces = stream::try_unfold(reader, |mut reader| async move {
        Ok(piece(&mut reader).await?.map(|piece| (piece, reader)))
    });
    // The export runs only while somebody reads the pieces, so it ends when the reading ends.
    let export = stream::once(export).filter_map(|failed| async { failed });
    stream::select(pieces, export)
}

fn missing(exported: &Exported) -> Option<String> {
    let ids = exported.unreadable.iter().map(ToString::to_string);
    let ids: Vec<String> = ids.collect();
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
