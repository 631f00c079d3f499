//! What happens to unfinished work beside each real program, measured without tollgate and with what `init` writes. The docs have
//! the result as a table, which must be true. With `INSTA_UPDATE=always`, the test writes it.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::model::{Act, Ends, Speaks};
use super::program::{Real, programs};
use super::step_after;
use crate::world::World;

/// The docs, the line above the table, and the one below it.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/unfinished.md");
const BEGIN: &str = "<!-- measured by tests/it/hook/real/unfinished.rs -->\n";
const END: &str = "<!-- end -->\n";

const PROGRAMS: [(&str, Speaks); 6] = [
    ("Claude Code", Speaks::Claude),
    ("Codex CLI", Speaks::Codex),
    ("Copilot CLI", Speaks::Copilot),
    ("opencode", Speaks::Opencode),
    ("Cline", Speaks::Cline),
    ("Gemini CLI", Speaks::Gemini),
];

/// A repository with two commits. What the programs and tollgate put there is nobody's work.
const REPOSITORY: &str = "git init -q -b main && git config user.name a && git config user.email a@b
    printf '%s\\n' .tollgate .claude .codex .gemini .opencode .github .cline > .git/info/exclude
    echo zero > mine && git add . && git commit -q -m zero
    echo one | tee f > g && git add . && git commit -q -m one && git tag start";

const CLEAN: &str =
    "git stash clear; git switch -q -f main; git reset -q --hard start; git clean -q -fd; mkdir notes
    git branch --list topic theirs | xargs -r git branch -q -D";

/// What an agent does that has not looked around.
struct Deed {
    /// How the table names it.
    name: &'static str,
    act: Act,
    /// The files with unfinished work: the first is a person's, the second that of another agent, which uses tollgate, too. If
    /// there are none, a person has switched to another branch.
    files: &'static [&'static str],
}

const fn shell(name: &'static str, command: &'static str, files: &'static [&'static str]) -> Deed {
    Deed { name, act: Act::Shell(command), files }
}

static DEEDS: [Deed; 11] = [
    shell("`git stash`", "git stash", &["f", "g"]),
    shell("`git reset --hard`", "git reset --hard", &["f", "g"]),
    shell("`git checkout .`", "git checkout .", &["f", "g"]),
    shell("`git restore .`", "git restore .", &["f", "g"]),
    shell("`git clean -fd`", "git clean -fd", &["notes/1", "notes/2"]),
    shell("`rm -rf FOLDER`", "rm -rf notes", &["notes/1", "notes/2"]),
    Deed { name: "its file tool overwrites FILE", act: Act::Overwrite("f", "theirs\n"), files: &["f"] },
    shell("`echo x > FILE`", "echo theirs > f", &["f"]),
    shell("`git commit -a`", "git commit -a -m theirs", &["f", "g"]),
    shell("`git switch -c BRANCH`", "git switch -c topic", &["f", "g"]),
    shell(
        "commits on a branch that a person has switched to",
        "echo x >> mine; git commit -m theirs mine",
        &[],
    ),
];

/// The file tools of some programs overwrite nothing.
fn has_tool(speaks: Speaks, act: &Act) -> bool {
    !matches!(act, Act::Overwrite(..)) || !matches!(speaks, Speaks::Copilot | Speaks::Cline)
}

/// The unfinished text in a file, which is nowhere else.
fn text(at: usize, file: &str) -> String {
    format!("unfinished-{at}-{file}")
}

/// Before a deed: the others work.
fn work(world: &World, at: usize, is_guarded: bool) {
    let switch = if DEEDS[at].files.is_empty() { "git switch -q -c theirs" } else { "" };
    world.script(&format!("{CLEAN}; {switch}")).ends().is(0);
    for (owner, file) in DEEDS[at].files.iter().enumerate() {
        let text = text(at, file) + "\n";
        if owner == 1 && is_guarded {
            let agent = format!("other-{at}");
            world.tollgate(["write", file, "--agent", &agent]).stdin(text).ends().is(0);
        } else {
            world.puts(file, text);
        }
    }
}

/// After a deed: what has come of the work.
fn outcome(world: &World, at: usize) -> &'static str {
    let shows = |command: &str, text: &str| world.script(command).ends().stdout().contains(text);
    let files = DEEDS[at].files;
    if files.is_empty() {
        return if shows("git log start..theirs", "theirs") { "committed there" } else { "refused" };
    }
    let shown = |command: &str| files.iter().filter(|file| shows(command, &text(at, file))).count();
    if shown("git log -p start..") > 0 {
        "committed"
    } else if shown("git stash list -p") > 0 {
        "in a stash"
    } else if shown("cat f g notes/*") < files.len() {
        "lost"
    } else if shows("git branch --show-current", "main") {
        "kept"
    } else {
        "carried along"
    }
}

/// What comes of each deed, in one session of the program.
fn outcomes(bin: &Path, speaks: Speaks, is_guarded: bool) -> Vec<&'static str> {
    let world = Arc::new(World::bare());
    world.script(REPOSITORY).ends().is(0);
    let found = Arc::new(Mutex::new(vec!["no such tool"; DEEDS.len()]));
    let deeds: Vec<usize> = (0..DEEDS.len()).filter(|at| has_tool(speaks, &DEEDS[*at].act)).collect();
    let between = |last: Option<usize>, next: Option<usize>| {
        // The model outlives the world.
        let (world, found) = (Arc::downgrade(&world), Arc::clone(&found));
        let before = move || {
            let world = world.upgrade().unwrap();
            if let Some(at) = last {
                found.lock().unwrap()[at] = outcome(&world, at);
            }
            if let Some(at) = next {
                work(&world, at, is_guarded);
            }
        };
        let act = next.map_or(Act::Shell("git status"), |at| DEEDS[at].act.clone());
        step_after(before, act, Ends::Either)
    };
    let next = deeds.iter().copied().map(Some).chain([None]);
    let script = [None].into_iter().chain(next.clone()).zip(next).map(|(last, next)| between(last, next));
    let mut real = Real::new(&world, speaks, script.collect::<Vec<_>>());
    real.bare = !is_guarded;
    real.plays(bin);
    let found = found.lock().unwrap();
    found.clone()
}

#[test]
fn the_docs_say_what_happens_to_unfinished_work() {
    let Some(bin) = programs() else { return };
    let mut rows: Vec<String> = DEEDS.iter().map(|deed| format!("| {} |", deed.name)).collect();
    let (mut names, mut line) = ("| an agent that has not looked |".to_owned(), "|---|".to_owned());
    for (name, speaks) in PROGRAMS {
        names += &format!(" {name} |");
        line += "---|";
        let (bare, guarded) = std::thread::scope(|scope| {
            let guarded = scope.spawn(|| outcomes(bin, speaks, true));
            (outcomes(bin, speaks, false), guarded.join().unwrap())
        });
        for ((row, bare), guarded) in rows.iter_mut().zip(bare).zip(guarded) {
            *row += &if bare == guarded { format!(" {bare} |") } else { format!(" {bare} → {guarded} |") };
        }
    }
    let measured = format!("{names}\n{line}\n{}\n", rows.join("\n"));
    let page = fs::read_to_string(PAGE).unwrap();
    let (above, rest) = page.split_once(BEGIN).unwrap();
    let (shown, below) = rest.split_once(END).unwrap();
    if std::env::var_os("INSTA_UPDATE").is_some_and(|word| word == "always") {
        fs::write(PAGE, format!("{above}{BEGIN}{measured}{END}{below}")).unwrap();
    } else {
        assert_eq!(shown, measured, "`INSTA_UPDATE=always` writes what was measured into {PAGE}");
    }
}
