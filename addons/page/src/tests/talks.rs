//! Tests of conversations: the search, a whole one, a single reply.

use super::*;

const CONVERSATION: &str = "/ui/session?agent=main&session=a";

fn calling(name: &str, arguments: &str) -> Message {
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}},
    ]});
    serde_json::from_value(call).unwrap()
}

fn result(text: &str) -> Message {
    serde_json::from_value(json!({"role": "tool", "tool_call_id": "c1", "content": text})).unwrap()
}

/// Puts a question, a call of a tool and the reply after it; the turn of that reply.
async fn step(page: &PageFixture, asked: &str, call: Message, tool: &str, reply: &str) -> TurnId {
    let mut messages = vec![Message::user(asked)];
    page.put(new_turn(&messages, call.clone())).await;
    messages.extend([call, result(tool)]);
    page.turn(&messages, reply).await
}

#[tokio::test]
async fn markup_in_any_text_is_shown_as_text() {
    let page = PageFixture::new();
    let wish = "what=add&agent=main&wish=Be%20%3Cb%3Ebrief%3C%2Fb%3E.&back=/ui";
    let added = page.sent("wish", wish).await;
    assert_eq!(added.status(), StatusCode::SEE_OTHER);
    let call = calling(MARKUP, MARKUP);
    let id = step(
        &page,
        MARKUP,
        call,
        MARKUP,
        &format!("{MARKUP}\n\nx {MARKUP}"),
    )
    .await;
    let verdict = Verdict {
        hint: Some(MARKUP.to_owned()),
        ..Verdict::new(Score::Bad, JudgedBy::Llm)
    };
    page.log().await.judge(id, verdict).await.unwrap();
    let mut other = new_turn(&[Message::user(MARKUP)], Message::assistant(MARKUP));
    other.session = MARKUP.parse().unwrap();
    other.served.model = MARKUP.to_owned();
    other.served.upstream = MARKUP.to_owned();
    other.served.adapter = Some(MARKUP.to_owned());
    other.served.system_block = Some(MARKUP.to_owned());
    let other = page.put(other).await;
    let named =
        "agent=main&session=%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E%3Cb%3Ebold%3C%2Fb%3E";
    for address in [
        "/ui",
        "/ui/sessions",
        "/ui/sessions?words=bold&model=%3Cb%3E",
        CONVERSATION,
        &format!("/ui/session?{named}"),
        &format!("/ui/turns/{id}?whole=true"),
        &format!("/ui/turns/{other}"),
        "/ui/lessons",
        "/ui/privacy",
    ] {
        let shown = page.seen(address).await;
        assert!(
            !shown.contains("<b>") && !shown.contains("<script>"),
            "{address}: {shown}"
        );
        assert!(shown.contains("&lt;"), "{address}: {shown}");
    }
}

#[tokio::test]
async fn conversations_are_searched_by_a_form_that_needs_no_script() {
    let page = PageFixture::new();
    let id = page
        .turn(&[Message::user("What is rain, in short?")], "Water.")
        .await;
    page.log()
        .await
        .judge(id, Verdict::new(Score::Bad, JudgedBy::Owner))
        .await
        .unwrap();
    let mut snow = new_turn(
        &[Message::user("What is snow?")],
        Message::assistant("Cold **water**."),
    );
    snow.session = "b".parse().unwrap();
    snow.served.model = "provider-large".to_owned();
    page.put(snow).await;
    for (query, found) in [
        ("", [true, true]),
        ("?words=&agent=&verdict=&model=&days=", [true, true]),
        ("?words=WATER+cold", [false, true]),
        ("?verdict=-1", [true, false]),
        ("?model=Large&days=1", [false, true]),
        ("?agent=nobody", [false, false]),
        ("?words=hail", [false, false]),
    ] {
        let shown = page.seen(&format!("/ui/sessions{query}")).await;
        let has = ["What is rain, in short?", "What is snow?"].map(|asked| shown.contains(asked));
        assert_eq!(has, found, "{query}: {shown}");
        assert!(shown.contains("<form class=\"search\""), "{shown}");
    }
    let nothing = page.seen("/ui/sessions?words=hail").await;
    assert!(nothing.contains("No conversation matches."), "{nothing}");
    assert!(
        nothing.contains("value=\"hail\""),
        "the form keeps what was asked"
    );
    for (query, told) in [
        ("verdict=2", "verdict: "),
        ("days=soon", "is not allowed: days: &quot;soon&quot;"),
        ("agent=a/b", "is not allowed: agent: "),
    ] {
        let response = page
            .send(get(&format!("/ui/sessions?{query}"), &page.cookie()))
            .await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
        let shown = text(response).await;
        assert!(shown.contains(told), "{query}: {shown}");
    }
}

#[tokio::test]
async fn a_conversation_shows_calls_with_their_outcome_times_and_verdicts() {
    let page = PageFixture::new();
    let call = calling("read_file", "{\"path\": \"a.txt\"}");
    let id = step(
        &page,
        "What is in a.txt?",
        call,
        "milk, eggs",
        "It has **milk**.",
    )
    .await;
    let verdict = Verdict {
        hint: Some("Say all of it.".to_owned()),
        ..Verdict::new(Score::Bad, JudgedBy::Rules)
    };
    page.log().await.judge(id, verdict).await.unwrap();
    let messages = [Message::user("Are you sure about this list?")];
    let mut last = new_turn(&messages, Message::assistant("Yes."));
    last.meta.first_byte_ms = Some(last.meta.started_ms + 412);
    last.meta.ended_ms = last.meta.started_ms + 12_345;
    last.served.system_block = Some("Be brief.".to_owned());
    page.put(last).await;
    let shown = page.seen(CONVERSATION).await;
    for part in [
        "What is in a.txt?",
        "<code>read_file</code> <span class=\"soft\">milk, eggs</span>",
        "It has <strong>milk</strong>.",
        "Your complaint: “Say all of it.”",
        "first words after 412 ms, all after 12.3 s",
        "Added to the prompt from here on",
        "Are you sure about this list?",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let order = ["What is in a.txt?", "read_file", "It has", "Are you sure"];
    let places = order.map(|part| shown.find(part).unwrap());
    assert!(places.is_sorted(), "{places:?}");
    assert!(
        shown.contains(&format!("href=\"/ui/turns/{id}\"")),
        "{shown}"
    );
}

#[tokio::test]
async fn the_reply_to_a_tool_shows_the_owners_words_and_the_call_above_it() {
    let page = PageFixture::new();
    let call = calling("read_file", "{\"path\": \"a.txt\"}");
    let id = step(
        &page,
        "What is in a.txt?",
        call,
        "milk, eggs",
        "Milk and eggs.",
    )
    .await;
    let shown = page.seen(&format!("/ui/turns/{id}")).await;
    let order = [
        "You, before this step",
        "What is in a.txt?",
        "read_file",
        "milk, eggs",
        "Milk and eggs.",
    ];
    let places = order.map(|part| {
        shown
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {shown}"))
    });
    assert!(places.is_sorted(), "{places:?}");
}
