//! The SSE reader: any splitting gives the same events, and no input causes a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_dialects::{
    Api,
    sse::{SseEvent, SseReader},
};
use metaclaw_fuzz::{Input, pieces};

fn read(pieces: &[&[u8]], limit: usize) -> (Vec<SseEvent>, u64) {
    let mut reader = SseReader::with_limit(limit);
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| reader.feed(piece)).collect();
    let n_skipped = reader.n_skipped();
    events.extend(reader.finish());
    (events, n_skipped)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let limit = 1 + usize::from(input.byte()) * 4;
    let lengths = input.take(4);
    let stream = input.rest();
    let whole = read(&[stream], limit);
    assert_eq!(read(&pieces(stream, lengths), limit), whole);
    for event in &whole.0 {
        assert!(event.data.len() <= 3 * limit, "longer than the limit");
        assert!(!event.data.contains('\r'), "a line end inside a line");
    }
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let reply = api.read_sse(stream);
        assert!(reply.n_skipped <= stream.len() as u64);
        api.read_json(stream);
        api.is_done(stream);
    }
});
