//! What the thread remembers of sessions.

use super::kit::Client;
use crate::{
    NewTurn, TurnsConfig,
    append::{Prepared, append},
    engine::{finish, operate},
    open::{OnDamage, open},
    raw::RawTurn,
    record::Record,
    store::Batch,
    tail::Cache,
    txn::Reader,
};

/// An agent that says much about each request, though not among its messages.
fn with_metadata(mut turn: NewTurn, n_bytes: usize) -> NewTurn {
    let metadata = "m".repeat(n_bytes).into();
    turn.request.params.insert("metadata".to_owned(), metadata);
    turn
}

/// Appends a turn; whether its setup was written with it.
fn put(reader: &Reader, cache: &mut Cache, turn: NewTurn) -> bool {
    let mut batch = Batch::default();
    let key = turn.started_ms;
    let new = RawTurn::of(turn).unwrap();
    let new = Prepared::new(new, key).unwrap();
    let stored = operate(reader, cache, &mut batch, |txn| {
        let id = append(txn, &new)?;
        Record::get(txn, id)
    });
    finish(reader, cache, &mut batch).unwrap();
    reader.store.apply(&batch).unwrap();
    stored.unwrap().unwrap().unwrap().header.setup
}

#[test]
fn what_is_remembered_of_a_turn_does_not_grow_with_its_setup() {
    let dir = tempfile::tempdir().unwrap();
    let (opened, _) = open(dir.path(), &TurnsConfig::default(), OnDamage::Fail).unwrap();
    let reader = opened.reader;
    for n_bytes in [1, 100_000] {
        let mut client = Client::new(&format!("s{n_bytes}"), "sys");
        let mut cache = Cache::default();
        let first = with_metadata(client.turn("question", "answer"), n_bytes);
        assert!(put(&reader, &mut cache, first));
        // All that it holds is in its debug text.
        let n_kept = format!("{cache:?}").len();
        assert!(n_kept < 4_000, "{n_kept} of {n_bytes}");

        // Nor where it is read again from the log; and it is known for the same setup.
        let mut cache = Cache::default();
        let next = with_metadata(client.turn("more", "answer"), n_bytes);
        assert!(!put(&reader, &mut cache, next));
        let n_kept = format!("{cache:?}").len();
        assert!(n_kept < 8_000, "{n_kept} of {n_bytes}");
    }
}
