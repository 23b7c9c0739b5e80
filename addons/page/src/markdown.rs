//! Replies are Markdown. What they contain of HTML is shown as text, and nothing in them is fetched.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html::push_html};

/// A reply is folded at the end of a block after so many bytes, if so many others follow.
const SHOWN: usize = 1_600;
const WORTH_FOLDING: usize = 400;

struct Renderer<'t> {
    events: Vec<Event<'t>>,
    /// The addresses of links and images that are open.
    addresses: Vec<CowStr<'t>>,
}

/// Draws Markdown; `fold_id` is the element's that opens the rest of a long one.
pub(crate) fn rendered(text: &str, fold_id: &str) -> Markup {
    let mut renderer = Renderer {
        events: Vec::new(),
        addresses: Vec::new(),
    };
    let (mut depth, mut is_folded) = (0_usize, false);
    // The list or table that is open outside of all other blocks, a list with the number of its next item.
    let mut block: Option<Tag<'_>> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, at) in Parser::new_ext(text, options).into_offset_iter() {
        let is_item = depth == 1 && matches!(event, Event::Start(Tag::Item | Tag::TableRow));
        let has_rest = at.start > SHOWN && text.len() - at.start > WORTH_FOLDING;
        if has_rest && !is_folded && (depth == 0 || is_item) {
            is_folded = true;
            let cut = block.clone().filter(|_| is_item);
            renderer
                .events
                .extend(cut.as_ref().map(|cut| Event::End(cut.to_end())));
            let summary = fold_summary(text).into_string();
            renderer.html(format!(
                "<details class=\"more\" id=\"{fold_id}\">{summary}"
            ));
            renderer.events.extend(cut.map(Event::Start));
        }
        match &event {
            Event::Start(Tag::List(first)) if depth == 0 => block = Some(Tag::List(*first)),
            Event::Start(Tag::Table(_)) if depth == 0 => block = Some(Tag::Table(Vec::new())),
            _ if is_item => {
                if let Some(Tag::List(Some(n))) = &mut block {
                    *n += 1;
                }
            }
            _ => {}
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        renderer.add(event);
    }
    if is_folded {
        renderer.html("</details>");
    }
    let mut drawn = String::new();
    push_html(&mut drawn, renderer.events.into_iter());
    html! { div.md { (PreEscaped(drawn)) } }
}

/// Shows a text as it is, a long one folded.
pub(crate) fn plain(text: &str, fold_id: &str) -> Markup {
    if text.len() <= SHOWN + WORTH_FOLDING {
        return html! { p.words { (text) } };
    }
    let most = text.floor_char_boundary(SHOWN);
    let space = text[..most].rfind(char::is_whitespace);
    let (shown, rest) = text.split_at(space.unwrap_or(most));
    html! {
        p.words { (shown) }
        details.more #(fold_id) { (fold_summary(text)) p.words { (rest.trim_start()) } }
    }
}

fn fold_summary(text: &str) -> Markup {
    let n = text.split_whitespace().count();
    html! { summary { span.closed { "Show all " (n) " words" } span.open { "Show less" } } }
}

// === impl Renderer ===

impl<'t> Renderer<'t> {
    fn html(&mut self, text: impl Into<CowStr<'t>>) {
        self.events.push(Event::Html(text.into()));
    }

    fn add(&mut self, event: Event<'t>) {
        let drawn = match event {
            Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
            Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
            Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
            // The page has its own headings.
            Event::Start(Tag::Heading { .. }) => Event::Html("<h4>".into()),
            Event::End(TagEnd::Heading(_)) => Event::Html("</h4>\n".into()),
            // Alignments are drawn as styles, which the page's policy forbids.
            Event::Start(Tag::Table(_)) => Event::Start(Tag::Table(Vec::new())),
            Event::Start(Tag::CodeBlock(kind)) => {
                self.html(
                    "<div class=\"code\"><button type=\"button\" class=\"copy\">Copy</button>",
                );
                Event::Start(Tag::CodeBlock(kind))
            }
            Event::End(TagEnd::CodeBlock) => {
                self.events.push(Event::End(TagEnd::CodeBlock));
                Event::Html("</div>".into())
            }
            // Where a link leads is shown, and a picture is not fetched: each could tell a stranger what was read.
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.addresses.push(dest_url);
                return;
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                let address = self.addresses.pop().unwrap_or_else(|| "".into());
                if matches!(self.events.last(), Some(Event::Text(text)) if *text == address) {
                    return;
                }
                Event::Text(format!(" ({address})").into())
            }
            other => other,
        };
        self.events.push(drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_drawn_and_html_is_shown() {
        for (text, drawn) in [
            (
                "**a** *b* `c<d`",
                "<p><strong>a</strong> <em>b</em> <code>c&lt;d</code></p>",
            ),
            ("# Title", "<h4>Title</h4>"),
            ("* a\n* b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
            (
                "```rust\nlet a = \"<b>\";\n```",
                "<pre><code class=\"language-rust\">let a = \"&lt;b&gt;\";\n</code></pre>\n</div>",
            ),
            ("| a | b |\n|---|--:|\n| 1 | 2 |", "<th>b</th>"),
            (
                "<script>alert(1)</script>",
                "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
            ),
            ("a <b>b</b>", "<p>a &lt;b&gt;b&lt;/b&gt;</p>"),
            (
                "[a](https://example.org/?x=<y>)",
                "<p>a (https://example.org/?x=&lt;y&gt;)</p>",
            ),
            ("[a](javascript:alert(1))", "<p>a (javascript:alert(1))</p>"),
            ("<https://example.org>", "<p>https://example.org</p>"),
            (
                "![a](https://example.org/p.png)",
                "<p>a (https://example.org/p.png)</p>",
            ),
            ("[![a](b)](c)", "<p>a (b) (c)</p>"),
            ("```\" onclick=\"x\na\n```", "class=\"language-&quot;\""),
        ] {
            let shown = rendered(text, "x").into_string();
            assert!(shown.contains(drawn), "{text}: {shown}");
            for never in ["<a ", "<img", "style=", "<script", "<b>", "onclick=\""] {
                assert!(!shown.contains(never), "{text}: {shown}");
            }
        }
    }

    #[test]
    fn a_long_text_is_folded_and_whole() {
        let paragraph = "Rain falls on the roof. ".repeat(20);
        let text = [&*paragraph; 9].join("\n\n");
        let list = format!("7. {}", [&*paragraph; 9].join("\n1. "));
        let table = format!("| a |\n|---|\n{}", format!("| {paragraph} |\n").repeat(9));
        let cut_list = rendered(&list, "all-1").into_string();
        assert!(
            cut_list.contains("<ol start=\"7\">") && cut_list.contains("<ol start=\"11\">"),
            "{cut_list}"
        );
        for shown in [
            rendered(&text, "all-1"),
            rendered(&list, "all-1"),
            rendered(&table, "all-1"),
            plain(&text, "all-1"),
        ] {
            let shown = shown.into_string();
            let (above, folded) = shown
                .split_once("<details class=\"more\" id=\"all-1\">")
                .unwrap();
            assert!(above.matches("Rain").count() > 40, "{above}");
            assert_eq!(shown.matches("Rain").count(), 180);
            assert!(folded.contains("Show all 9"), "{folded}");
        }
        for short in [rendered("One.\n\nTwo.", "x"), plain("One.", "x")] {
            assert!(!short.into_string().contains("<details"));
        }
    }
}
