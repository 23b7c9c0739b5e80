//! Bodies that are far too large, as a process meets them.

use std::{
    io::Write as _,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::trainer::{Trainer, answer, folder, start};

const MIB: usize = 1 << 20;

/// A chat of so many bytes of text.
fn long_chat(n: usize) -> String {
    let text = "word ".repeat(n / 5);
    format!("{{\"messages\": [{{\"role\": \"user\", \"content\": \"{text}\"}}]}}")
}

/// Sends the body, then waits for the answer; how long both took.
fn send(trainer: &Trainer, head: &str, body: &str) -> (u16, String, Duration) {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(&trainer.address).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let (status, reply) = answer(socket);
    let code = reply["error"]["code"].as_str().unwrap_or("-").to_owned();
    (status, code, begun.elapsed())
}

/// A prompt of 30 MB took 12 s of computing and 3.5 GB before it was refused.
#[test]
fn eight_prompts_of_30_mb_at_once_are_refused_without_being_held() {
    let folder = folder();
    let trainer = start(folder.path());
    let body = long_chat(30_000_000);
    let head = trainer.head("POST", "/v1/chat/completions", body.len()) + "\r\n";
    let before = trainer.peak();
    let refused = thread::scope(|scope| {
        let sent = [(); 8].map(|()| scope.spawn(|| send(&trainer, &head, &body)));
        sent.map(|thread| thread.join().unwrap())
    });
    for (status, code, took) in refused {
        assert_eq!((status, code.as_str()), (400, "context_length_exceeded"));
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    let more = trainer.peak() - before;
    assert!(more < 50 * MIB, "{more} bytes");
}

#[test]
fn two_gigabytes_are_refused_by_their_length() {
    let folder = folder();
    let trainer = start(folder.path());
    for path in ["/v1/train/forward_backward", "/v1/chat/completions"] {
        let head = trainer.head("POST", path, 2 << 30) + "\r\n";
        // Nothing of the body is sent: the answer does not wait for it.
        let (status, code, _) = send(&trainer, &head, "");
        let wanted = match path {
            "/v1/chat/completions" => (400, "context_length_exceeded"),
            _ => (413, "body_too_large"),
        };
        assert_eq!((status, code.as_str()), wanted, "{path}");
    }
}

/// Without a length it is refused where it passes the bound.
#[test]
fn a_body_in_pieces_is_refused_where_it_passes_the_bound() {
    let folder = folder();
    let trainer = start(folder.path());
    let mut head = trainer.head("POST", "/v1/chat/completions", 0);
    head = head.replace("content-length: 0", "transfer-encoding: chunked") + "\r\n";
    let body = long_chat(10_000_000);
    let body = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (status, code, _) = send(&trainer, &head, &body);
    assert_eq!((status, code.as_str()), (400, "context_length_exceeded"));
}

/// 20 batches at once, which were all held and parsed side by side.
#[test]
fn batches_beyond_the_bound_wait_with_their_callers() {
    let folder = folder();
    let trainer = start(folder.path());
    let head = trainer.head("POST", "/v1/train/forward_backward", 250 << 20) + "\r\n";
    let open = [(); 2].map(|()| {
        let mut socket = TcpStream::connect(&trainer.address).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        socket
    });
    // The server has seen both when a third finds no room; until then it is read, and is no JSON.
    let body = " ".repeat(20 << 20);
    let small = trainer.head("POST", "/v1/train/forward_backward", body.len()) + "\r\n";
    let begun = Instant::now();
    loop {
        let (status, code, _) = send(&trainer, &small, &body);
        if (status, code.as_str()) == (503, "too_many_bodies") {
            break;
        }
        assert_eq!((status, code.as_str()), (400, "invalid_json"));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    drop(open);
}
