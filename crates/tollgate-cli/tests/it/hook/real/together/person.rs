//! A person in the same checkout. Nothing here knows tollgate: an editor saves files, and git is git.

use std::fs;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use super::{Dice, Log, PERSON, locked};
use crate::world::World;

/// A person looks at what they have done.
const PAUSE: Duration = Duration::from_millis(500);

/// Works until the agents are done.
pub(super) fn works(world: &World, log: &std::sync::Mutex<Log>, is_over: impl Fn() -> bool) {
    let (mut dice, mut lines, mut acts) = (Dice(7), 0, 0);
    let mut is_away = false;
    while !is_over() {
        sleep(PAUSE);
        acts += 1;
        let mut line = || {
            lines += 1;
            format!("{PERSON}-{lines:04}")
        };
        let git = |command: &str| world.script(command).ends().code() == Some(0);
        let written = match dice.roll(8) {
            // Back after the next look.
            _ if is_away => {
                is_away = !git("git switch -q main");
                None
            }
            0..=2 => {
                let line = line();
                let mut notes =
                    fs::File::options().append(true).create(true).open(world.path("notes")).unwrap();
                notes.write_all(format!("{line}\n").as_bytes()).unwrap();
                Some(line)
            }
            3 | 4 => {
                // An editor saves a file under a new name, and renames it.
                let line = line();
                let text = fs::read_to_string(world.path(PERSON)).unwrap_or_default() + &line + "\n";
                world.puts("../saved", text);
                fs::rename(world.tmp().join("saved"), world.path(PERSON)).unwrap();
                Some(line)
            }
            5 => {
                let line = line();
                world.puts(format!("drafts/{line}"), format!("{line}\n"));
                Some(line)
            }
            6 => {
                // A person sees the branch in the prompt.
                git(&format!("git commit -q -m \"{PERSON} {acts} $(git branch --show-current)\" {PERSON}"));
                None
            }
            _ => {
                is_away = git(&format!("git switch -q -c topic_{PERSON}_{acts}"));
                None
            }
        };
        if let Some(line) = written {
            locked(log).written.insert(line, PERSON);
        }
    }
}
