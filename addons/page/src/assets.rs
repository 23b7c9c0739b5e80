//! The files of the page, which are part of the program.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

const STYLE: &str = concat!(
    include_str!("../assets/style.css"),
    include_str!("../assets/curves.css")
);
const SCRIPT: &str = concat!(
    include_str!("../assets/live.js"),
    include_str!("../assets/keys.js")
);
const ICON: &str = include_str!("../assets/icon.svg");

pub(crate) fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(crate) fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
