//! Tests of the three policies against the numbers of the original systems.

use super::*;

fn evidence(next: &[Message]) -> Evidence {
    Evidence::new(
        &[Message::user("List the files, please.")],
        Message::assistant("<think>hm</think>They are <b>a</b> and b."),
        next,
    )
}

fn followed() -> Evidence {
    evidence(&[
        Message::new("tool", "a\nb"),
        Message::user("Shorter, please."),
    ])
}

fn scores(policy: Policy, answers: &[&str]) -> Option<i8> {
    let questions = policy.questions(&followed(), &[]);
    let votes: Vec<_> = answers
        .iter()
        .map(|answer| (questions.read_score)(answer))
        .collect();
    questions.verdict(&votes, &[]).map(|v| v.score.into())
}

#[test]
fn openclaw_rls_votes_are_counted_as_it_counts_them() {
    let counted = |answers: &[&str]| scores(Policy::OpenclawRl, answers);
    let (good, bad, unclear) = (r"\boxed{1}", r"\boxed{-1}", r"\boxed{0}");
    assert_eq!(counted(&[good, good, bad]), Some(1));
    assert_eq!(counted(&[good, bad]), Some(0));
    assert_eq!(counted(&[good, bad, unclear]), Some(0));
    assert_eq!(counted(&[good, "I cannot tell"]), Some(1));
    assert_eq!(counted(&[r"\boxed{1} ... \boxed{-1}"]), Some(-1));
    assert_eq!(counted(&[r"\boxed{1} ... \boxed{7}"]), Some(0));
    assert_eq!(counted(&[r"\boxed{ 1 }", "verdict: +1"]), Some(0));
    // In our policy this is no verdict at all.
    assert_eq!(scores(Policy::NextState, &["hm", "hm"]), None);
}

#[test]
fn metaclaws_votes_are_counted_as_it_counts_them() {
    let counted = |answers: &[&str]| scores(Policy::Metaclaw, answers);
    assert_eq!(counted(&["Score: 1", "score:-1", "SCORE: -1"]), Some(-1));
    assert_eq!(counted(&["Score: 1 at first.\nScore: 0"]), Some(0));
    assert_eq!(counted(&[r"Score: 5 \boxed{1}"]), Some(1));
    assert_eq!(counted(&["Score: 1", "Score: -1"]), Some(0));
    assert_eq!(counted(&["none", "none", "none"]), Some(0));
    assert_eq!(counted(&["verdict: +1"]), Some(0));
}

#[test]
fn metaclaw_shows_the_instruction_and_the_response_without_markup() {
    let shown = |evidence: &Evidence| {
        let questions = Policy::Metaclaw.questions(evidence, &[]);
        questions.score[1].text().into_owned()
    };
    insta::assert_snapshot!(shown(&followed()), @r"
    Instruction:
    List the files, please.

    Response:
    [think]hm[/think]They are [b]a[/b] and b.
    ");
    let called = Message::assistant("<tool_call>\n{\"name\": \"ls\"}\n</tool_call> 1 < 2");
    let called = Evidence::new(&[Message::user("q")], called, &[]);
    assert!(shown(&called).ends_with("[tool_call block] 1 < 2"));
    let json = r#"{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"ls","arguments":"{}"}}]}"#;
    let silent = Evidence::new(&[], serde_json::from_str(json).unwrap(), &[]);
    assert!(shown(&silent).contains(r#""name":"ls""#));
}

#[test]
fn openclaw_rl_shows_all_that_followed_and_no_request() {
    let questions = Policy::OpenclawRl.questions(&followed(), &[]);
    let hint = questions.hint.unwrap();
    for asked in [&questions.score, &hint] {
        let asked = asked[1].text();
        assert!(!asked.contains("List the files"), "{asked}");
        for shown in [
            "<think>hm</think>They",
            "(role: tool)\n\na\nb",
            "(role: user)\n\nShorter",
        ] {
            assert!(asked.contains(shown), "{asked}");
        }
    }
}

#[test]
fn openclaw_rls_hints_are_those_of_accepting_judges_that_say_something() {
    let hint = |answer: &str| Questions::read_hint(answer);
    let said = r"[HINT_START] Name the files only. [HINT_END] \boxed{1}";
    assert_eq!(hint(said).as_deref(), Some("Name the files only."));
    assert_eq!(hint(&said.replace("{1}", "{-1}")), None);
    assert_eq!(hint(r"[HINT_START]Be brief..[HINT_END] \boxed{1}"), None);
    let two = r"[HINT_START]First of all.[HINT_END] [HINT_START]Second of all.[HINT_END] \boxed{1}";
    assert_eq!(hint(two).as_deref(), Some("Second of all."));
    // Hints belong to the verdict, whatever its score: the shortest first, each once.
    let questions = Policy::OpenclawRl.questions(&followed(), &[]);
    let vote = Vote::new(Score::Good, None);
    let hints = [
        "Name the files only.",
        "Be much briefer.",
        "Be much briefer.",
    ];
    let verdict = questions.verdict(&[Some(vote)], &hints.map(str::to_owned));
    let verdict = verdict.unwrap();
    assert_eq!(
        verdict.judge_hints,
        ["Be much briefer.", "Name the files only."]
    );
    assert_eq!(verdict.hint.as_deref(), Some("Be much briefer."));
}

#[test]
fn a_reply_that_nothing_followed_is_judged_by_itself() {
    let alone = evidence(&[]);
    let wishes = ["Answer in one sentence.".to_owned()];
    for policy in [Policy::NextState, Policy::Metaclaw, Policy::OpenclawRl] {
        let questions = policy.questions(&alone, &wishes);
        assert!(questions.score[1].text().contains(&wishes[0]), "{policy:?}");
        let vote = (questions.read_score)("verdict: -1").unwrap();
        assert_eq!(vote.score, Score::Bad);
        assert!(questions.hint.is_none() && questions.verdict(&[None], &[]).is_none());
    }
    let questions = Policy::Metaclaw.questions(&alone, &[]);
    assert!(questions.score[1].text().starts_with("Instruction:"));
}
