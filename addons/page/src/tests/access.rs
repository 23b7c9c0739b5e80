//! Tests of who may see the page and use its forms: sign-in links, cookies, origins, and the page that a form returns
//! to.

use super::*;

#[tokio::test]
async fn without_token_and_cookie_every_route_is_401() {
    let page = PageFixture::new();
    let open = ["/ui/login", "/ui/style.css", "/ui/icon.svg"];
    let routes = include_str!("../routes.rs").split(".route(\"").skip(1);
    let routes = routes.filter_map(|rest| rest.split('"').next());
    let closed: Vec<&str> = routes.filter(|route| !open.contains(route)).collect();
    assert!(closed.len() > 20, "{closed:?}");
    for route in closed.into_iter().chain(["/ui/nothing"]) {
        let address = route.replace("{id}", "1-0");
        for cookie in ["", "metaclaw_30080=9999999999999.77", "metaclaw_30081=x"] {
            let mut request = get(&address, cookie);
            if address.starts_with("/ui/do/") {
                *request.method_mut() = axum::http::Method::POST;
            }
            let response = page.send(request).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{address}");
            let told = text(response).await;
            assert!(told.contains("metaclaw ui"), "{address}: {told}");
        }
    }
    let request = Request::get("/ui/nothing").header(header::HOST, "localhost");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    let response = page.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_login_link_works_once() {
    let page = PageFixture::new();
    let link = format!("/ui/login?code={}", page.logins.new_code(now_ms()));
    // A program that previews a link does not use it up.
    for method in ["HEAD", "OPTIONS", "POST"] {
        let mut other = get(&link, "");
        *other.method_mut() = method.parse().unwrap();
        let response = page.send(other).await;
        assert!(response.headers().get(header::SET_COOKIE).is_none());
        // Without an Origin and a mark of a browser, a POST is no other page's.
        assert_eq!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED,
            "{method}"
        );
    }
    let response = page.send(get(&link, "")).await;
    assert_eq!(response.status(), StatusCode::OK);
    let cookie = response.headers()[header::SET_COOKIE]
        .to_str()
        .unwrap()
        .to_owned();
    for part in [
        "metaclaw_30080=",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/ui",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let (cookie, _) = cookie.split_once(';').unwrap();
    assert_eq!(page.send(get("/ui", cookie)).await.status(), StatusCode::OK);
    let again = page.send(get(&link, "")).await;
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    assert!(text(again).await.contains("used up"));
    // Who is signed in already and opens an old link is let through.
    assert_eq!(page.send(get(&link, cookie)).await.status(), StatusCode::OK);
    let late = page.logins.new_code(now_ms() - 121_000);
    let late = page.send(get(&format!("/ui/login?code={late}"), "")).await;
    assert_eq!(late.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn forms_of_other_pages_and_names_of_other_hosts_are_refused() {
    let page = PageFixture::new();
    let form = |host: &str, extra: &[(header::HeaderName, &[u8])]| {
        let mut request = Request::post("/ui/do/switch")
            .header(header::HOST, host)
            .header(header::COOKIE, page.cookie())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in extra {
            request = request.header(name, *value);
        }
        request.body(Body::from("off=true&back=/ui")).unwrap()
    };
    let fetch_site = header::HeaderName::from_static("sec-fetch-site");
    let (us, other) = ("127.0.0.1:30080", "rebound.example.org:30080");
    let own: &'static [u8] = b"http://127.0.0.1:30080";
    let origin = |value: &'static [u8]| (header::ORIGIN, value);
    let site = |value: &'static [u8]| (fetch_site.clone(), value);
    type Given<'a> = (header::HeaderName, &'a [u8]);
    let cases: [(&str, &[Given<'_>]); 14] = [
        (us, &[origin(b"http://127.0.0.1:8000")]),
        (us, &[origin(b"https://example.org")]),
        (us, &[origin(b"null")]),
        (us, &[origin(b"")]),
        (us, &[origin("http://ex\u{e4}mple.org".as_bytes())]),
        (us, &[origin(b"\xff\xfe")]),
        (us, &[origin(b"http://127.0.0.1:30080\xff")]),
        (us, &[origin(own), origin(b"https://example.org")]),
        (us, &[origin(b"https://example.org"), origin(own)]),
        (us, &[origin(own), origin(own)]),
        (us, &[site(b"same-site")]),
        (us, &[site(b"cross-site\xff")]),
        (us, &[site(b"same-origin"), site(b"cross-site")]),
        (other, &[origin(b"http://rebound.example.org:30080")]),
    ];
    for (host, extra) in cases {
        let response = page.send(form(host, extra)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{host} {extra:?}");
    }
    let two_hosts = form(us, &[(header::HOST, us.as_bytes()), origin(own)]);
    let response = page.send(two_hosts).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    for own in [origin(own), site(b"same-origin")] {
        let response = page.send(form(us, &[own])).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
    }
}

#[tokio::test]
async fn a_form_that_cannot_lead_back_does_nothing() {
    let page = PageFixture::new();
    page.turn(&[Message::user("What is rain?")], "Water.").await;
    for back in [
        "/ui%0D%0ASet-Cookie:%20a=b",
        "%0A",
        "/ui/lessons%0d",
        "/ui?a=%00",
        "/ui%7F",
    ] {
        for (action, fields) in [
            ("switch", "off=true"),
            ("wish", "what=add&agent=main&wish=Be%20brief."),
            ("forget", "agent=main&session=a"),
        ] {
            let response = page.sent(action, &format!("{fields}&back={back}")).await;
            assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
            let told = text(response).await;
            assert!(told.contains("back: a control character"), "{told}");
        }
    }
    assert!(!page.seen("/ui/privacy").await.contains("off for"));
    assert!(!page.seen("/ui/lessons").await.contains("Be brief."));
    assert!(page.seen("/ui/sessions").await.contains("What is rain?"));
}

#[tokio::test]
async fn signing_out_ends_the_cookie_even_for_whoever_copied_it() {
    let page = PageFixture::new();
    let (here, elsewhere) = (page.cookie(), page.cookie());
    let request = Request::post("/ui/do/sign-out")
        .header(header::HOST, "127.0.0.1:30080")
        .header(header::COOKIE, &here);
    let response = page.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().contains_key(header::SET_COOKIE));
    for cookie in [here, elsewhere] {
        let response = page.send(get("/ui", &cookie)).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
}
