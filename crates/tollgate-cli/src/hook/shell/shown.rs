//! How much of a file the output of a command shows.

use tollgate::turn::Extent;

/// How much of a file an output shows. It shows the whole file if all lines appear in order, perhaps with something before or
/// after each (a line number, a file name). Otherwise it shows a part, if there is any output.
pub(crate) fn shown_in(output: &str, content: &str) -> Option<Extent> {
    let mut printed = output.lines();
    let whole = content.lines().all(|line| {
        let line = line.trim_end();
        printed.any(|printed| if line.is_empty() { is_nearly_empty(printed) } else { printed.contains(line) })
    });
    match whole {
        true => Some(Extent::Whole),
        false => (!output.trim().is_empty()).then_some(Extent::Part),
    }
}

/// An empty line, or the number of one.
fn is_nearly_empty(line: &str) -> bool {
    line.chars().all(|c| c.is_whitespace() || c.is_ascii_digit() || ":|-".contains(c))
}
