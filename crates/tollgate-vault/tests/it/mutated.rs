//! The text of a task is read without a panic, whatever it says.

use tollgate_fuzz::fuzz;
use tollgate_vault::block;
use tollgate_vault::brief::{Brief, HEAD};

const TASKS: &[&str] = &[
    "# Plain\n\nText\n",
    "---\naction: send_email\npriority: high\ndue: 2026-11-16T12:00:00Z\nafter: [a, b.md]\n---\n# Task\n",
    "---\n\"action\": 'pay' # why\nafter:\n  - one\n  - \"two\"\ntags: {a: [b, {c: d}]}\nnote: |\n  text\n---\n",
    "**Action**: pay\n**Priority**: P1\n**After**: a, b\n\n# Task\n",
    "# Task\n\n<!-- tollgate c-0123456789abcdef -->\n# Claimed Task: x.md\n\n**Claimed By**: blue\n**Status**: processing\n\n## Progress\n\n\
     ## Completion\n\n**Completed At**: 2026-11-16T12:00:00Z\n**Duration**: 3\n**Result**: success\n**Next State**: Done\n",
];

#[test]
fn mutated_tasks_are_read_without_a_panic() {
    let claim = "c-0123456789abcdef".parse().unwrap();
    fuzz("task", TASKS, |bytes| {
        let author = block::author_len(bytes);
        assert!(author <= bytes.len());
        let _ = Brief::read(&bytes[..author.min(HEAD)]).map(|brief| brief.rank(jiff::Timestamp::UNIX_EPOCH));
        assert!(block::find(bytes, &claim).is_none_or(|at| at <= bytes.len()));
    });
}
