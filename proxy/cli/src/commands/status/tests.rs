use serde_json::{Value, json};

use super::{testing::status, *};

/// The lines of a status that differs in these fields from one of nothing special.
fn shown(differs: Value, now_ms: u64) -> String {
    text(&status(differs), now_ms)
}

#[test]
fn the_first_second_is_no_time_of_0_ms() {
    let shown = shown(json!({"since_ms": 1_000}), 1_900);
    assert!(shown.contains("for less than a second"), "{shown}");
}

#[test]
fn off_comes_first_and_each_receiver_has_a_line() {
    let about =
        json!({"mode": "rl", "serves": "m", "learns": "wishes", "leaves": "a: chats\nb: turns"});
    let shown = shown(json!({"off": {"all": true}, "about": about}), 1_000);
    let lines: Vec<&str> = shown.lines().skip(1).take(5).collect();
    assert!(lines[0].starts_with("off:     "), "{shown}");
    assert_eq!(lines[1..3], ["serves:  m", "learns:  wishes"]);
    assert_eq!(lines[3..], ["leaves:  a: chats", "         b: turns"]);
}

#[test]
fn requests_that_passed_unread_are_counted_by_route() {
    let line = |differs: Value| {
        let shown = shown(differs, 1_000);
        let mut lines = shown.lines().filter(|line| line.starts_with("unread:"));
        lines.next().map(str::to_owned)
    };
    assert_eq!(line(json!({})), None);
    let passed = json!({"GET /v1/models": 1, "POST /v1/embeddings": 20});
    insta::assert_snapshot!(line(json!({"passed": passed})).unwrap(), @"unread:  21 passed as they came: GET /v1/models 1, POST /v1/embeddings 20");
    let counts = json!({"unread": 2});
    insta::assert_snapshot!(line(json!({"passed": {"POST /v1/x": 3}, "counts": counts})).unwrap(), @"unread:  3 passed as they came: POST /v1/x 3; chats that could not be read: 2");
}

/// A cloud user was told of a base model and of samples of redo.
#[test]
fn where_no_weights_are_trained_nothing_is_said_of_them() {
    let status = json!({
        "pid": 7, "proxy": "127.0.0.1:30000", "since_ms": 1_000,
        "about": {"mode": "skills_only", "serves": "m at x", "learns": "wishes", "leaves": "chat"},
        "funnel": {"turns": 5, "main": 5, "complete": 4, "with_ids": 0, "judged": 3, "trained": 0},
        "learner": {
            "phase": {"is": "off"}, "judging": {"waiting": 1, "failing": null},
            "agents": [{"agent": "main", "adapter": null, "n_redo": 0, "n_binary_rl": 0, "last_step": null}],
        },
    });
    insta::assert_snapshot!(shown(status, 61_000), @r"
    MetaClaw: running  (PID=7, mode=skills_only, proxy=127.0.0.1:30000, for 1 min)
    serves:  m at x
    learns:  wishes
    leaves:  chat
    turns:   5 recorded, 5 with you, 4 complete, 3 judged
    learner: no weights are trained; turns that wait for a verdict: 1
    window:  costly learning waits: you chatted a moment ago  (metaclaw scheduler status)
    today:   0 tokens for chats; 0 for learning (0 requests; 50000 tokens left)
    ");
}

#[test]
fn messages_that_a_model_has_not_read_yet_are_counted() {
    let line = |hearing: Value| {
        let learner =
            json!({"phase": {"is": "off"}, "judging": {"waiting": 0}, "hearing": hearing});
        let shown = shown(json!({"learner": learner}), 1_000);
        let mut lines = shown.lines().filter(|line| line.starts_with("wishes:"));
        lines.next().map(str::to_owned)
    };
    assert_eq!(line(json!({"waiting": 0, "is_held_back": false})), None);
    insta::assert_snapshot!(line(json!({"waiting": 3, "is_held_back": false})).unwrap(), @"wishes:  3 messages of yours to be read together soon (wishes.wait)");
    insta::assert_snapshot!(line(json!({"waiting": 1, "is_held_back": true})).unwrap(), @"wishes:  1 message of yours not read yet: today's tokens for learning are used up (budget.*)");
}

#[test]
fn nobody_without_weights_is_told_of_steps() {
    let agent =
        json!({"agent": "main", "adapter": null, "n_redo": 0, "n_binary_rl": 0, "last_step": null});
    let learner =
        |phase: &str| json!({"phase": {"is": phase}, "judging": {"waiting": 0}, "agents": [agent]});
    let of_phase = |phase: &str| shown(json!({"learner": learner(phase)}), 1_000);
    assert!(of_phase("collecting").contains("main on the base model"));
    assert!(!of_phase("off").contains("base model"));
}

#[test]
fn a_server_that_refuses_is_told_with_the_time_of_the_next_try() {
    let line = |is: &str| {
        let phase =
            json!({"is": is, "why": "the key is refused", "until_ms": 121_000, "agent": "main"});
        let learner = json!({"phase": phase, "judging": {"waiting": 2}});
        let shown = shown(json!({"learner": learner}), 1_000);
        let mut lines = shown.lines();
        lines
            .find(|line| line.starts_with("learner:"))
            .unwrap()
            .to_owned()
    };
    insta::assert_snapshot!(line("refused"), @"learner: the training server refuses: the key is refused; it is asked again in 2 min; turns that wait for a verdict: 2");
    insta::assert_snapshot!(line("resting"), @"learner: rests: the key is refused; the next try is in 2 min; turns that wait for a verdict: 2");
}

#[test]
fn what_upstreams_answered_and_what_the_file_says_now_is_told() {
    let status = json!({
        "config_changed": "/h/config.yaml",
        "upstreams": {
            "claude": {"n_good": 7, "n_failed": 1, "last_good_ms": 60_000, "last_failed_ms": 1_000, "last_failure": "429 Too Many Requests"},
            "llm": {"n_good": 2, "n_failed": 3, "last_good_ms": 1_000, "last_failed_ms": 59_000, "last_failure": "401 Unauthorized"},
            "other": {"n_good": 1, "n_failed": 0, "last_good_ms": 1_000, "last_failed_ms": null, "last_failure": null},
        },
    });
    let shown = shown(status, 61_000);
    let is_of_it = |line: &&str| line.starts_with("asked:") || line.starts_with("settings:");
    let shown: Vec<&str> = shown.lines().filter(is_of_it).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    settings: /h/config.yaml changed since the start: `metaclaw stop` and `metaclaw start` use it
    asked:   claude: 7 answered, 1 failed; the last that failed: 429 Too Many Requests, 1 min ago
    asked:   llm fails: 401 Unauthorized, 2 s ago (2 answered, 3 failed)
    asked:   other: 1 answered, 0 failed
    ");
}

#[test]
fn a_training_server_elsewhere_is_said_with_what_it_lacks() {
    let lost = json!([{"agent": "main", "adapter": "a-1", "why": "a-1 is not here"}]);
    let of = |trainer: Value| shown(json!({"trainer": trainer, "lost": lost}), 1_000);
    let lines = |trainer: Value| -> String {
        let shown = of(trainer);
        let is_of_it = |line: &&str| line.starts_with("trainer:") || line.starts_with("adapter:");
        shown
            .lines()
            .filter(is_of_it)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let url = "http://gpu:8000";
    insta::assert_snapshot!(lines(json!({"is": "answers", "url": url, "model": "Qwen3-4B"})), @r"
    trainer: http://gpu:8000 answers, and has Qwen3-4B
    adapter: a-1 cannot serve main, and the base model answers: a-1 is not here
    ");
    assert!(
        of(json!({"is": "away", "url": url, "why": "refused"}))
            .contains("trainer: http://gpu:8000 cannot be used: refused\n")
    );
    assert!(
        of(json!({"is": "without_model", "url": url, "why": "w"}))
            .contains("trainer: http://gpu:8000 has no model: w\n")
    );
}

#[test]
fn a_vllm_that_answers_for_the_trainer_is_said_with_what_is_wrong() {
    let line = |inference: Value| {
        let shown = shown(json!({"inference": inference}), 1_000);
        let line = shown.lines().find(|line| line.starts_with("vLLM:"));
        line.map(str::to_owned)
    };
    let url = "http://127.0.0.1:8001";
    assert_eq!(line(Value::Null), None);
    let lines = [
        json!({"url": url, "state": "ready", "why": null, "log": null}),
        json!({"url": url, "state": "away", "why": "it is being started", "log": "/h/trainer/vllm.log"}),
        json!({"url": url, "state": "refused", "why": "another model", "log": null}),
    ]
    .map(|inference| line(inference).unwrap());
    insta::assert_snapshot!(lines.join("\n"), @r"
    vLLM:    http://127.0.0.1:8001 answers
    vLLM:    http://127.0.0.1:8001 does not answer: it is being started (started by the trainer; its output: /h/trainer/vllm.log)
    vLLM:    http://127.0.0.1:8001 is not asked: another model
    ");
}

#[test]
fn the_lines_say_who_serves_and_how_far_turns_got() {
    let status = json!({
        "dropped_lines": 3, "pid": 7, "proxy": "127.0.0.1:30000", "since_ms": 1_000,
        "about": {"mode": "rl", "serves": "demo", "learns": "weights", "leaves": "nothing"},
        "trainer": {"is": "ready", "address": "127.0.0.1:1", "pid": 8},
        "funnel": {"turns": 5, "main": 5, "complete": 4, "with_ids": 4, "judged": 3, "judged_at_session_end": 1, "trained": 0, "taken": 2, "spent": {"unclear": 1}},
        "log": {"broken": null, "moved_aside": "/h/turns/damaged-1", "n_lost": 0, "clock": "the machine's clock is 40 d ahead"},
        "spend": {"day": 1, "chat": 9000, "learning": 300, "n_answered": 2, "n_failed": 1, "limit": 50000},
        "waiting": {"skills": 2, "wishes": {"main": 1}},
        "learner": {
            "phase": {"is": "collecting"}, "judging": {"waiting": 1, "failing": null},
            "window": {"is": "closed", "why": {"is": "chatting", "until_ms": 7}},
            "batch_size": 4,
            "agents": [{"agent": "_default", "adapter": null, "n_redo": 1, "n_binary_rl": 2,
                "n_unanswered": 3, "not_taught": {"no reply of the teacher does what you wish": 4},
                "last_step": {"n": 7, "n_redo": 8, "n_again": 4},
                "taken_back": {"adapter": "a-2", "to": "a-1", "why": "of 9 verdicts 8 are bad", "at_ms": 1},
                "began_anew": {"why": "the base model has changed (a to b)", "at_ms": 1}}],
        },
    });
    insta::assert_snapshot!(shown(status, 61_000), @r#"
    MetaClaw: running  (PID=7, mode=rl, proxy=127.0.0.1:30000, for 1 min)
    serves:  demo
    learns:  weights
    leaves:  nothing
    trainer: ready at 127.0.0.1:1 (PID=8)
    turns:   5 recorded, 5 with you, 4 complete, 4 with token ids, 3 judged, 0 trained on (+ 2 in an open step); 1 of the judged at the end of their session
             1 not used: unclear
    log:     the log was damaged and was moved to /h/turns/damaged-1; an empty log began (`metaclaw doctor` checks which turns can be recovered)
    clock:   the machine's clock is 40 d ahead
    learner: collects judged replies; turns that wait for a verdict: 1
    window:  costly learning waits: you chatted a moment ago  (metaclaw scheduler status)
    agent:   _default on the base model; 1 taught and 2 judged replies ready to train on (a batch: 4), 3 that wait for the teacher's reply; last step 7 (4 of 8 taught replies used again)
             4 not taught: no reply of the teacher does what you wish
             taken back: a-2, as verdicts got worse: of 9 verdicts 8 are bad
             its weights began anew: the base model has changed (a to b)
    today:   9000 tokens for chats; 300 for learning, 3 % of the chats (2 requests, 1 not answered; 49700 tokens left)
    review:  2 skills that a model wrote wait for your look  (metaclaw skills review)
    review:  1 wish waits for your look  (metaclaw wishes review --agent main)
    output:  3 log lines were dropped: nobody read them in time
    "#);
}
