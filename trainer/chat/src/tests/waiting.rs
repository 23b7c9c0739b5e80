//! Tests of samplers that are slow, fail, or lose their client.

use metaclaw_trainer_terms::SamplerFailure;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use axum::body::Bytes;

use super::*;

/// Returns each frame of a body with the seconds after which it came. An error is `cut`.
async fn frames(body: Body) -> Vec<(u64, String)> {
    let begun = Instant::now();
    let mut body = body;
    let mut frames = Vec::new();
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    while let Some(frame) = body.frame().await {
        let data = frame.map(|frame| frame.into_data().unwrap());
        let text = data.map_or_else(|_| "cut".to_owned(), text);
        frames.push((begun.elapsed().as_secs(), text));
    }
    frames
}

/// A sampler that cannot stream: it is silent for some time, then sends everything.
fn silent(seconds: u64) -> Answer {
    let mut steps = says(0, "ok");
    steps[0].0 = Duration::from_secs(seconds);
    answer(steps)
}

#[tokio::test(start_paused = true)]
async fn a_reply_begins_at_once_and_says_every_ten_seconds_that_it_waits() {
    let rig = rig(|_| silent(35));
    let begun = Instant::now();
    let response = rig.stream().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(begun.elapsed().as_secs(), 0);
    let frames = frames(response.into_body()).await;
    assert!(frames[0].1.contains("\"role\":\"assistant\""));
    assert_eq!(frames[0].0, 0);
    let waited = [10, 20, 30].map(|at| (at, ": waiting\n\n".to_owned()));
    assert_eq!(frames[1..4], waited);
    let rest: String = frames[4..].iter().map(|(_, text)| text.as_str()).collect();
    assert!(rest.contains("\"content\":\"o\""), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(frames[4..].iter().all(|(at, _)| *at == 35));
}

/// A reply that is not streamed has nothing to send in the meantime.
#[tokio::test(start_paused = true)]
async fn a_whole_reply_waits_for_a_silent_sampler() {
    let rig = rig(|_| silent(35));
    let (status, reply) = rig.chat(&json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(reply["choices"][0]["message"]["content"], "ok");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_taken_soon_is_answered_by_a_stream_all_the_same() {
    let refusal = SamplerError::new(SamplerFailure::Unavailable, "the cloud is gone");
    let rig = rig(move |_| Answer {
        accepts_after: Duration::from_secs(27),
        refusal: Some(refusal.clone()),
        steps: vec![],
    });
    let begun = Instant::now();
    let response = rig.stream().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(begun.elapsed().as_secs(), 5);
    let frames = frames(response.into_body()).await;
    let told = |at: usize| (frames[at].0, frames[at].1.as_str());
    assert_eq!(told(1), (10, ": waiting\n\n"));
    assert_eq!(told(2), (20, ": waiting\n\n"));
    assert!(frames[3].1.contains("the cloud is gone"), "{frames:?}");
    assert_eq!(told(4), (22, "cut"));
}

#[tokio::test]
async fn a_refusal_is_an_answer_with_its_status() {
    for (failure, status) in [
        (SamplerFailure::Busy, 429),
        (SamplerFailure::Unavailable, 503),
        (SamplerFailure::Unauthorized, 502),
        (SamplerFailure::Payment, 503),
        (SamplerFailure::UnknownModel, 404),
    ] {
        let failed = SamplerError::new(failure, "the cloud says no");
        let refusal = Some(failed.with_retry_after(Duration::from_secs(17)));
        let rig = rig(move |_| Answer {
            refusal: refusal.clone(),
            ..Answer::default()
        });
        for stream in [false, true] {
            let response = rig.begin(&json!({"stream": stream})).await;
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[header::RETRY_AFTER], "17");
            let (_, body) = read(response).await;
            assert_eq!(body["error"]["message"], "the cloud says no");
        }
        // A refused request holds no permit.
        assert_eq!(rig.asked().len(), 2);
    }
}

#[tokio::test]
async fn a_failure_within_a_stream_is_told_and_shown_as_a_cut() {
    let rig = rig(|_| {
        let mut steps = says(0, "yes");
        let failed = SamplerError::new(SamplerFailure::Remote, "the sequence is lost");
        steps[2].1 = Err(failed);
        answer(steps)
    });
    let response = rig.stream().await;
    let frames = frames(response.into_body()).await;
    let [.., (_, told), (_, cut)] = frames.as_slice() else {
        panic!("{frames:?}")
    };
    assert!(told.contains("sampler_failed"), "{told}");
    assert!(told.contains("the sequence is lost"), "{told}");
    assert_eq!(cut, "cut");
    let (status, _) = rig.chat(&json!({})).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_sampler_that_breaks_off_is_a_failure() {
    let rig = rig(|_| {
        let mut steps = says(0, "yes");
        steps.truncate(2);
        answer(steps)
    });
    let (status, error) = rig.chat(&json!({})).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{error}");
}

#[tokio::test]
async fn whoever_hangs_up_cancels_the_sampler() {
    let rig = rig(|_| silent(3_600));
    let response = rig.stream().await;
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(!rig.was_dropped());
    drop(body);
    assert!(rig.was_dropped());
}

#[tokio::test]
async fn a_listener_of_its_own_answers_whoever_has_the_key() {
    let rig = rig(|_| answer(says(0, "ok")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = CancellationToken::new();
    let mut serving = tokio::task::JoinSet::new();
    let router = rig.router.clone();
    serving.spawn(crate::connections::serve(listener, router, ending.clone()));
    let ask = |key: &'static str| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(ask(KEY).await.starts_with("HTTP/1.1 200"));
    assert!(ask("wrong").await.starts_with("HTTP/1.1 401"));
    ending.cancel();
    serving.join_next().await.unwrap().unwrap();
}
