//! A task's Markdown as HTML. The text is untrusted.
//!
//! Invariants: the renderer makes every element of the output, and HTML in the text is shown as text. Links lead only to
//! the web or to a mail program. Pictures become links, so that looking at a task sends no request to another server.
//! Headings are below those of the page and have no ids.

use maud::{Markup, Render};
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

use super::text::{SafeText, made, plain};

/// Nesting beyond this depth is flattened. A text with thousands of nested lists would make a page of many megabytes.
const DEEPEST: usize = 32;

/// Renders the text. Its top headings get this level.
pub(super) fn render(text: &str, heading: usize) -> Markup {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut safe = SafeEvents { heading, depth: 0, links: Vec::new() };
    let mut parsed = Parser::new_ext(text, options).peekable();
    let events = std::iter::from_fn(|| {
        let event = parsed.next()?;
        // Lines that start with a bold word, such as `**To**: ada`, are a list of facts and not one paragraph.
        let is_fact = event == Event::SoftBreak && parsed.peek() == Some(&Event::Start(Tag::Strong));
        Some(if is_fact { Event::HardBreak } else { event })
    });
    let events = events.filter_map(|event| safe.event(event));
    let mut output = String::with_capacity(text.len() * 2);
    html::push_html(&mut output, events);
    made(output)
}

/// Makes the parts of a text safe, one after the other.
struct SafeEvents {
    heading: usize,
    depth: usize,
    /// For each open link or picture: whether it became a link.
    links: Vec<bool>,
}

impl SafeEvents {
    fn event<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => Some(shown(&text)),
            Event::Code(text) => {
                let code = SafeText(&text).render().into_string();
                Some(Event::InlineHtml(format!("<code>{code}</code>").into()))
            }
            Event::SoftBreak | Event::HardBreak | Event::Rule => Some(event),
            Event::TaskListMarker(done) => Some(Event::InlineHtml(if done { "☑ " } else { "☐ " }.into())),
            // The options above do not enable these.
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                Some(shown(&text))
            }
        }
    }

    fn start<'a>(&mut self, tag: Tag<'a>) -> Option<Event<'a>> {
        match tag {
            Tag::Link { link_type, dest_url, .. } => self.link(link_type, &dest_url, ""),
            // The alternative text becomes the link text.
            Tag::Image { link_type, dest_url, .. } => self.link(link_type, &dest_url, "picture: "),
            Tag::HtmlBlock => Some(Event::InlineHtml("<pre>".into())),
            Tag::MetadataBlock(_) => None,
            Tag::Heading { level, .. } => Some(Event::Start(Tag::Heading {
                level: self.level(level),
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            })),
            tag if nests(&tag.to_end()) => {
                self.depth += 1;
                (self.depth <= DEEPEST).then_some(Event::Start(tag))
            }
            tag => Some(Event::Start(tag)),
        }
    }

    fn end<'a>(&mut self, tag: TagEnd) -> Option<Event<'a>> {
        match tag {
            TagEnd::Link | TagEnd::Image => {
                self.links.pop().unwrap_or(false).then_some(Event::InlineHtml("</a>".into()))
            }
            TagEnd::HtmlBlock => Some(Event::InlineHtml("</pre>".into())),
            TagEnd::MetadataBlock(_) => None,
            TagEnd::Heading(level) => Some(Event::End(TagEnd::Heading(self.level(level)))),
            tag if nests(&tag) => {
                self.depth -= 1;
                (self.depth < DEEPEST).then_some(Event::End(tag))
            }
            tag => Some(Event::End(tag)),
        }
    }

    fn link<'a>(&mut self, kind: LinkType, to: &CowStr<'_>, before: &str) -> Option<Event<'a>> {
        let to = if kind == LinkType::Email { format!("mailto:{to}") } else { to.to_string() };
        let good = leads_somewhere_safe(&to) && !self.links.contains(&true);
        self.links.push(good);
        let open = maud::html! { (before) };
        good.then(|| {
            let href = maud::html! {
                (open) a href=(to) title=(plain(&to)) rel="noopener noreferrer nofollow" {}
            };
            // The end of the link adds the end tag.
            let href = href.into_string();
            let href = href.strip_suffix("</a>").unwrap_or(&href).to_owned();
            Event::InlineHtml(href.into())
        })
    }

    fn level(&self, level: HeadingLevel) -> HeadingLevel {
        let level = self.heading - 1 + level as usize;
        HeadingLevel::try_from(level.min(6)).unwrap_or(HeadingLevel::H6)
    }
}

fn nests(tag: &TagEnd) -> bool {
    matches!(tag, TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item)
}

fn shown<'a>(text: &str) -> Event<'a> {
    Event::InlineHtml(SafeText(text).render().into_string().into())
}

/// Checks the scheme. Browsers ignore control characters in it, so there must be none.
fn leads_somewhere_safe(to: &str) -> bool {
    let scheme = to.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "mailto")) && !to.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        render(text, 3).into_string()
    }

    #[test]
    fn markdown_is_rendered() {
        let html = rendered("# Title\n\n*a* **b** `c<d`\n\n- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
        for part in [
            "<h3>Title</h3>",
            "<em>a</em>",
            "<strong>b</strong>",
            "<code>c&lt;d</code>",
            "☑ done",
            "<td>1</td>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(rendered("###### deep").contains("<h6>"));
        assert!(rendered("**To**: a\n**Re**: b\nc").contains("a<br />\n<strong>Re</strong>: b\nc"));
    }

    #[test]
    fn html_is_shown_as_text() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div onclick=\"x\">\n\n**b**\n\n</div>",
            "```\n</code></pre><script>x</script>\n```",
            "`</code><script>`",
            "| <b onclick=x> |\n|---|\n| <i> |",
            "<!-- x --><style>*{}</style>",
            "# <iframe src=//x>",
        ] {
            let html = rendered(text);
            for tag in ["<script", "<img", "<div", "<b ", "<i>", "<style", "<iframe", "<!--"] {
                assert!(!html.contains(tag), "{text}: {html}");
            }
        }
    }

    #[test]
    fn links_lead_only_to_the_web_or_to_mail() {
        assert!(rendered("[a](https://example.org/?x=1&y=2)").contains(
            "<a href=\"https://example.org/?x=1&amp;y=2\" title=\"https://example.org/?x=1&amp;y=2\" \
             rel=\"noopener noreferrer nofollow\">a</a>"
        ));
        assert!(rendered("<me@example.org>").contains("href=\"mailto:me@example.org\""));
        for text in [
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert(1))",
            "[a](<java\tscript:alert(1)>)",
            "[a](&#x6A;avascript:alert(1))",
            "[a](\u{1}javascript:alert(1))",
            "[a](data:text/html,x)",
            "[a](//evil.example)",
            "[a](/tasks/x.md/approve)",
            "[a](vbscript:x)",
            "[a]( https://x\u{0}y )",
            "<javascript:alert(1)>",
        ] {
            let html = rendered(text);
            assert!(!html.contains("href"), "{text}: {html}");
        }
        let html = rendered("[a](https://x \"\\\" onclick=\\\"y\")");
        assert!(html.contains("href=\"https://x\"") && !html.contains("onclick"), "{html}");
    }

    #[test]
    fn pictures_are_not_loaded() {
        let html = rendered("![cat](https://example.org/cat.png) [![x](https://a)](https://b)");
        assert!(!html.contains("<img"), "{html}");
        assert!(html.contains("picture: <a href=\"https://example.org/cat.png\""), "{html}");
        assert_eq!(html.matches("<a ").count(), html.matches("</a>").count(), "{html}");
        assert_eq!(html.matches("<a ").count(), 2, "no link in a link: {html}");
    }

    #[test]
    fn invisible_characters_are_shown() {
        let html = rendered("a\u{202e}b `\u{1b}[31m`\n\n```\n\u{2066}x\n```\n");
        for code in ["U+202E", "U+001B", "U+2066"] {
            assert!(html.contains(code), "{html}");
        }
        assert!(!html.contains(['\u{202e}', '\u{1b}', '\u{2066}']), "{html}");
    }

    #[test]
    fn deep_nesting_stays_small() {
        let html = rendered(&format!("{}x", "> ".repeat(5000)));
        assert_eq!(html.matches("<blockquote>").count(), DEEPEST);
        assert_eq!(html.matches("</blockquote>").count(), DEEPEST);
        let html = rendered(&format!("{}x", "- ".repeat(5000)));
        assert_eq!(html.matches("<ul>").count(), html.matches("</ul>").count());
        assert_eq!(html.matches("<li>").count(), html.matches("</li>").count());
        assert!(html.len() < 20_000, "{}", html.len());
    }

    #[test]
    fn mutated_texts_are_rendered_without_a_panic_and_without_html_of_their_own() {
        let texts = [
            "# Title\n\n*a* **b** `c<d`\n\n- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
            "> quote\n> 1. one\n>    - two\n\n```sh\nrm -rf /\n```\n<!-- hidden --> <b onclick=x>c</b>\n\n[a]: javascript:x\n",
            "[link](http://x.y \"t\") ![pic](http://x/y.png) <http://a.b> ~~gone~~ \\* &amp; &#0; **To**: ada\n**From**: bob\n",
        ];
        tollgate_fuzz::fuzz("markdown", &texts, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let html = rendered(&text).to_lowercase();
            for forbidden in ["<script", "<img", "<b ", "<iframe", "<style", "href=\"javascript"] {
                assert!(!html.contains(forbidden), "{forbidden}: {html}");
            }
            // Deep nesting makes no page of many megabytes.
            assert!(html.len() < 4096 + 64 * text.len(), "{} bytes from {}", html.len(), text.len());
        });
    }
}
