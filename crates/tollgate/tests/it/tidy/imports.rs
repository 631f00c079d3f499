//! Which file of a crate imports which, read from the text of its sources, and a search for cycles among them.
//!
//! An import is any path that leads to another file of the crate, in a `use` or in the middle of code. A name that a file only
//! re-exports counts as an import of the file that defines it. Code under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The path of a module inside its crate: `["words", "text"]`.
type Module = Vec<String>;

/// One file, as far as its paths matter.
struct Source {
    name: String,
    /// Names that a `use` brings in, and the path of each, still relative to the module.
    bound: BTreeMap<String, Vec<String>>,
    /// Every path in the file; one that ends with `*` is a glob.
    paths: Vec<Vec<String>>,
    /// Names of the items that the file defines.
    defines: BTreeSet<String>,
}

/// A cycle of imports among the files of this folder, as `a.rs -> b.rs -> a.rs`.
pub(super) fn cycle(folder: &Path) -> Option<String> {
    let mut found = Vec::new();
    super::files(folder, "rs", &mut found);
    let read = |path: std::path::PathBuf| {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    cycle_in(found.into_iter().map(read).collect())
}

fn cycle_in(texts: Vec<(String, String)>) -> Option<String> {
    let mut sources = BTreeMap::new();
    let mut only_for_tests = Vec::new();
    for (name, text) in texts {
        let module = module_of(&name);
        let (tokens, tests) = without_tests(tokens(&text));
        only_for_tests.extend(tests.into_iter().map(|name| [&module[..], &[name]].concat()));
        sources.insert(module, Source::new(name, &tokens));
    }
    sources.retain(|module, _| !only_for_tests.iter().any(|tests| module.starts_with(tests)));
    let mut imports: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (module, source) in &sources {
        let targets = source.paths.iter().filter_map(|path| target(&sources, module, path, 0));
        imports.insert(module, targets.filter(|target| *target != module).collect());
    }
    // A file without imports is in no cycle, and neither is one that imports only such files.
    while let Some(free) = imports.iter().find(|(_, targets)| targets.is_empty()).map(|(module, _)| *module) {
        imports.remove(free);
        for targets in imports.values_mut() {
            targets.remove(free);
        }
    }
    let mut way = vec![*imports.keys().next()?];
    loop {
        let next = *imports[way[way.len() - 1]].first().unwrap();
        let start = way.iter().position(|module| *module == next);
        way.push(next);
        if let Some(start) = start {
            let names: Vec<_> = way[start..].iter().map(|module| sources[*module].name.as_str()).collect();
            return Some(names.join(" -> "));
        }
    }
}

/// The module whose file a path leads to, if that is in the crate.
fn target<'s>(
    sources: &'s BTreeMap<Module, Source>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<&'s Module> {
    let (first, mut rest) = path.split_first()?;
    let mut place = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name if sources.contains_key(&child(module, name)) => child(module, name),
        name => {
            let bound = sources[module].bound.get(name).filter(|bound| bound[0] != *name && depth < 20)?;
            return target(sources, module, &[bound, rest].concat(), depth + 1);
        }
    };
    while let Some((name, after)) = rest.split_first() {
        match name.as_str() {
            "super" => drop(place.pop()),
            name if sources.contains_key(&child(&place, name)) => place.push(name.to_owned()),
            _ => break,
        }
        rest = after;
    }
    let (place, source) = sources.get_key_value(&place)?;
    let [item, ..] = rest else {
        // A `use` of a whole module imports what its names are used for, elsewhere in the file.
        return None;
    };
    if source.defines.contains(item) || depth > 20 {
        return Some(place);
    }
    let again = |path: &[String]| target(sources, place, path, depth + 1);
    if let Some(bound) = source.bound.get(item) {
        return again(bound).or(Some(place));
    }
    let globs = source.paths.iter().filter(|path| path.last().is_some_and(|last| last == "*"));
    let mut behind =
        globs.filter_map(|glob| again(&[&glob[..glob.len() - 1], std::slice::from_ref(item)].concat()));
    behind.find(|found| sources[*found].defines.contains(item)).or(Some(place))
}

fn child(module: &Module, name: &str) -> Module {
    [&module[..], &[name.to_owned()]].concat()
}

/// `words/mod.rs` is `words`, `words/text.rs` is `words::text`, and `main.rs` is the crate itself.
fn module_of(file: &str) -> Module {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "main" || path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

impl Source {
    fn new(name: String, tokens: &[String]) -> Self {
        let mut source = Self { name, bound: BTreeMap::new(), paths: Vec::new(), defines: BTreeSet::new() };
        let mut at = 0;
        while at < tokens.len() {
            let token = tokens[at].as_str();
            at += 1;
            match token {
                // Not `impl Trait + use<'a>`, which imports nothing.
                "use" if tokens.get(at).is_none_or(|next| next != "<") => at = source.tree(tokens, at, &[]),
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                | "macro_rules" => {
                    source
                        .defines
                        .extend(tokens[at..].iter().take(2).filter(|token| is_name(token)).cloned());
                }
                name if is_name(name) && tokens.get(at).is_some_and(|next| next == "::") => {
                    let mut path = vec![name.to_owned()];
                    while tokens.get(at).is_some_and(|next| next == "::")
                        && tokens.get(at + 1).is_some_and(|next| is_name(next))
                    {
                        path.push(tokens[at + 1].clone());
                        at += 2;
                    }
                    source.paths.push(path);
                }
                _ => {}
            }
        }
        source
    }

    /// Reads what follows `use`, or one branch of it. Says where it ends.
    fn tree(&mut self, tokens: &[String], mut at: usize, before: &[String]) -> usize {
        let mut path = before.to_vec();
        while let Some(token) = tokens.get(at) {
            match token.as_str() {
                "::" => at += 1,
                "{" => {
                    at += 1;
                    while tokens.get(at).is_some_and(|token| token != "}") {
                        at = self.tree(tokens, at, &path);
                        at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                    }
                    return at + 1;
                }
                "as" => {
                    self.bind(path, tokens[at + 1].clone());
                    return at + 2;
                }
                "," | "}" | ";" => break,
                part => {
                    path.push(part.to_owned());
                    at += 1;
                }
            }
        }
        // `use a::{self}` brings in `a`.
        path.pop_if(|last| last == "self" && !before.is_empty());
        if let Some(last) = path.last().cloned() {
            self.bind(path, last);
        }
        at
    }

    fn bind(&mut self, path: Vec<String>, name: String) {
        self.bound.insert(name, path.clone());
        self.paths.push(path);
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens without those of items under `#[cfg(test)]`, and the modules that are declared there.
fn without_tests(tokens: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if !tokens[at..].iter().take(7).eq(["#", "[", "cfg", "(", "test", ")", "]"]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let (start, mut open) = (at + 7, 0);
        at = start;
        while at < tokens.len() {
            match tokens[at].as_str() {
                "{" => open += 1,
                "}" => open -= 1,
                _ => {}
            }
            at += 1;
            if open == 0 && matches!(tokens[at - 1].as_str(), "}" | ";") {
                break;
            }
        }
        let item = &tokens[start..at];
        modules.extend(item.iter().position(|token| token == "mod").map(|mark| item[mark + 1].clone()));
    }
    (kept, modules)
}

/// The words and signs of a source, without comments and texts.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let find = |from: usize, what: &str| {
        let what: Vec<char> = what.chars().collect();
        (from..text.len()).find(|at| text[*at..].starts_with(&what)).map_or(text.len(), |at| at + what.len())
    };
    while at < text.len() {
        let next = text.get(at + 1).copied().unwrap_or(' ');
        match text[at] {
            '/' if next == '/' => at = find(at, "\n"),
            '/' if next == '*' => at = find(at, "*/"),
            '"' => {
                at += 1;
                while at < text.len() && text[at] != '"' {
                    at += if text[at] == '\\' { 2 } else { 1 };
                }
                at += 1;
            }
            // A letter, or the name of a lifetime.
            '\'' if next == '\\' => at = find(at + 3, "'"),
            '\'' if text.get(at + 2) == Some(&'\'') => at += 3,
            'r' if next == '"' || next == '#' && matches!(text.get(at + 2), Some('#' | '"')) => {
                let marks = text[at + 1..].iter().take_while(|c| **c == '#').count();
                at = find(at + marks + 2, &format!("\"{}", "#".repeat(marks)));
            }
            ':' if next == ':' => {
                tokens.push("::".into());
                at += 2;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let word: String =
                    text[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                at += word.chars().count();
                tokens.push(word);
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.into());
                }
                at += 1;
            }
        }
    }
    tokens
}

#[test]
fn cycles_are_found_wherever_an_import_is_written() {
    let main = "mod a; mod b { } use a::run; fn main() { run() }";
    let found = |a: &str, b: &str| {
        let files = [("main.rs", main), ("a.rs", a), ("b/mod.rs", b), ("b/c.rs", "pub struct C;")];
        cycle_in(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    };
    let to_b = "pub struct A; pub fn run() { crate::b::go(\"crate::x\"); }";
    for (a, b) in [
        (to_b, "use crate::a::A; pub fn go(_: A) {}"),
        (to_b, "pub fn go() { crate::a::run(); }"),
        (to_b, "use super::a; pub fn go() { a::run() }"),
        (
            "use crate::{b::{self as bee, c}}; pub fn run() { bee::go::<'a', c::C>() }",
            "use crate::a::*; pub fn go() {}",
        ),
    ] {
        assert_eq!(found(a, b).as_deref(), Some("a.rs -> b/mod.rs -> a.rs"), "{a} {b}");
    }
    for (a, b) in [
        (to_b, "pub fn go() {} // crate::a::run"),
        (to_b, "pub fn go() -> impl Sized + use<'a> { x; }"),
        (to_b, "pub fn go() { r#\"\" crate::a::run\"#; '\\''; }"),
        (to_b, "pub fn go() {} #[cfg(test)] mod tests { use crate::a::run; }"),
        // A name that `b` only hands on is imported from `c`.
        ("use crate::b::C;", "pub use c::C; fn go() { crate::a::run(); }"),
    ] {
        assert_eq!(found(a, b), None, "{a} {b}");
    }
}
