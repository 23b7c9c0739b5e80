//! Tests of the turns that wait for the log: how much memory they take, and for how long.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use metaclaw_chat::{AgentId, ChainHash};
use metaclaw_dialects::{Api, request::ChatRequest};
use metaclaw_turns::{Done, NewTurn, Served, StreamEnd, TurnKind};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    Appending, CaptureConfig, CaptureMetrics, CapturedRequest, Encoding, Format, Recorder,
    Recording, ResponseMeta, TurnSink, Worker, long_texts::LongTexts, recorder, worker::LAST_WAIT,
};

/// Captures that may wait for the worker.
const FEW: usize = 64;
const REQUEST: &str = r#"{"messages":[{"role":"user"}]}"#;

/// A log that accepts either every turn or none, and never acknowledges any.
#[derive(Default)]
struct Stuck {
    takes: bool,
    taken: Mutex<Vec<(NewTurn, Done)>>,
    asked: Notify,
}

impl TurnSink for Stuck {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        Box::pin(async move {
            self.taken.lock().unwrap().push((turn, done));
            self.asked.notify_one();
            if !self.takes {
                std::future::pending::<()>().await;
            }
        })
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        None
    }
}

/// A recorder and a worker with a log.
struct Way {
    recorder: Recorder,
    worker: Option<Worker>,
    log: Arc<Stuck>,
    metrics: Arc<CaptureMetrics>,
}

fn way(takes: bool) -> Way {
    let log = Arc::new(Stuck {
        takes,
        ..Stuck::default()
    });
    let metrics = Arc::new(CaptureMetrics::default());
    let config = CaptureConfig {
        memory: 8 << 20,
        queue: FEW,
        strict: false,
    };
    let sink = Arc::clone(&log) as Arc<dyn TurnSink>;
    let (recorder, worker) = recorder(sink, config, Arc::clone(&metrics));
    Way {
        recorder,
        worker: Some(worker),
        log,
        metrics,
    }
}

pub(crate) fn asked(api: Api, raw: &str) -> CapturedRequest {
    let agent = AgentId::default_agent();
    CapturedRequest {
        chat: ChatRequest::parse(api, Bytes::copy_from_slice(raw.as_bytes())).unwrap(),
        start: ChainHash::start(&agent),
        agent,
        session: "s".parse().unwrap(),
        kind: TurnKind::Main,
        is_last: false,
        sampling: Vec::new(),
        served: Served::default(),
        parent: None,
        on_reply_id: None,
        on_calls: None,
        started_ms: 0,
        traceparent: None,
        span: Span::none(),
    }
}

fn began(api: Api, format: Format, encoding: Encoding) -> ResponseMeta {
    ResponseMeta {
        api,
        status: 200,
        format,
        encoding,
        has_ids: true,
    }
}

fn begin(recorder: &Recorder, raw: &str, encoding: Encoding) -> Recording {
    let meta = began(Api::Chat, Format::Json, encoding);
    recorder.begin(asked(Api::Chat, raw), meta).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_log_that_takes_nothing_does_not_hold_the_end_up_for_ever() {
    let mut way = way(false);
    for _ in 0..2 * FEW {
        begin(&way.recorder, REQUEST, Encoding::Identity).end(StreamEnd::Complete);
    }
    assert_eq!(way.metrics.dropped.get(), FEW as u64);
    let stop = CancellationToken::new();
    let mut worker = pin!(way.worker.take().unwrap().run(stop.clone()));
    // Time must not advance before the log was asked, because the clock would move on while the worker's thread works.
    tokio::select! {
        () = &mut worker => panic!("the worker ended"),
        () = way.log.asked.notified() => stop.cancel(),
    }
    let ended = tokio::time::timeout(2 * LAST_WAIT, worker);
    ended.await.expect("an end");
    way.log.taken.lock().unwrap().clear();
    while way.metrics.bytes.get() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Returns the memory that a turn counts for while the log has not acknowledged it.
async fn n_bytes_of_waiting(raw: &str, reply: impl Into<Bytes>, encoding: Encoding) -> u64 {
    let mut way = way(true);
    let mut recording = begin(&way.recorder, raw, encoding);
    recording.push(&reply.into());
    recording.end(StreamEnd::Complete);
    let worker = way.worker.take().unwrap().run(CancellationToken::new());
    tokio::select! {
        () = worker => panic!("the worker ended"),
        () = way.log.asked.notified() => way.metrics.bytes.get(),
    }
}

#[tokio::test]
async fn what_waits_for_the_log_is_counted_with_all_its_fields() {
    let long = "x".repeat(100_000);
    let raw = format!(r#"{{"messages":[{{"role":"user"}}],"metadata":{{"a":"{long}"}}}}"#);
    let n_bytes = n_bytes_of_waiting(&raw, "", Encoding::Identity).await;
    assert!(n_bytes > 100_000, "{n_bytes} bytes are counted");
}

#[tokio::test]
async fn token_ids_that_wait_for_the_log_are_counted() {
    let ids = "1,".repeat(100_000) + "1";
    let reply = format!(
        r#"{{"prompt_token_ids":[{ids}],"choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop","token_ids":[1],"logprobs":{{"content":[{{"logprob":-1}}]}}}}]}}"#
    );
    let n_bytes = n_bytes_of_waiting(REQUEST, reply, Encoding::Identity).await;
    assert!(n_bytes > 200_000 + 400_000, "{n_bytes} bytes are counted");
}

#[tokio::test]
async fn a_reply_that_was_opened_is_counted_as_long_as_it_is() {
    let text = "x".repeat(1 << 20);
    let reply = format!(
        r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
    );
    let packed = zstd::encode_all(reply.as_bytes(), 3).unwrap();
    assert!(packed.len() < 1 << 14);
    let n_bytes = n_bytes_of_waiting(REQUEST, packed, Encoding::Zstd).await;
    assert!(n_bytes > 1 << 20, "{n_bytes} bytes are counted");
    // A copy that cannot be decompressed is dropped.
    let n_bytes = n_bytes_of_waiting(REQUEST, text, Encoding::Zstd).await;
    assert!(n_bytes < 1 << 14, "{n_bytes} bytes are counted");
}

/// Returns the reported id of a Responses reply, and asserts that it was reported when the reply ended.
fn told(reply: &[u8], format: Format, encoding: Encoding) -> Option<String> {
    let way = way(true);
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let request = CapturedRequest {
        on_reply_id: Some(Box::new(move |id| *tell.lock().unwrap() = Some(id))),
        ..asked(Api::Responses, r#"{"input":"hi"}"#)
    };
    let meta = began(Api::Responses, format, encoding);
    let mut recording = way.recorder.begin(request, meta).unwrap();
    recording.push(&Bytes::copy_from_slice(reply));
    recording.end(StreamEnd::Complete);
    let told = told.lock().unwrap();
    told.clone()
}

#[test]
fn the_id_of_a_reply_is_known_when_it_ends_and_little_of_it_is_opened_for_that() {
    let body = format!(r#"{{"id":"resp_1","output":"{}"}}"#, "x".repeat(4 << 20));
    let packed = zstd::encode_all(body.as_bytes(), 3).unwrap();
    let one = Some("resp_1".to_owned());
    assert_eq!(told(&packed, Format::Json, Encoding::Zstd), one);
    assert_eq!(
        told(&body.as_bytes()[..100], Format::Json, Encoding::Identity),
        one
    );
    let event = r#"data: {"response":{"id":"resp_2"}}"#;
    let two = Some("resp_2".to_owned());
    assert_eq!(told(event.as_bytes(), Format::Sse, Encoding::Identity), two);
}

#[tokio::test]
async fn an_id_far_behind_in_a_reply_is_told_when_it_is_read() {
    let mut way = way(true);
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let request = CapturedRequest {
        on_reply_id: Some(Box::new(move |id| *tell.lock().unwrap() = Some(id))),
        ..asked(Api::Responses, r#"{"input":"hi"}"#)
    };
    let meta = began(Api::Responses, Format::Json, Encoding::Identity);
    let mut recording = way.recorder.begin(request, meta).unwrap();
    let body = format!(
        r#"{{"output":[],"x":"{}","id":"resp_1"}}"#,
        "x".repeat(1 << 17)
    );
    recording.push(&body.into());
    recording.end(StreamEnd::Complete);
    assert_eq!(*told.lock().unwrap(), None);
    let worker = way.worker.take().unwrap().run(CancellationToken::new());
    tokio::select! {
        () = worker => panic!("the worker ended"),
        () = way.log.asked.notified() => {}
    }
    assert_eq!(told.lock().unwrap().as_deref(), Some("resp_1"));
}

#[test]
fn what_a_reply_calls_is_known_before_its_end_is() {
    let arguments = r#"{"task":"Look around."}"#;
    let quoted = serde_json::Value::from(arguments);
    for (api, raw, reply) in [
        (
            Api::Chat,
            REQUEST,
            format!(
                r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"1","type":"function","function":{{"name":"spawn","arguments":{quoted}}}}}]}},"finish_reason":"tool_calls"}}]}}"#
            ),
        ),
        (
            Api::Messages,
            REQUEST,
            format!(
                r#"{{"type":"message","role":"assistant","content":[{{"type":"tool_use","id":"1","name":"spawn","input":{arguments}}}],"stop_reason":"tool_use"}}"#
            ),
        ),
        (
            Api::Responses,
            r#"{"input":"hi"}"#,
            format!(
                r#"{{"id":"resp_1","status":"completed","output":[{{"type":"function_call","call_id":"1","name":"spawn","arguments":{quoted}}}]}}"#
            ),
        ),
    ] {
        let way = way(true);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let request = CapturedRequest {
            on_calls: Some(Box::new(move |_, reply| {
                tell.lock().unwrap().extend(reply.tool_calls());
            })),
            ..asked(api, raw)
        };
        let meta = began(api, Format::Json, Encoding::Identity);
        // Nothing of the reply is kept, but its id and calls are still read.
        let mut recording = way.recorder.listen(request, meta).unwrap();
        recording.push(&reply.into());
        recording.end(StreamEnd::Complete);
        let told = told.lock().unwrap();
        let said: Vec<_> = told.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(said, [arguments], "{api:?}");
    }
}

/// Returns how the log describes the end of a reply that ended early.
async fn end_of(is_cut_by_us: bool) -> StreamEnd {
    let mut way = way(true);
    let recording = begin(&way.recorder, REQUEST, Encoding::Identity);
    if is_cut_by_us {
        way.recorder.cut();
    }
    recording.end(StreamEnd::ClientGone);
    let worker = way.worker.take().unwrap().run(CancellationToken::new());
    tokio::select! {
        () = worker => panic!("the worker ended"),
        () = way.log.asked.notified() => {}
    }
    let taken = way.log.taken.lock().unwrap();
    taken[0].0.meta.end
}

#[tokio::test]
async fn a_reply_that_we_cut_is_no_agents_that_hung_up() {
    assert_eq!(end_of(false).await, StreamEnd::ClientGone);
    assert_eq!(end_of(true).await, StreamEnd::Cut);
}

/// Returns the lines that are logged while `run` runs.
fn logged(run: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
    tracing::subscriber::with_default(log.with_ansi(false).finish(), run);
    let lines = lines.0.lock().unwrap();
    String::from_utf8(lines.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_a_moment_for_a_log_that_lags() {
    let way = way(false);
    let waited = async || {
        let began = tokio::time::Instant::now();
        way.recorder.keep_up().await;
        began.elapsed().as_millis()
    };
    let x = "x".repeat(64 << 10);
    let large = format!(r#"{{"x":"{x}","messages":[{{"role":"user"}}]}}"#);
    let large = || begin(&way.recorder, &large, Encoding::Identity);
    let running: Vec<Recording> = (0..50).map(|_| large()).collect();
    assert_eq!(waited().await, 0, "replies that still come are no lag");
    for recording in running {
        recording.end(StreamEnd::Complete);
    }
    assert_eq!(waited().await, 100, "the log takes nothing");
    let log = async {
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            way.metrics.recorded.inc();
        }
    };
    let (n_ms, ()) = tokio::join!(waited(), log);
    assert_eq!(n_ms, 1_000, "the log takes turns");
    drop(way.worker);
    assert_eq!(waited().await, 0);
}

#[test]
fn the_line_of_a_turn_stands_in_its_requests_span_and_no_callers_text_makes_it_long() {
    let lines = logged(|| {
        let log = Arc::new(Stuck::default());
        let metrics = Arc::new(CaptureMetrics::default());
        let config = CaptureConfig {
            memory: 8 << 20,
            queue: 1,
            strict: false,
        };
        let (queue, mut finished) = tokio::sync::mpsc::channel(1);
        let recorder = Recorder::new(queue, log, config, Arc::clone(&metrics));
        let long = "é".repeat(100_000);
        let raw = format!(r#"{{"model":"{long}","messages":[{{"role":"user"}}]}}"#);
        let request = CapturedRequest {
            span: tracing::info_span!("chat", n = 7),
            traceparent: Some(long),
            ..asked(Api::Chat, &raw)
        };
        let meta = began(Api::Chat, Format::Json, Encoding::Identity);
        recorder
            .begin(request, meta)
            .unwrap()
            .end(StreamEnd::Complete);
        let finished = finished.try_recv().unwrap();
        finished.decode(&metrics, &mut LongTexts::new()).unwrap();
    });
    assert!(
        lines.contains("chat{n=7}: metaclaw::turn: turn api=\"chat\""),
        "{lines}"
    );
    assert!(
        lines.contains("ééé") && lines.len() < 1_000,
        "{} bytes",
        lines.len()
    );
}

#[test]
fn a_requests_span_says_which_turn_it_became() {
    let lines = logged(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut way = way(true);
            let span = tracing::info_span!("request", turn = tracing::field::Empty);
            let request = CapturedRequest {
                span: span.clone(),
                ..asked(Api::Chat, REQUEST)
            };
            let meta = began(Api::Chat, Format::Json, Encoding::Identity);
            let recording = way.recorder.begin(request, meta).unwrap();
            recording.end(StreamEnd::Complete);
            let stop = CancellationToken::new();
            let worker = way.worker.take().unwrap().run(stop.clone());
            let log = async {
                way.log.asked.notified().await;
                let (_, done) = way.log.taken.lock().unwrap().pop().unwrap();
                done(Ok("12-3".parse().unwrap()));
                stop.cancel();
            };
            tokio::join!(worker, log);
            span.in_scope(|| tracing::info!("afterwards"));
        });
    });
    let line = lines
        .lines()
        .find(|line| line.contains("afterwards"))
        .unwrap();
    assert!(line.contains("request{turn=12-3}"), "{line}");
}
