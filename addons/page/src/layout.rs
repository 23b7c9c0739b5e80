//! The frame around each view: head, navigation, and the place where news is announced.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{Uri, request::Parts},
};
use maud::{DOCTYPE, Markup, html};

use crate::query::{decoded, pairs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Today,
    Conversations,
    Lessons,
    Training,
    Curves,
    Cost,
    Privacy,
    Health,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The address of this view, to which forms lead back.
    pub(crate) here: String,
    done: Option<String>,
}

/// The field of an address that says what the last form did.
const DONE: &str = "done";

/// A section's address and name.
struct NavEntry(Section, &'static str, &'static str);

const ENTRIES: [NavEntry; 8] = [
    NavEntry(Section::Today, "/ui", "Today"),
    NavEntry(Section::Conversations, "/ui/sessions", "Conversations"),
    NavEntry(Section::Lessons, "/ui/lessons", "Lessons"),
    NavEntry(Section::Training, "/ui/training", "Training"),
    NavEntry(Section::Curves, "/ui/curves", "Curves"),
    NavEntry(Section::Cost, "/ui/cost", "Cost"),
    NavEntry(Section::Privacy, "/ui/privacy", "Privacy"),
    NavEntry(Section::Health, "/ui/health", "Health"),
];

// === impl Frame ===

impl Frame {
    fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let done = pairs(query).find(|(name, _)| *name == DONE);
        let kept: Vec<&str> = query
            .split('&')
            .filter(|it| !it.is_empty() && !it.starts_with("done="))
            .collect();
        let path = uri.path();
        let here = if kept.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", kept.join("&"))
        };
        Self {
            here,
            done: done.map(|(_, value)| decoded(value)),
        }
    }

    pub(crate) fn page(&self, title: &str, section: Section, body: &Markup) -> Markup {
        let inner = html! {
            a.skip href="#main" { "Skip to the content" }
            header.top {
                a.brand href="/ui" { "MetaClaw" }
                nav aria-label="Sections" {
                    @for NavEntry(its, address, name) in &ENTRIES {
                        a href=(address) aria-current=[(*its == section).then_some("page")] { (name) }
                    }
                }
                p #link .link role="status" { }
                button #show-keys .keys type="button" { "Shortcuts" }
            }
            main #main tabindex="-1" {
                @if let Some(done) = &self.done { p #done .done role="status" { (done) } }
                (body)
            }
            p #told .told role="status" { }
            (keys())
            script src="/ui/live.js" defer { }
        };
        document(title, &inner)
    }
}

impl<S: Sync> FromRequestParts<S> for Frame {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

/// What `keys.js` does.
fn keys() -> Markup {
    let keys = [
        ("j", "next row"),
        ("k", "previous row"),
        ("Enter", "open the row"),
        ("/", "search"),
        ("?", "show this list"),
    ];
    html! {
        dialog #keys aria-label="Keyboard shortcuts" {
            dl { @for (key, what) in keys { div { dt { kbd { (key) } } dd { (what) } } } }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// A complete document without navigation, for people who are not signed in.
pub(crate) fn bare(title: &str, body: &Markup) -> Markup {
    document(title, &html! { main #main .bare { (body) } })
}

fn document(title: &str, inner: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · MetaClaw" }
                link rel="icon" href="/ui/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/ui/style.css";
            }
            body { (inner) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_shown_once_and_forms_lead_back_without_it() {
        let uri: Uri = "/ui/lessons?agent=a&done=undone%3A+%3Cb%3E"
            .parse()
            .unwrap();
        let frame = Frame::of(&uri);
        assert_eq!(frame.here, "/ui/lessons?agent=a");
        let shown = frame.page("x", Section::Lessons, &html! {}).into_string();
        assert!(shown.contains("undone: &lt;b&gt;"), "{shown}");
        let uri: Uri = "/ui".parse().unwrap();
        assert_eq!(Frame::of(&uri).here, "/ui");
    }
}
