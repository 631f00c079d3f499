//! A change of several files that healing has rolled back stays rolled back, wherever a second power cut comes.

use serde_json::json;

use crate::disk::{Act, Luck, Random, after_cut};
use crate::recording::Recording;
use crate::{Machine, Story, expect, places, with_files};

/// New files in new folders, which are deleted with them.
fn new_folders() -> Story {
    let changes = json!([{"path": "n/o/a", "content": "a"}, {"path": "p/b", "content": "b"}]);
    Story {
        name: "new folders",
        settings: "",
        prepare: |machine| with_files(machine, &[]),
        steps: vec![("apply --agent blue", changes.to_string())],
        is_after: |machine, steps| {
            let found = ["n/o/a", "p/b"].map(|name| machine.read(name).unwrap_or_default());
            expect("files", found, if steps == 0 { ["", ""] } else { ["a", "b"] }.map(String::from))
        },
    }
}

#[test]
fn a_change_that_was_rolled_back_does_not_come_back_in_part_after_a_second_power_cut() {
    for place in places() {
        let machine = Machine::new(&place);
        let story = new_folders();
        let recorded = story.record(&machine).recording;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        // The files are in place, and the line in the ledger, which makes the change valid, is not.
        let line = |act: &Act| matches!(act, Act::Write { bytes, .. } if bytes.windows(8).any(|part| part == b"MUTATION"));
        let at = recorded.acts.iter().position(line).unwrap();
        let mut cut = |recorded: &Recording, at: usize, luck: Luck| {
            let acts = &recorded.acts[..at];
            machine.start(&after_cut(
                &recorded.before,
                acts,
                &recorded.end,
                machine.journal,
                luck,
                &mut random,
            ));
        };
        cut(&recorded, at, Luck::Everything);
        (story.is_after)(&machine, 1).unwrap();
        let mut healing = Recording::of(&machine.disk);
        let words = ["write", "other", "--agent", "red"].map(String::from);
        assert!(healing.run(&machine.command(&words), b"more\n").status.success());
        (story.is_after)(&machine, 0).unwrap();
        let flushes: Vec<usize> =
            (1..=healing.acts.len()).filter(|at| matches!(healing.acts[at - 1], Act::Flush(_))).collect();
        assert!(flushes.len() > 4, "{flushes:?}");
        for at in flushes {
            cut(&healing, at, Luck::Nothing);
            machine.must(&["write", "other", "--agent", "red"], "more\n").unwrap();
            let healed = (story.is_after)(&machine, 0);
            assert_eq!(healed, Ok(()), "{:?}, cut after {:?}", machine.journal, &healing.acts[..at]);
        }
    }
}
