//! For any reply in any pieces, whatever happens to its copy: the agent gets the same bytes with the same end, and the
//! log the same turn.

use std::cell::RefCell;

use metaclaw_chat::{Size, TurnId};
use metaclaw_dialects::Api;
use metaclaw_turns::Turn;
use proptest::{collection::vec, prelude::*, sample, test_runner::TestRunner};
use tokio::runtime::Runtime;

use super::harness::{CHAT, END, Harness, Seen, SetUp, post, post_chat, says};

/// A reply as the upstream sends it.
#[derive(Debug, Clone)]
struct Reply {
    api: Api,
    encoding: Option<&'static str>,
    body: Vec<u8>,
    /// Where it is cut into pieces, each a chunk and a separate write.
    cuts: Vec<usize>,
    /// Whether the connection breaks off after the body.
    breaks_off: bool,
}

/// What the agent can observe of a reply.
#[derive(Debug, PartialEq)]
struct Outcome {
    head: Vec<String>,
    body: Vec<u8>,
    is_whole: bool,
}

fn any_api() -> impl Strategy<Value = Api> {
    sample::select(vec![Api::Chat, Api::Messages, Api::Responses])
}

/// Makes a line of a stream, valid or not.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let lines = include_str!("data/lines.txt").lines().map(str::to_owned);
    let lines: Vec<String> = lines.collect();
    let good = prop_oneof![
        1 => "[a-zé\\\\]{0,5}".prop_map(|text| {
            let delta = serde_json::json!({"content": text});
            format!("data: {{\"id\":\"c1\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}")
        }),
        18 => sample::select(lines),
    ];
    prop_oneof![
        8 => good.prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..6),
    ]
}

/// Makes a stream: any lines with any line ends, with most events ended by a blank line.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![6 => Just("\n\n"), 1 => Just("\r\n\r\n"), 1 => Just("\r\r"), 1 => Just("\n"), 1 => Just("")];
    vec((any_line(), end), 0..9).prop_map(|lines| {
        let lines = lines.into_iter();
        lines
            .flat_map(|(line, end)| [line, end.into()])
            .flatten()
            .collect()
    })
}

fn any_reply(
    encoding: impl Strategy<Value = Option<&'static str>>,
) -> impl Strategy<Value = Reply> {
    let parts = (
        any_api(),
        encoding,
        any_stream(),
        vec(any::<usize>(), 0..7),
        any::<bool>(),
    );
    parts.prop_map(|(api, encoding, body, cuts, breaks_off)| Reply {
        api,
        encoding,
        body,
        cuts,
        breaks_off,
    })
}

// === impl Reply ===

impl Reply {
    fn whole(&self) -> Self {
        let cuts = Vec::new();
        Self {
            cuts,
            ..self.clone()
        }
    }

    fn head(&self) -> String {
        let header = |name| format!("content-encoding: {name}\r\n");
        let encoding = self.encoding.map(header).unwrap_or_default();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{encoding}x-thing: 1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        )
    }

    /// Returns the body's pieces. None is empty, because an empty chunk ends a message.
    fn pieces(&self) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = self
            .cuts
            .iter()
            .map(|at| at % (self.body.len() + 1))
            .collect();
        cuts.extend([0, self.body.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2)
            .map(|cut| &self.body[cut[0]..cut[1]])
            .collect()
    }

    /// Requests it through the gateway.
    async fn pass(&self, harness: &mut Harness) -> Outcome {
        let body = match self.api {
            Api::Responses => r#"{"model":"m","input":"hi","stream":true}"#,
            Api::Chat | Api::Messages => CHAT,
        };
        let request = post(self.api.path(), "x-session-id: s\r\n", body);
        let (mut client, mut exchange) = harness.ask(&request).await;
        exchange.send(&self.head()).await;
        for piece in self.pieces() {
            let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            exchange.send(&framed).await;
            if self.cuts.len() % 2 == 1 {
                // The next one is usually read separately.
                tokio::task::yield_now().await;
            }
        }
        if self.breaks_off {
            drop(exchange);
        } else {
            exchange.send(END).await;
        }
        Outcome::of(client.read().await)
    }
}

// === impl Outcome ===

impl Outcome {
    fn of(seen: Seen) -> Self {
        let head = seen.head.lines().filter(|line| !line.starts_with("date:"));
        Self {
            head: head.map(str::to_owned).collect(),
            body: seen.body,
            is_whole: seen.is_whole,
        }
    }
}

/// Returns a turn without its times.
fn timeless(turn: &Turn) -> Turn {
    let mut turn = turn.clone();
    turn.id = TurnId { session: 0, seq: 0 };
    turn.meta.started_ms = 0;
    turn.meta.first_byte_ms = turn.meta.first_byte_ms.map(|_| 0);
    turn.meta.ended_ms = 0;
    turn
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

#[test]
fn any_splitting_gives_the_agent_the_same_bytes_and_the_log_the_same_turn() {
    let runtime = Runtime::new().unwrap();
    let harness = RefCell::new(runtime.block_on(Harness::start()));
    let check = |reply: Reply| {
        let mut harness = harness.borrow_mut();
        let (outcomes, turns) = runtime.block_on(async {
            let n_before = harness.log.turns().len();
            let whole = reply.whole().pass(&mut harness).await;
            harness.log.wait(n_before + 1).await;
            let split = reply.pass(&mut harness).await;
            let turns = harness.log.wait(n_before + 2).await;
            let turns: Vec<Turn> = turns[n_before..].iter().map(timeless).collect();
            ([whole, split], turns)
        });
        let [whole, split] = outcomes;
        prop_assert_eq!(&whole.body, &reply.body);
        prop_assert_eq!(whole.is_whole, !reply.breaks_off);
        prop_assert_eq!(&split, &whole);
        prop_assert_eq!(&turns[1], &turns[0]);
        Ok(())
    };
    runner().run(&any_reply(Just(None)), check).unwrap();
}

/// Makes a gateway whose captures fail in one way.
async fn impaired(how: &str) -> Harness {
    let mut set_up = SetUp::default();
    match how {
        "no memory" => set_up.config.proxy.capture_memory = Size(0),
        "little memory" => set_up.config.proxy.capture_memory = Size(1_200),
        "a broken log, and strict" => set_up.config.strict = true,
        // Otherwise `fill` would send 16,384 requests.
        "a full queue" => set_up.at_once = Some(64),
        _ => {}
    }
    let mut harness = Harness::with(set_up).await;
    if how.starts_with("a broken log") {
        *harness.log.broken.lock().unwrap() = Some("disk full".into());
    }
    if how == "a full queue" {
        fill(&mut harness).await;
    }
    harness
}

/// Sends turns that the log does not accept, until there is no room for more.
async fn fill(harness: &mut Harness) {
    harness.log.hold();
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let reply = says("x").replace("connection: close\r\n", "");
    let mut exchange = harness.upstream.answer(&reply).await;
    client.read().await;
    while harness.metrics.counts().dropped == 0 {
        client.send(&post_chat(CHAT)).await;
        exchange.read_more().await;
        exchange.send(&reply).await;
        client.read().await;
    }
}

#[test]
fn whatever_happens_to_the_capture_the_agent_sees_the_same() {
    const WAYS: [&str; 6] = [
        "nothing",
        "no memory",
        "little memory",
        "a broken log",
        "a broken log, and strict",
        "a full queue",
    ];
    let runtime = Runtime::new().unwrap();
    let mut harnesses: Vec<Harness> = WAYS
        .iter()
        .map(|how| runtime.block_on(impaired(how)))
        .collect();
    let harnesses = RefCell::new(&mut harnesses);
    let check = |reply: Reply| {
        for (harness, how) in harnesses.borrow_mut().iter_mut().zip(WAYS) {
            let outcome = runtime.block_on(reply.pass(harness));
            prop_assert_eq!(&outcome.body, &reply.body, "{}", how);
            prop_assert_eq!(outcome.is_whole, !reply.breaks_off, "{}", how);
            prop_assert!(outcome.head.contains(&"x-thing: 1".to_owned()), "{}", how);
        }
        Ok(())
    };
    // A reply that claims to be compressed and is not cannot be read for the log.
    let encoding = sample::select(vec![None, Some("gzip"), Some("br"), Some("x-own")]);
    runner().run(&any_reply(encoding), check).unwrap();
    let counts = |n: usize| harnesses.borrow()[n].metrics.counts();
    assert!(counts(0).undecodable > 0, "{:?}", counts(0));
    for (n, lost) in [(1, counts(1).overflowed), (5, counts(5).dropped)] {
        assert!(lost > 0 && counts(n).recorded == 0, "{:?}", counts(n));
    }
    assert!(counts(2).overflowed > 0, "{:?}", counts(2));
    assert!(counts(3).failed > 0 && counts(4).failed > 0);
}
