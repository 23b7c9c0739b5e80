//! A session that continues for weeks.

use super::kit::{Client, as_put, open};
use crate::{
    Tokens, keys, record::Record, store::Store, store::StoreSource as _, store::Table, values,
};

#[tokio::test]
async fn a_turn_stays_small_however_long_its_session_and_reads_back() {
    const N_TURNS: u32 = 140;
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("s", "You are patient.");
    let mut put = Vec::new();
    for n in 0..N_TURNS {
        let turn = client.turn(&format!("question {n}"), &format!("answer {n}"));
        let id = log.put(turn.clone()).await;
        // Each prompt begins with the previous one and its reply.
        let tokens = Tokens {
            prompt_ids: (0..=2 * n).collect(),
            ids: vec![2 * n + 1],
            logprobs: vec![-1.0],
            sampling_logprobs: vec![-1.0],
            base: "b".to_owned(),
            base_fingerprint: None,
            ..Tokens::default()
        };
        assert!(log.add_tokens(id, tokens.clone()).await.unwrap());
        put.push((id, turn, tokens));
        if n == N_TURNS / 3 {
            // The thread's cached state is read again.
            log.close().await;
            log = open(dir.path());
        }
    }
    for (id, turn, tokens) in &put {
        let mut back = log.turn(*id).await;
        assert_eq!(back.tokens.take().as_ref(), Some(tokens));
        assert_eq!(&as_put(back), turn);
    }
    let ids: Vec<_> = put.iter().map(|(id, ..)| *id).collect();
    let question = move |store: &Store| {
        let (mut n_spans, mut n_bytes, mut n_token_bytes) = (0, 0, 0);
        for id in ids {
            let turn = Record::get(store, id)?.unwrap();
            n_spans = n_spans.max(turn.old.len()).max(turn.new.len());
            let key = keys::turn(id);
            n_bytes = n_bytes.max(store.get(Table::Turns, &key)?.unwrap().len());
            n_token_bytes += values::get(store, Table::Tokens, &key)?.unwrap().len();
        }
        Ok((n_spans, n_bytes, n_token_bytes))
    };
    let (n_spans, n_bytes, n_token_bytes) = log.read(question).await.unwrap();
    assert_eq!(n_spans, 1);
    assert!(n_bytes < 1_000, "{n_bytes}");
    assert!(n_token_bytes < 300 * N_TURNS as usize, "{n_token_bytes}");
}
