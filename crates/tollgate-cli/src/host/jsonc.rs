//! JSON with comments, edited as text: adding a member inserts bytes and changes none, removing it deletes exactly these.
//!
//! So comments, order and indentation stay, and a file is restored byte for byte. No record of the original is needed, because
//! the place of a member says what was there before it:
//! - after another member, it follows directly, with a comma, on a line of its own if the other has one. So a comment behind the
//!   other is then behind the new one;
//! - in an empty container, it is on the line of the opening bracket, after one space. A container that was added with the
//!   member has no such space there, and is removed with it.
//!
//! The editor of `jsonc-parser` (`cst`) cannot replace this file: after adding and removing a member, half of the layouts in the
//! tests below are no longer as they were, and one loses a comment.

use std::ops::Range;

use jsonc_parser::ast::{self, ObjectPropName};
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// One step from a container to a member of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonStep<'p> {
    /// The member of an object.
    Key(&'p str),
    /// The element of an array.
    At(usize),
}

/// The value in a text, or what is wrong with the text. A text without a value has the value null.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    Ok(Document::parse(text)?.root.map_or(Value::Null, Value::from))
}

/// The text with one more member, at the end of the container at this path. The member of an object has a name.
pub(super) fn with(text: &str, path: &[JsonStep<'_>], name: Option<&str>, value: &Value) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let container = document.container(path)?;
    let name = name.map(|name| format!("{}: ", Value::from(name))).unwrap_or_default();
    let (place, member) = match container.members.last() {
        None => (container.open, format!(" {name}{value} ")),
        Some(last) => {
            match container.members.iter().rev().find_map(|member| document.indentation(member.start)) {
                Some(inner) => {
                    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
                    let outer = document.indentation(container.close).unwrap_or_default();
                    let unit = inner.strip_prefix(outer).filter(|unit| !unit.is_empty()).unwrap_or("  ");
                    let value = pretty(value, unit).replace('\n', &format!("{line_end}{inner}"));
                    (last.end, format!(",{line_end}{inner}{name}{value}"))
                }
                None => (last.end, format!(", {name}{value}")),
            }
        }
    };
    let mut text = text.to_owned();
    text.insert_str(place, &member);
    Some(text)
}

/// The text without the member at this path. Empty if nothing else was in it.
pub(super) fn without(text: &str, path: &[JsonStep<'_>]) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let (step, above) = path.split_last()?;
    let container = document.container(above)?;
    let at = document.position(above, *step)?;
    let member = container.members[at].clone();
    let is_alone = container.members.len() == 1;
    // In an empty container, the member was put on the line of the bracket, after one space.
    let was_empty = is_alone && text[container.open..member.start] == *" ";
    match above {
        [] if is_alone && !was_empty && !document.has_comments => return Some(String::new()),
        [_, ..] if is_alone && !was_empty => return without(text, above),
        _ => {}
    }
    let next = container.members.get(at + 1);
    let comma = match at.checked_sub(1).filter(|_| next.is_none()) {
        // A comma after the last member was there before.
        Some(before) => document.comma_in(container.members[before].end..member.start),
        None => document.comma_in(member.end..next.map_or(container.close, |next| next.start)),
    };
    // With the white space in front, unless a comment is before it.
    let before = text[..member.start].trim_end().len();
    let follows_directly = before == container.open || document.commas.contains(&(before - 1));
    let start = if follows_directly { before } else { member.start };
    let end = member.end + usize::from(was_empty && text[member.end..].starts_with(' '));
    let member = start..end;
    let [first, second] = match comma.map(|comma| comma..comma + 1) {
        Some(comma) if comma.start < member.start => [comma, member],
        Some(comma) => [member, comma],
        None => [member.clone(), member.end..member.end],
    };
    Some([&text[..first.start], &text[first.end..second.start], &text[second.end..]].concat())
}

/// The JSON text of a value, with this indentation.
fn pretty(value: &Value, unit: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    // Writing a value to memory does not fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter));
    String::from_utf8(bytes).unwrap_or_default()
}

/// A text, and where its values and commas are.
struct Document<'t> {
    text: &'t str,
    root: Option<ast::Value<'t>>,
    commas: Vec<usize>,
    has_comments: bool,
}

/// An object or an array.
struct Container {
    /// After the opening bracket.
    open: usize,
    /// Before the closing bracket.
    close: usize,
    members: Vec<Range<usize>>,
}

impl<'t> Document<'t> {
    fn parse(text: &'t str) -> Result<Self, String> {
        let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
        // What agent programs allow in their configuration.
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let parsed = parse_to_ast(text, &collect, &options)
            .map_err(|error| format!("not JSON (line {}: {})", error.line_display(), error.kind()))?;
        let (mut commas, mut has_comments) = (Vec::new(), false);
        for token in parsed.tokens.unwrap_or_default() {
            match token.token {
                Token::Comma => commas.push(token.range.start),
                Token::CommentLine(_) | Token::CommentBlock(_) => has_comments = true,
                _ => {}
            }
        }
        Ok(Self { text, root: parsed.value, commas, has_comments })
    }

    /// The value at a path.
    fn value(&self, path: &[JsonStep<'_>]) -> Option<&ast::Value<'t>> {
        let mut value = self.root.as_ref()?;
        for step in path {
            value = match (value, step) {
                // Programs take the last of several members with one name.
                (ast::Value::Object(object), JsonStep::Key(key)) => {
                    &object.properties.iter().rfind(|property| name(&property.name) == *key)?.value
                }
                (ast::Value::Array(array), JsonStep::At(at)) => array.elements.get(*at)?,
                _ => return None,
            };
        }
        Some(value)
    }

    fn container(&self, path: &[JsonStep<'_>]) -> Option<Container> {
        let value = self.value(path)?;
        let members = match value {
            ast::Value::Object(object) => object.properties.iter().map(range).collect(),
            ast::Value::Array(array) => array.elements.iter().map(range).collect(),
            _ => return None,
        };
        let Range { start, end } = range(value);
        Some(Container { open: start + 1, close: end - 1, members })
    }

    /// The number of a member in its container.
    fn position(&self, above: &[JsonStep<'_>], step: JsonStep<'_>) -> Option<usize> {
        match (self.value(above)?, step) {
            (ast::Value::Object(object), JsonStep::Key(key)) => {
                object.properties.iter().rposition(|property| name(&property.name) == key)
            }
            (ast::Value::Array(array), JsonStep::At(at)) => Some(at).filter(|at| *at < array.elements.len()),
            _ => None,
        }
    }

    /// The comma between two members, or behind the last one.
    fn comma_in(&self, range: Range<usize>) -> Option<usize> {
        self.commas.iter().copied().find(|comma| range.contains(comma))
    }

    /// The white space before this place, if nothing else is before it on its line.
    fn indentation(&self, place: usize) -> Option<&'t str> {
        let line = &self.text[self.text[..place].rfind('\n')? + 1..place];
        line.trim_matches([' ', '\t']).is_empty().then_some(line)
    }
}

fn range(of: &impl Ranged) -> Range<usize> {
    of.start()..of.end()
}

fn name<'n>(name: &'n ObjectPropName<'_>) -> &'n str {
    match name {
        ObjectPropName::String(name) => &name.value,
        ObjectPropName::Word(name) => name.value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Adds a member and removes it: the text in between, which must have the value, and the same bytes afterwards.
    #[track_caller]
    fn added(text: &str, path: &[JsonStep<'_>], name: Option<&str>, value: &Value) -> String {
        let with = with(text, path, name, value).unwrap_or_else(|| panic!("{text}"));
        let parsed = parse(&with).unwrap_or_else(|error| panic!("{error}: {with}"));
        let mut container = &parsed;
        for step in path {
            container = match step {
                JsonStep::Key(key) => &container[key],
                JsonStep::At(at) => &container[at],
            };
        }
        let (last, member) = match name {
            Some(name) => (JsonStep::Key(name), &container[name]),
            None => (
                JsonStep::At(container.as_array().unwrap().len() - 1),
                container.as_array().unwrap().last().unwrap(),
            ),
        };
        assert_eq!(member, value, "{with}");
        let path: Vec<JsonStep<'_>> = path.iter().copied().chain([last]).collect();
        assert_eq!(without(&with, &path).unwrap(), text, "{with}");
        with
    }

    #[test]
    fn a_member_gets_the_indentation_of_its_neighbours_and_comments_stay() {
        let text = "// mine\n{\n    \"a\": 1, // one\n    /* two */ \"b\": [] // three\n    // last\n}\n";
        assert_eq!(
            added(text, &[], Some("c"), &json!({"d": [1]})),
            "// mine\n{\n    \"a\": 1, // one\n    /* two */ \"b\": [],\n    \"c\": {\n        \"d\": [\n            1\n        ]\n    } // three\n    // last\n}\n"
        );
        assert_eq!(
            added("{\r\n\t\"a\": 1,\r\n}", &[], Some("b"), &json!([2])),
            "{\r\n\t\"a\": 1,\r\n\t\"b\": [\r\n\t\t2\r\n\t],\r\n}"
        );
        assert_eq!(added("{\"a\": 1}", &[], Some("b"), &json!({})), "{\"a\": 1, \"b\": {}}");
        assert_eq!(added("{}", &[], Some("b"), &json!(1)), "{ \"b\": 1 }");
    }

    #[test]
    fn every_layout_is_restored_byte_for_byte() {
        let layouts = [
            "{}",
            "{ }",
            "{\n}",
            "{\r\n}\r\n",
            "{ // c\n}",
            "{ /* c */ }",
            "{\n  // c\n}",
            "/* c */ {}",
            "{}  // c\n",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{ \"a\": 1 }",
            "{ \"a\": 1 , }",
            "{\"a\":1 /* c */}",
            "{\"a\":1 // c\n}",
            "{\n\"a\":1}",
            "{\n  \"a\": 1\n}",
            "{\n  \"a\": 1,\n}",
            "{\n  \"a\": 1 , // c\n\n}",
            "{\n\t\"a\": \"}{,\\\"\"\n}\n",
            "{\n  \"a\": 1 /* c\n */\n}",
            "{\n  \"a\": 1 /* c\n */}",
            "{\r\n  \"a\": 1, // c\r\n  // d\r\n}\r\n",
            "{ \"a\": 1\n}",
            "{\n  \"a\": 1\n  ,\n}",
            "{\n  \"a\": 1\n  , // c\n  \"b\": 2 }",
        ];
        let value = json!({"x": [{"y": "z"}], "w": []});
        for text in layouts {
            let with = added(text, &[], Some("tollgate"), &value);
            let both = added(&with, &[], Some("other"), &value);
            // Removed in the other order.
            let one = without(&both, &[JsonStep::Key("tollgate")]).unwrap();
            assert_eq!(without(&one, &[JsonStep::Key("other")]).unwrap(), text, "{both}");
            // The same layouts further in.
            for outer in ["{\"in\":@}", "{ \"in\": @, \"b\": 1 }", "{\n  \"a\": 1, // c\n  \"in\": @,\n}\n"] {
                added(&outer.replace('@', text), &[JsonStep::Key("in")], Some("tollgate"), &value);
            }
            let list = text.replace("\"a\":", "").replace("\"b\":", "");
            let list: String = list.replace('{', "[").replace('}', "]");
            if parse(&list).is_ok() {
                added(&format!("{{\"in\": {list}}}"), &[JsonStep::Key("in")], None, &value);
            }
        }
    }

    #[test]
    fn a_container_that_was_added_with_its_member_is_removed_with_it() {
        for text in ["{\"a\": 1}", "{\n  \"a\": 1\n}\n", "{}", "{\n  \"a\": {}, // c\n}\n"] {
            let with = with(text, &[], Some("servers"), &json!({"tollgate": {"b": [1]}})).unwrap();
            assert_eq!(
                without(&with, &[JsonStep::Key("servers"), JsonStep::Key("tollgate")]).unwrap(),
                text,
                "{with}"
            );
        }
        let own = "{\n  \"servers\": {\n    \"tollgate\": 1\n  }\n}\n";
        assert_eq!(without(own, &[JsonStep::Key("servers"), JsonStep::Key("tollgate")]).unwrap(), "");
        let commented = format!("// mine\n{own}");
        assert_eq!(
            without(&commented, &[JsonStep::Key("servers"), JsonStep::Key("tollgate")]).unwrap(),
            "// mine\n{\n}\n"
        );
    }

    #[test]
    fn what_no_program_accepts_is_an_error_with_its_line() {
        for text in ["{", "{a: 1}", "{\"a\": 1 \"b\": 2}", "{'a': 1}", "[1] [2]", &"[".repeat(100_000)] {
            assert!(parse(text).is_err());
        }
        assert!(parse("{\n  \"a\" 1\n}").unwrap_err().starts_with("not JSON (line 2: "));
        assert_eq!(parse("{\"a\": 1, // c\n}"), Ok(json!({"a": 1})));
        assert_eq!(parse(" // only a comment\n"), Ok(Value::Null));
    }

    #[test]
    fn mutated_files_are_restored_byte_for_byte() {
        let files = [
            "{\"mcpServers\": {\"a\": {\"command\": \"b\", \"args\": [\"c\", 1, null, true]}}}",
            "// mine\n{\n    \"hooks\": {\n        \"Stop\": [ /* c */ ], // d\n    },\n}\n",
            "{\r\n\t\"a\": {},\r\n\t\"b\": \"\\u00e9\\n\"\r\n}",
        ];
        tollgate_fuzz::fuzz("jsonc", &files, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let Ok(Value::Object(object)) = parse(&text) else { return };
            if !object.contains_key("tollgate") {
                added(&text, &[], Some("tollgate"), &json!({"a": [1]}));
            }
        });
    }
}
