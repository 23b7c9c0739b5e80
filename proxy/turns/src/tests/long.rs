//! A session that goes on for weeks.

use super::kit::{Client, as_put, open};
use crate::{
    Tokens, keys, record::Record, resolve::Resolver, store::Table, tail::MAX_DEPTH,
    txn::Source as _,
};

#[tokio::test]
async fn a_turn_builds_on_few_others_however_long_its_session() {
    let n_turns = 2 * MAX_DEPTH + 10;
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("s", "You are patient.");
    let mut put = Vec::new();
    for n in 0..n_turns {
        let turn = client.turn(&format!("question {n}"), &format!("answer {n}"));
        let id = log.append(turn.clone()).await.unwrap();
        // Each prompt begins with the one before and its reply.
        let tokens = Tokens {
            prompt_ids: (0..=2 * n).collect(),
            ids: vec![2 * n + 1],
            logprobs: vec![-1.0],
            sampling_logprobs: vec![-1.0],
            base: "b".to_owned(),
            ..Tokens::default()
        };
        assert!(log.add_tokens(id, tokens.clone()).await.unwrap());
        put.push((id, turn, tokens));
        if n == MAX_DEPTH / 2 {
            // What the thread remembered is read again.
            log.close().await;
            log = open(dir.path());
        }
    }
    for (id, turn, tokens) in &put {
        let mut back = log.get(*id).await.unwrap().unwrap();
        assert_eq!(back.tokens.take().as_ref(), Some(tokens));
        assert_eq!(&as_put(back), turn);
    }
    let ids: Vec<_> = put.iter().map(|(id, ..)| *id).collect();
    let question = move |reader: &crate::txn::Reader| {
        let mut deepest = 0;
        let (mut n_without_base, mut n_token_bytes) = (0, 0);
        for id in ids {
            let resolved = Resolver::new(reader, id.session).resolve(id.seq)?;
            deepest = deepest.max(resolved.map_or(0, |resolved| resolved.depth));
            let record = Record::get(reader, id)?;
            n_without_base += usize::from(record.is_some_and(|it| it.header.base.is_none()));
            let key = keys::piece(&keys::turn(id), 0);
            let bytes = reader.get(Table::Tokens, &key)?;
            n_token_bytes += bytes.map_or(0, |bytes| bytes.len());
        }
        Ok((deepest, n_without_base, n_token_bytes))
    };
    let (deepest, n_without_base, n_token_bytes) = log.read(question).await.unwrap();
    assert_eq!(deepest, MAX_DEPTH);
    assert_eq!(n_without_base, 3);
    assert!(n_token_bytes < 200 * n_turns as usize, "{n_token_bytes}");
}
