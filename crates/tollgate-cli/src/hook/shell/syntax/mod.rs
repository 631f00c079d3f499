//! The part of the language of shells that decides which simple commands a text has: quotes, redirections, pipes, lists, groups,
//! branches and loops, here-documents and substitutions.
//!
//! A variable has no value here, except `HOME`. What is not understood ends the parsing: [`Unclear`].

mod words;

use std::path::Path;

use tollgate::turn::Extent;

use super::word::Word;

/// The deepest nesting, because the stack is finite. People and models nest less than ten groups and substitutions, and each
/// counts two or three times.
const DEPTH: usize = 100;

/// The largest number of words.
const WORDS: usize = 50_000;

/// The text is not what this module understands, or too long, or too deeply nested.
#[derive(Debug)]
pub(super) struct Unclear;

/// Commands in a row.
pub(super) type List = Vec<Pipeline>;

/// `a | b | c`.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) join: Join,
    pub(super) commands: Vec<Command>,
}

/// What is in front of a command in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// Nothing, `;`, `&` or a new line.
    Always,
    /// `&&`
    And,
    /// `||`
    Or,
}

/// One command, or several with a common redirection.
#[derive(Debug, Default)]
pub(super) struct Command {
    /// The words of a simple command, or the name and the values of a loop.
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
    /// The commands in its substitutions.
    pub(super) substitutions: Vec<List>,
    pub(super) group: Option<Group>,
}

/// The commands in brackets, in a branch, in a loop or in a function.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: GroupKind,
    pub(super) body: List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// `{ ...; }`
    Plain,
    /// `( ... )`
    Subshell,
    /// They may or may not run.
    Branch,
}

#[derive(Debug)]
pub(super) enum Redirect {
    Input(Word),
    /// `hides`: it is the standard output, which then does not go to the agent.
    Output {
        target: Word,
        extent: Extent,
        hides: bool,
    },
    /// `>&2`, `2>&1`, `<&3`
    Descriptor {
        hides: bool,
    },
    /// A here-document or a here-string; `None` if its text is not known.
    Text(Option<String>),
}

/// Parses a whole text.
pub(super) fn parse(text: &str, home: Option<&Path>) -> Result<List, Unclear> {
    let mut parser = Parser { home, words: WORDS, ..Parser::of(text) };
    let list = parser.list(&[])?;
    if parser.rest().is_empty() { Ok(list) } else { Err(Unclear) }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    home: Option<&'t Path>,
    depth: usize,
    /// The number of words that may still follow.
    words: usize,
    /// The end of the line on which a here-document begins, and where the text continues behind the document.
    document: Option<(usize, usize)>,
    /// The substitutions of the current command.
    substitutions: Vec<List>,
}

/// Words that begin a group, and those that end it.
const GROUPS: [(&str, &str); 8] = [
    ("{", "}"),
    ("(", ")"),
    ("if", "fi"),
    ("while", "done"),
    ("until", "done"),
    ("for", "done"),
    ("select", "done"),
    ("case", "esac"),
];

/// Words between the commands of a group, or in front of a command.
const BETWEEN: [&str; 8] = ["then", "elif", "else", "do", "!", "time -p", "time", "coproc"];

impl<'t> Parser<'t> {
    fn of(text: &'t str) -> Self {
        let (substitutions, document) = (Vec::new(), None);
        Self { text, at: 0, home: None, depth: 0, words: 0, document, substitutions }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Passes this text, if it is next.
    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Passes a word of the language, if it is next.
    fn keyword(&mut self, word: &str) -> bool {
        let after = self.rest().strip_prefix(word).and_then(|after| after.chars().next());
        let is_operator = word.ends_with(['(', ')', ';', '&']);
        let is_whole = is_operator || after.is_none_or(|c| c.is_whitespace() || ";&|()<>".contains(c));
        is_whole && self.eat(word)
    }

    /// Passes white space and comments, but no new line.
    fn blanks(&mut self) {
        loop {
            if self.rest().starts_with([' ', '\t', '\r']) {
                self.at += 1;
            } else if !self.eat("\\\n") {
                break;
            }
        }
        let is_start =
            self.at == 0 || self.text[..self.at].ends_with([' ', '\t', '\r', '\n', ';', '&', '|', '(', ')']);
        if is_start && self.rest().starts_with('#') {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Passes the end of a line, and the here-documents that begin behind it.
    fn line_end(&mut self) -> Result<bool, Unclear> {
        let at = self.at;
        if !self.eat("\n") {
            return Ok(false);
        }
        match self.document.take() {
            Some((line, behind)) if line == at => self.at = behind,
            // The line went on in quotes.
            Some((line, _)) if line < at => return Err(Unclear),
            later => self.document = later,
        }
        Ok(true)
    }

    fn deeper(&mut self) -> Result<(), Unclear> {
        self.depth += 1;
        if self.depth > DEPTH { Err(Unclear) } else { Ok(()) }
    }

    /// The commands up to one of these words. The word is passed.
    fn list(&mut self, ends: &[&str]) -> Result<List, Unclear> {
        self.deeper()?;
        let (mut list, mut join) = (List::new(), Join::Always);
        loop {
            self.blanks();
            let is_end = ends.iter().any(|end| self.keyword(end));
            if is_end || ends.is_empty() && self.rest().is_empty() {
                self.depth -= 1;
                return Ok(list);
            }
            if self.rest().is_empty() {
                return Err(Unclear);
            }
            if self.line_end()? || self.eat(";") {
                continue;
            }
            if self.eat("&&") {
                join = Join::And;
            } else if self.eat("||") {
                join = Join::Or;
            } else if self.eat("&") {
                join = Join::Always;
            } else if !BETWEEN.iter().any(|word| self.keyword(word)) {
                let commands = self.pipeline()?;
                list.push(Pipeline { join, commands });
                join = Join::Always;
            }
        }
    }

    fn pipeline(&mut self) -> Result<Vec<Command>, Unclear> {
        let mut commands = vec![self.command()?];
        loop {
            self.blanks();
            if self.rest().starts_with("||") || !(self.eat("|&") || self.eat("|")) {
                return Ok(commands);
            }
            loop {
                self.blanks();
                if !(self.line_end()? || BETWEEN.iter().any(|word| self.keyword(word))) {
                    break;
                }
            }
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Result<Command, Unclear> {
        self.deeper()?;
        let outer = std::mem::take(&mut self.substitutions);
        let mut command = Command::default();
        if self.eat("((") {
            self.arithmetic()?;
        } else if let Some((start, end)) = GROUPS.iter().find(|(start, _)| self.keyword(start)) {
            if ["for", "select"].contains(start) {
                command.words = self.loop_words()?;
            }
            let kind = match *start {
                "{" => GroupKind::Plain,
                "(" => GroupKind::Subshell,
                _ => GroupKind::Branch,
            };
            let body = if *start == "case" { self.cases()? } else { self.list(&[end])? };
            command.group = Some(Group { kind, body });
        } else if self.keyword("function") {
            self.blanks();
            self.word()?;
            self.blanks();
            self.eat("(");
            command.group = Some(self.function()?);
        } else {
            self.simple(&mut command)?;
        }
        while command.group.is_some() {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => command.redirects.push(redirect),
                None => break,
            }
        }
        command.substitutions.append(&mut self.substitutions);
        self.substitutions = outer;
        self.depth -= 1;
        Ok(command)
    }

    /// The rest of a function behind its first bracket. The body may run at any time.
    fn function(&mut self) -> Result<Group, Unclear> {
        self.blanks();
        self.eat(")");
        self.line_ends()?;
        let body = vec![Pipeline { join: Join::Always, commands: vec![self.command()?] }];
        Ok(Group { kind: GroupKind::Branch, body })
    }

    /// The words between `for` and `do`.
    fn loop_words(&mut self) -> Result<Vec<Word>, Unclear> {
        self.blanks();
        if self.eat("((") {
            self.arithmetic()?;
        }
        let mut words = Vec::new();
        loop {
            self.blanks();
            match self.word()? {
                Some(word) => words.push(word),
                None => return Ok(words),
            }
        }
    }

    /// `WORD in PATTERN) ... ;; esac`
    fn cases(&mut self) -> Result<List, Unclear> {
        self.blanks();
        self.word()?;
        let mut body = List::new();
        self.line_ends()?;
        if !self.keyword("in") {
            return Err(Unclear);
        }
        loop {
            self.line_ends()?;
            if self.keyword("esac") {
                return Ok(body);
            }
            self.eat("(");
            loop {
                self.blanks();
                if self.eat(")") {
                    break;
                }
                if !self.eat("|") && self.word()?.is_none() {
                    return Err(Unclear);
                }
            }
            // The list ends at `;;`, or with the whole group.
            let mut list = self.list(&[";;&", ";;", ";&", "esac"])?;
            let is_last = self.text[..self.at].ends_with("esac");
            body.append(&mut list);
            if is_last {
                return Ok(body);
            }
        }
    }

    fn line_ends(&mut self) -> Result<(), Unclear> {
        loop {
            self.blanks();
            if !self.line_end()? {
                return Ok(());
            }
        }
    }

    /// A simple command, or the definition of a function.
    fn simple(&mut self, command: &mut Command) -> Result<(), Unclear> {
        loop {
            self.blanks();
            if let Some(redirect) = self.redirect()? {
                command.redirects.push(redirect);
                continue;
            }
            if command.words.len() == 1 && self.eat("(") {
                // `name() ...`
                command.words.clear();
                command.group = Some(self.function()?);
                return Ok(());
            }
            match self.word()? {
                Some(word) if command.words.is_empty() && word.raw == "[[" => return self.test(),
                Some(word) => command.words.push(word),
                None => {
                    let is_empty = command.words.is_empty() && command.redirects.is_empty();
                    let is_misplaced =
                        self.rest().starts_with('(') || self.rest().starts_with(')') && is_empty;
                    return if is_misplaced { Err(Unclear) } else { Ok(()) };
                }
            }
        }
    }

    /// The rest of `[[ ... ]]`, in which `<`, `>`, `&&` and brackets are no operators of the shell.
    fn test(&mut self) -> Result<(), Unclear> {
        loop {
            self.blanks();
            match self.word()? {
                Some(word) if word.raw == "]]" => return Ok(()),
                Some(_) => {}
                None => drop(self.next().ok_or(Unclear)?),
            }
        }
    }

    fn redirect(&mut self) -> Result<Option<Redirect>, Unclear> {
        let digits = self.rest().chars().take_while(char::is_ascii_digit).count();
        let (descriptor, behind) = self.rest().split_at(digits);
        if !behind.starts_with(['<', '>']) && !behind.starts_with("&>")
            || behind.starts_with("<(")
            || behind.starts_with(">(")
        {
            return Ok(None);
        }
        let is_output = descriptor.is_empty() || descriptor == "1";
        self.at += digits;
        let operators = ["<<<", "<<-", "<<", "<>", "<&", "<", "&>>", "&>", ">>", ">|", ">&", ">"];
        let Some(operator) = operators.into_iter().find(|operator| self.eat(operator)) else {
            return Err(Unclear);
        };
        self.blanks();
        let target = self.word()?.ok_or(Unclear)?;
        let is_descriptor = target.as_text().is_some_and(|text| text == "-" || text.parse::<u32>().is_ok());
        Ok(Some(match operator {
            "<<" | "<<-" => Redirect::Text(self.here_document(&target, operator == "<<-")?),
            // A shell adds a new line.
            "<<<" => Redirect::Text(target.value.map(|text| text + "\n")),
            "<" => Redirect::Input(target),
            "<&" => Redirect::Descriptor { hides: false },
            ">&" if is_descriptor => Redirect::Descriptor { hides: is_output },
            _ => {
                let appends = operator.contains(">>") || operator == "<>";
                let extent = if appends { Extent::Part } else { Extent::Whole };
                Redirect::Output { target, extent, hides: is_output }
            }
        }))
    }
}
