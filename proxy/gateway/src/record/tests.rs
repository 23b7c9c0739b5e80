use metaclaw_chat::ChainHash;
use metaclaw_dialects::request::ChatRequest;
use metaclaw_skills::Lessons;

use super::*;
use crate::{identity::Identity, inject::Written};

/// Turns that wait for the log at once.
const FEW: usize = 64;
const REQUEST: &str = r#"{"messages":[{"role":"user"}]}"#;

/// A log whose store is away and does not come back.
struct Stuck;

impl TurnSink for Stuck {
    fn append(&self, _: RawTurn, done: Done) -> Appending<'_> {
        Box::pin(async move {
            let _kept = done;
            std::future::pending::<()>().await;
        })
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        None
    }
}

/// Begins to record the reply to a request.
fn begin(recorder: &Recorder, raw: String) -> Recording {
    begin_as(recorder, raw, Encoding::Identity)
}

fn begin_as(recorder: &Recorder, raw: String, encoding: Encoding) -> Recording {
    let began = Began {
        api: Api::Chat,
        status: 200,
        format: Format::Json,
        encoding,
        has_ids: true,
    };
    let agent = AgentId::default_agent();
    let asked = Asked {
        api: Api::Chat,
        who: Identity {
            agent,
            session: "s".parse().unwrap(),
            kind: metaclaw_turns::TurnKind::Main,
            is_last: false,
        },
        started_ms: 0,
        traceparent: None,
        request: Request::AsItCame(Box::new(as_it_came(raw))),
    };
    recorder.begin(asked, began).unwrap()
}

fn as_it_came(raw: String) -> AsItCame {
    AsItCame {
        chat: ChatRequest::parse(Api::Chat, raw.into()).unwrap(),
        start: ChainHash::start(&AgentId::default_agent()),
        upstream: "policy".into(),
        model: Some("base".into()),
        adapter: None,
        lessons: Arc::new(Written::from(Lessons::default())),
    }
}

#[test]
fn what_was_asked_is_read_when_the_first_bytes_of_the_reply_are_written() {
    let metrics = Arc::new(Metrics::default());
    let budget = Budget::of_captures(1 << 20, Arc::clone(&metrics));
    let replies = Arc::new(Replies::new());
    let (recorder, _recordings) = recorder(Arc::new(Stuck), budget, replies, metrics, false, FEW);
    let mut recording = begin(&recorder, REQUEST.to_owned());
    assert!(!recording.rest() && recording.asked.is_unread());
    recording.push(&Bytes::from_static(b"{"));
    assert!(
        recording.rest() && recording.asked.is_unread(),
        "not written"
    );
    assert!(!recording.rest() && !recording.asked.is_unread());
    assert!(!recording.rest());
}

#[test]
fn where_the_log_is_behind_what_was_asked_is_read_before_it_waits() {
    let metrics = Arc::new(Metrics::default());
    let budget = Budget::of_captures(1 << 20, Arc::clone(&metrics));
    let replies = Arc::new(Replies::new());
    let at_once = 2 * UNREAD;
    let (recorder, mut recordings) =
        recorder(Arc::new(Stuck), budget, replies, metrics, false, at_once);
    for _ in 0..2 * UNREAD {
        begin(&recorder, REQUEST.to_owned()).end(StreamEnd::Complete);
    }
    let queue = &mut recordings.queue;
    let waiting = std::iter::from_fn(|| queue.try_recv().ok());
    let n_unread = waiting.filter(|ended| ended.asked.is_unread()).count();
    assert_eq!(n_unread, UNREAD);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_stays_away_does_not_hold_the_end_up_for_ever() {
    let metrics = Arc::new(Metrics::default());
    let budget = Budget::of_captures(1 << 20, Arc::clone(&metrics));
    let replies = Arc::new(Replies::new());
    let (recorder, recordings) = recorder(
        Arc::new(Stuck),
        budget,
        replies,
        Arc::clone(&metrics),
        false,
        FEW,
    );
    for _ in 0..2 * FEW {
        begin(&recorder, REQUEST.to_owned()).end(StreamEnd::Complete);
    }
    let stop = CancellationToken::new();
    stop.cancel();
    let ended = tokio::time::timeout(2 * PATIENCE, recordings.run(stop));
    ended.await.expect("an end");
    assert_eq!(metrics.counts().capture_bytes, 0);
}

/// What a turn counts for while the log does not take it.
async fn n_bytes_of_waiting(raw: String, reply: impl Into<Bytes>, encoding: Encoding) -> u64 {
    let metrics = Arc::new(Metrics::default());
    let budget = Budget::of_captures(8 << 20, Arc::clone(&metrics));
    let replies = Arc::new(Replies::new());
    let sink = Arc::new(Stuck);
    let (recorder, recordings) = recorder(sink, budget, replies, Arc::clone(&metrics), false, FEW);
    let mut recording = begin_as(&recorder, raw, encoding);
    recording.push(&reply.into());
    recording.end(StreamEnd::Complete);
    let running = recordings.run(CancellationToken::new());
    tokio::pin!(running);
    let while_it_waits = tokio::time::timeout(PATIENCE, &mut running);
    assert!(while_it_waits.await.is_err());
    metrics.counts().capture_bytes
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_log_is_counted_with_all_its_fields() {
    let long = "x".repeat(100_000);
    let raw = format!(r#"{{"messages":[{{"role":"user"}}],"metadata":{{"a":"{long}"}}}}"#);
    let n_bytes = n_bytes_of_waiting(raw, "", Encoding::Identity).await;
    assert!(n_bytes > 100_000, "{n_bytes} bytes are counted");
}

#[tokio::test(start_paused = true)]
async fn token_ids_that_wait_for_the_log_are_counted() {
    let ids = "1,".repeat(100_000) + "1";
    let reply = format!(
        r#"{{"prompt_token_ids":[{ids}],"choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop","token_ids":[1],"logprobs":{{"content":[{{"logprob":-1}}]}}}}]}}"#
    );
    let n_bytes = n_bytes_of_waiting(REQUEST.to_owned(), reply, Encoding::Identity).await;
    assert!(n_bytes > 200_000 + 400_000, "{n_bytes} bytes are counted");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_opened_is_counted_as_long_as_it_is() {
    let text = "x".repeat(1 << 20);
    let reply = format!(
        r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
    );
    let packed = zstd::encode_all(reply.as_bytes(), 3).unwrap();
    assert!(packed.len() < 1 << 14);
    let n_bytes = n_bytes_of_waiting(REQUEST.to_owned(), packed, Encoding::Zstd).await;
    assert!(n_bytes > 1 << 20, "{n_bytes} bytes are counted");
    // What cannot be opened is let go of.
    let n_bytes = n_bytes_of_waiting(REQUEST.to_owned(), text, Encoding::Zstd).await;
    assert!(n_bytes < 1 << 14, "{n_bytes} bytes are counted");
}
