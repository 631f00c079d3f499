//! Three texts beside each other, line by line: what an agent had read, what was on disk, and what it wanted to write. Pure.
//!
//! Lines that neither side changed are the same in all three panes, and only a few of them around each change are shown.
//! In a changed line, the words that differ are marked.

use std::ops::Range;
use std::time::{Duration, Instant};

use maud::{Markup, html};
use similar::{Algorithm, ChangeTag, DiffOp, TextDiff, capture_diff_slices_deadline};

use super::text::SafeText;

/// The number of unchanged lines around a change.
const AROUND: usize = 3;

/// The number of rows that are shown. A person does not read more on a page.
const ROWS: usize = 400;

/// The time for comparing two texts. After it, the comparison is coarser.
const TIME: Duration = Duration::from_millis(200);

/// One line in one pane.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PaneLine<'t> {
    number: usize,
    /// Whether one of the other texts has another line here.
    is_changed: bool,
    /// The parts of the text, and whether they are marked.
    parts: Vec<(&'t str, bool)>,
}

/// One place, in each of the three texts.
type PaneRow<'t> = [Option<PaneLine<'t>>; 3];

/// What is shown.
#[derive(Debug, PartialEq, Eq)]
enum PaneItem<'t> {
    Row(PaneRow<'t>),
    /// This many unchanged lines are left out.
    Gap(usize),
    /// There is more than can be shown.
    Cut,
}

/// Three texts beside each other.
pub(super) struct Panes<'t>(Vec<PaneItem<'t>>);

impl<'t> Panes<'t> {
    pub(super) fn of(read: &'t str, disk: &'t str, wanted: &'t str) -> Self {
        let texts = [read, disk, wanted].map(|text| text.lines().collect::<Vec<_>>());
        let rows = rows(&texts);
        let is_changed =
            |row: &PaneRow<'_>| row.iter().any(|line| line.as_ref().is_none_or(|line| line.is_changed));
        let changed: Vec<usize> = (0..rows.len()).filter(|index| is_changed(&rows[*index])).collect();
        let is_near = |index: usize| {
            let next = changed.partition_point(|at| *at < index.saturating_sub(AROUND));
            changed.get(next).is_some_and(|at| *at <= index + AROUND)
        };
        let (mut shown, mut left_out) = (Vec::new(), 0);
        for (index, row) in rows.into_iter().enumerate() {
            if !is_near(index) {
                left_out += 1;
                continue;
            }
            if left_out > 0 {
                shown.push(PaneItem::Gap(std::mem::take(&mut left_out)));
            }
            if shown.len() >= ROWS {
                shown.push(PaneItem::Cut);
                return Self(shown);
            }
            shown.push(PaneItem::Row(row));
        }
        if left_out > 0 {
            shown.push(PaneItem::Gap(left_out));
        }
        Self(shown)
    }

    /// A table with these headings.
    pub(super) fn show(&self, label: &str, headings: [Markup; 3]) -> Markup {
        html! {
            div.panes tabindex="0" role="region" aria-label=(label) {
                table {
                    colgroup { @for _ in 0..3 { col.no; col; } }
                    thead { tr { @for heading in headings { th colspan="2" scope="col" { (heading) } } } }
                    tbody {
                        @for shown in &self.0 {
                            @match shown {
                                PaneItem::Row(row) => tr { @for (index, line) in row.iter().enumerate() { (cells(line.as_ref(), index)) } },
                                PaneItem::Gap(lines) => tr.gap { td colspan="6" { "… " (lines) " unchanged" } },
                                PaneItem::Cut => tr.gap { td colspan="6" { "… the rest is too long to show" } },
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cells(line: Option<&PaneLine<'_>>, pane: usize) -> Markup {
    html! {
        @match line {
            Some(line) => {
                td.no { (line.number) }
                td class=[line.is_changed.then_some(if pane == 0 { "cut" } else { "add" })] {
                    @for (part, is_marked) in &line.parts {
                        @match (is_marked, pane) {
                            (false, _) => (SafeText(part)),
                            (true, 0) => del { (SafeText(part)) },
                            (true, _) => ins { (SafeText(part)) },
                        }
                    }
                }
            },
            None => { td.no {} td.void {} },
        }
    }
}

/// All rows.
fn rows<'t>(texts: &[Vec<&'t str>; 3]) -> Vec<PaneRow<'t>> {
    let [read, disk, wanted] = texts;
    let ops = [disk, wanted].map(|other| {
        capture_diff_slices_deadline(Algorithm::Myers, read, other, Some(Instant::now() + TIME))
    });
    let mut rows = Vec::new();
    let mut at = [0; 3];
    let same = |at: [usize; 3]| {
        let line = |pane: usize| PaneLine {
            number: at[pane] + 1,
            is_changed: false,
            parts: vec![(read[at[0]], false)],
        };
        [Some(line(0)), Some(line(1)), Some(line(2))]
    };
    for hunk in hunks(&ops) {
        while at[0] < hunk.start {
            rows.push(same(at));
            at = at.map(|line| line + 1);
        }
        let end = [hunk.end, after(&ops[0], hunk.end, disk.len()), after(&ops[1], hunk.end, wanted.len())];
        for row in 0..(0..3).map(|pane| end[pane] - at[pane]).max().unwrap_or(0) {
            let line = |pane: usize| {
                let number = at[pane] + row;
                (number < end[pane]).then(|| (number, texts[pane][number]))
            };
            rows.push(compared([line(0), line(1), line(2)]));
        }
        at = end;
    }
    while at[0] < read.len() {
        rows.push(same(at));
        at = at.map(|line| line + 1);
    }
    rows
}

/// The ranges of what was read that at least one of the others has changed. Ranges that touch are one.
fn hunks(ops: &[Vec<DiffOp>; 2]) -> Vec<Range<usize>> {
    let changes = ops.iter().flatten().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let mut ranges: Vec<Range<usize>> = changes.map(DiffOp::old_range).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match hunks.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => hunks.push(range),
        }
    }
    hunks
}

/// The place in the other text after everything that comes before this place in what was read, insertions included.
fn after(ops: &[DiffOp], place: usize, len: usize) -> usize {
    let next = ops.iter().find(|op| op.old_range().end > place);
    next.map_or(len, |op| op.new_range().start + place.saturating_sub(op.old_range().start))
}

/// One row of a hunk. The words that differ from what was read are marked; in what was read, those that either side lacks.
fn compared<'t>(lines: [Option<(usize, &'t str)>; 3]) -> PaneRow<'t> {
    let [read, disk, wanted] = lines;
    let against = |other: Option<(usize, &'t str)>| {
        let changed = match (read, other) {
            (Some((_, read)), Some((_, other))) => read != other,
            _ => true,
        };
        let words = match (read, other) {
            (Some((_, read)), Some((_, other))) if changed => Some(words(read, other)),
            _ => None,
        };
        (changed, words)
    };
    let (disk_changed, disk_words) = against(disk);
    let (wanted_changed, wanted_words) = against(wanted);
    let pane = |line: Option<(usize, &'t str)>, is_changed, marks: Vec<Range<usize>>| {
        line.map(|(number, text)| PaneLine { number: number + 1, is_changed, parts: parts(text, &marks) })
    };
    let mut old = Vec::new();
    let mut new = |words: Option<[Vec<Range<usize>>; 2]>| {
        let [from, to] = words.unwrap_or_default();
        old.extend(from);
        to
    };
    let (in_disk, in_wanted) = (new(disk_words), new(wanted_words));
    [
        pane(read, disk_changed || wanted_changed, old),
        pane(disk, disk_changed, in_disk),
        pane(wanted, wanted_changed, in_wanted),
    ]
}

/// The ranges that differ in each of two lines. Lines that have almost nothing in common are not compared.
fn words(one: &str, other: &str) -> [Vec<Range<usize>>; 2] {
    let diff = TextDiff::configure().timeout(TIME).diff_words(one, other);
    if diff.ratio() < 0.3 {
        return [Vec::new(), Vec::new()];
    }
    let (mut marks, mut at) = ([Vec::new(), Vec::new()], [0, 0]);
    for change in diff.iter_all_changes() {
        let len = change.value().len();
        match change.tag() {
            ChangeTag::Equal => at = at.map(|at| at + len),
            ChangeTag::Delete => {
                marks[0].push(at[0]..at[0] + len);
                at[0] += len;
            }
            ChangeTag::Insert => {
                marks[1].push(at[1]..at[1] + len);
                at[1] += len;
            }
        }
    }
    marks
}

/// The text in parts, marked or not.
fn parts<'t>(text: &'t str, marks: &[Range<usize>]) -> Vec<(&'t str, bool)> {
    let is_marked = |at: usize| marks.iter().any(|mark| mark.contains(&at));
    let mut parts: Vec<(Range<usize>, bool)> = Vec::new();
    for (at, c) in text.char_indices() {
        let (end, marked) = (at + c.len_utf8(), is_marked(at));
        match parts.last_mut() {
            Some((range, last)) if *last == marked => range.end = end,
            _ => parts.push((at..end, marked)),
        }
    }
    parts.into_iter().map(|(range, marked)| (&text[range], marked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One row as text: numbers, and marked words in brackets.
    fn text(shown: &PaneItem<'_>) -> String {
        let line = |line: &Option<PaneLine<'_>>| match line {
            None => "-".to_owned(),
            Some(line) => {
                let parts = line
                    .parts
                    .iter()
                    .map(|(part, marked)| if *marked { format!("[{part}]") } else { (*part).to_owned() });
                format!(
                    "{}{} {}",
                    line.number,
                    if line.is_changed { "!" } else { "" },
                    parts.collect::<String>()
                )
            }
        };
        match shown {
            PaneItem::Row(row) => row.iter().map(line).collect::<Vec<_>>().join(" | "),
            PaneItem::Gap(lines) => format!("… {lines}"),
            PaneItem::Cut => "cut".to_owned(),
        }
    }

    fn panes(read: &str, disk: &str, wanted: &str) -> Vec<String> {
        Panes::of(read, disk, wanted).0.iter().map(text).collect()
    }

    #[test]
    fn both_changes_stand_beside_what_was_read_and_their_words_are_marked() {
        let read = "a\nlet x = one;\nb\n";
        assert_eq!(
            panes(read, "a\nlet x = two;\nb\n", "a\nlet y = one;\nb\nc\n"),
            [
                "1 a | 1 a | 1 a",
                "2! let [x] = [one;] | 2! let x = [two;] | 2! let [y] = one;",
                "3 b | 3 b | 3 b",
                "- | - | 4! c",
            ]
        );
    }

    #[test]
    fn insertions_and_deletions_keep_the_rest_aligned() {
        assert_eq!(
            panes("a\nb\nc\nd\n", "new\na\nb\nc\nd\n", "a\nb\nd\n"),
            ["- | 1! new | -", "1 a | 2 a | 1 a", "2 b | 3 b | 2 b", "3! c | 4 c | -", "4 d | 5 d | 3 d"]
        );
        assert_eq!(panes("", "x\n", "y\n"), ["- | 1! x | 1! y"]);
        assert_eq!(panes("same\n", "same\n", "same\n"), ["… 1"]);
    }

    #[test]
    fn unchanged_lines_are_left_out_and_long_texts_are_cut() {
        let read: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let disk = read.replace("line 50\n", "line fifty\n");
        let shown = panes(&read, &disk, &read);
        assert_eq!((shown.len(), shown[0].as_str(), shown[8].as_str()), (9, "… 47", "… 46"), "{shown:?}");
        assert_eq!(shown[4], "51! line [50] | 51! line [fifty] | 51 line 50");
        let long = "x\n".repeat(2000);
        let cut = panes(&long, &"y\n".repeat(2000), &long);
        assert_eq!((cut.len(), cut[ROWS].as_str()), (ROWS + 1, "cut"));
    }

    proptest! {
        #[test]
        fn every_pane_has_its_whole_text_in_order(
            read in "([ab]\n){0,12}", disk in "([abc]\n){0,12}", wanted in "([abd]\n){0,12}",
        ) {
            let texts = [&read, &disk, &wanted].map(|text| text.lines().collect::<Vec<_>>());
            let rows = rows(&texts);
            for (pane, text) in texts.iter().enumerate() {
                let lines = rows.iter().filter_map(|row| row[pane].as_ref());
                let numbers: Vec<usize> = lines.clone().map(|line| line.number).collect();
                prop_assert_eq!(numbers, (1..=text.len()).collect::<Vec<_>>());
                let shown: Vec<String> = lines.map(|line| line.parts.iter().map(|(part, _)| *part).collect()).collect();
                prop_assert_eq!(shown, text.clone());
            }
        }
    }
}
