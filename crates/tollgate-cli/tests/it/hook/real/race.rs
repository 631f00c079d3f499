//! Several real programs race for one file. Each reads it and writes it with one line more, round after round.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use super::model::{Act, Ends, SHARED, Speaks, Style};
use super::program::{Real, programs};
use super::{MeetingPoint, step, step_after};
use crate::world::World;

const RACERS: [Speaks; 3] = [Speaks::Codex, Speaks::Claude, Speaks::Copilot];
const ROUNDS: u32 = 4;

/// The lines of which the agents were told that they are written, and how many of them are missing in the end.
fn race(style: Style, bare: bool) -> Option<(usize, Vec<String>)> {
    let bin = programs()?;
    let world = World::with("[run]\nshell = \"transaction\"\n");
    world.puts(SHARED, "start-0\n");
    let meeting = MeetingPoint::new(RACERS.len());
    let racers = RACERS.map(|speaks| {
        let mut script = Vec::new();
        for round in 0..ROUNDS {
            let meeting = Arc::clone(&meeting);
            let line = Act::AddLine(style, format!("{speaks:?}-{round}"));
            script.push(step(Act::Shell("cat shared"), Ends::Either));
            // All have read the file, and all write it now.
            let together = move || {
                meeting.wait();
            };
            script.push(step_after(together, line, Ends::Either));
        }
        script.push(step(Act::Shell("cat shared"), Ends::Either));
        let mut racer = Real::new(&world, speaks, script);
        racer.bare = bare;
        racer
    });
    std::thread::scope(|scope| racers.iter().for_each(|racer| drop(scope.spawn(|| racer.plays(bin)))));
    let text = fs::read_to_string(world.path(SHARED)).unwrap();
    let there: BTreeSet<&str> = text.lines().collect();
    let told: Vec<String> = racers.iter().flat_map(|racer| racer.model.told()).collect();
    let lost = told.iter().filter(|line| !there.contains(line.as_str())).cloned().collect();
    Some((told.len(), lost))
}

fn nothing_is_lost(style: Style) {
    let Some((told, lost)) = race(style, false) else { return };
    assert!(told >= ROUNDS as usize, "at least one agent writes in each round: {told}");
    assert!(lost.is_empty(), "of {told} lines: {lost:?}");
}

#[test]
fn no_line_is_lost_that_an_agent_wrote_with_a_heredoc() {
    nothing_is_lost(Style::Heredoc);
}

#[test]
fn no_line_is_lost_that_an_agent_wrote_with_python() {
    nothing_is_lost(Style::Python);
}

#[test]
fn without_tollgate_lines_are_lost() {
    let Some((told, lost)) = race(Style::Python, true) else { return };
    assert_eq!(told, RACERS.len() * ROUNDS as usize);
    assert!(!lost.is_empty(), "the race is no race: nothing of {told} lines is lost");
}
