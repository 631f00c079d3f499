//! Text on a terminal: colours, and tables that fit the width.
//!
//! Messages are made as plain text; what goes to a terminal is painted here, by the first words of each line. Text from
//! outside has no control characters any more (see `words`), so it cannot paint itself.

use std::os::fd::AsFd;

use crate::surroundings::Surroundings;

/// What a stream can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Canvas {
    /// The columns of the terminal. `None`: it is not a terminal, or its width is not known.
    pub(crate) width: Option<usize>,
    pub(crate) colours: bool,
}

impl Canvas {
    /// What this stream of the process can show.
    pub(crate) fn of(stream: impl AsFd) -> Self {
        let is_terminal = rustix::termios::isatty(&stream);
        let size = rustix::termios::tcgetwinsize(&stream).ok().filter(|_| is_terminal);
        Self {
            width: size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0),
            colours: Surroundings::wants_colours(is_terminal),
        }
    }

    /// The text with colours, if the stream has them.
    pub(crate) fn paint(self, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        text.split('\n').map(painted).collect::<Vec<_>>().join("\n")
    }

    /// The lines of a table, each cut to the width.
    pub(crate) fn fit(self, table: &str) -> String {
        let Some(width) = self.width else { return table.to_owned() };
        let cut = |line: &str| match line.char_indices().nth(width) {
            None => line.to_owned(),
            Some(_) => line.chars().take(width - 1).chain(['…']).collect(),
        };
        table.split('\n').map(cut).collect::<Vec<_>>().join("\n")
    }
}

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The first words of a line, and their colour.
const BEGINNINGS: [(&str, &str); 12] = [
    ("refused:", RED),
    ("error:", RED),
    ("problem", RED),
    ("warning", YELLOW),
    ("note:", YELLOW),
    ("ok ", GREEN),
    ("hint:", CYAN),
    ("Needs_Action ", BOLD),
    ("In_Progress ", BOLD),
    ("Pending_Approval ", BOLD),
    ("Approved ", BOLD),
    ("Rejected ", BOLD),
];

fn painted(line: &str) -> String {
    let text = line.trim_start_matches(' ');
    let indent = &line[..line.len() - text.len()];
    // A diff is indented by four spaces.
    let diff = match text.as_bytes().first() {
        Some(b'+') if indent.len() == 4 => Some(GREEN),
        Some(b'-') if indent.len() == 4 => Some(RED),
        Some(b'@') if indent.len() == 4 => Some(CYAN),
        _ => None,
    };
    if let Some(colour) = diff {
        return format!("{indent}{colour}{text}{PLAIN}");
    }
    let found = BEGINNINGS.iter().find(|(word, _)| indent.len() < 4 && text.starts_with(word));
    match found {
        Some((word, colour)) => format!("{indent}{colour}{word}{PLAIN}{}", &text[word.len()..]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_words_of_a_line_are_painted() {
        let canvas = Canvas { width: None, colours: true };
        for (plain, expected) in [
            ("refused: `a` is stale", "\x1b[31mrefused:\x1b[0m `a` is stale"),
            ("  hint: read it", "  \x1b[36mhint:\x1b[0m read it"),
            ("    +one", "    \x1b[32m+one\x1b[0m"),
            ("    -one", "    \x1b[31m-one\x1b[0m"),
            ("ok       state", "\x1b[32mok \x1b[0m      state"),
            ("wrote `a`, which says refused: no", "wrote `a`, which says refused: no"),
            ("-one", "-one"),
            ("", ""),
        ] {
            assert_eq!(canvas.paint(plain), expected);
            assert_eq!(Canvas { colours: false, ..canvas }.paint(plain), plain);
        }
    }

    #[test]
    fn the_lines_of_a_table_fit_the_width() {
        let canvas = |width| Canvas { width, colours: false };
        assert_eq!(canvas(Some(5)).fit("abcdef\nabcde\näöüßé-"), "abcd…\nabcde\näöüß…");
        assert_eq!(canvas(None).fit("abcdef"), "abcdef");
    }
}
