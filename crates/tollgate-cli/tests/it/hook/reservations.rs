//! Reservations: who waits for a call, and what ends it if no hook reports its end.

use super::stories::{everywhere, ledger};
use super::{Program, Tool};
use crate::world::{World, hash};

#[test]
fn a_reservation_blocks_other_programs_until_the_tool_has_run() {
    let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let (first, second) = (Program::new(&world, "gemini", "s1"), Program::new(&world, "codex", "s2"));
    first.reads("a.txt");
    second.reads("a.txt");
    let came = first.uses_while(&Tool::Write("a.txt", "first\n"), || {
        let reason = second.writes("a.txt", "second\n").blocked();
        assert!(reason.contains("FILE_BUSY") && reason.contains("`gemini-"), "{reason}");
        // Writes with the command line wait for it, too.
        world
            .tollgate(["write", "a.txt", "--json"])
            .stdin("ours\n")
            .ends()
            .payload("FILE_BUSY", "RETRY_LATER");
    });
    came.ran();
    second.writes("a.txt", "second\n").refused("STALE_FILE");
    world.holds("a.txt", "first\n");
    second.reads("a.txt").writes("a.txt", "second\n").ran();
}

#[test]
fn a_call_whose_end_is_never_reported_blocks_nobody_for_long() {
    everywhere(|world, agent| {
        let other = Program::new(world, "claude-code", "other");
        other.reads("a.txt");
        agent.reads("a.txt");
        // The call is interrupted: no hook runs after it. Then the agent stops.
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "cut off\n"), "cut")), None);
        other.writes("a.txt", "other's\n").refused("FILE_BUSY");
        agent.stops();
        other.writes("a.txt", "other's\n").ran();
    });
    everywhere(|world, agent| {
        let other = Program::new(world, "claude-code", "other");
        agent.reads("a.txt");
        // The tool wrote the file as expected, and only the hook after it is missing.
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "written\n"), "cut")), None);
        world.puts("a.txt", "written\n");
        other.reads("a.txt").writes("a.txt", "other's\n").ran();
        agent.writes("a.txt", "again\n").refused("STALE_FILE");
        agent.reads("a.txt");
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "more\n"), "cut-2")), None);
        world.puts("a.txt", "more\n");
        agent.writes("a.txt", "own second write\n").ran();
    });
}

#[test]
fn a_patch_whose_end_is_never_reported_is_over_when_its_files_are_as_expected() {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+TWO\n*** Add File: new.txt\n+new\n*** End Patch";
    for host in ["codex", "opencode", "copilot", "cline"] {
        let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"");
        world.puts("a.txt", "one\ntwo\n");
        let agent = Program::new(&world, host, "session-1");
        let other = Program::new(&world, "gemini", "other");
        agent.reads("a.txt");
        assert_eq!(agent.asks(&agent.before(&Tool::Patch(patch), "cut")), None);
        world.puts("new.txt", "new\n");
        other.reads("a.txt").writes("a.txt", "other's\n").refused("FILE_BUSY");
        world.puts("a.txt", "one\nTWO\n");
        other.reads("a.txt").writes("a.txt", "other's\n").ran();
        assert_eq!(
            ledger(&world, "MUTATION")[0]["payload"]["hash_after"],
            format!("sha256:{}", hash("one\nTWO\n"))
        );
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    }
}

#[test]
fn a_dead_program_blocks_nobody() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let dying = Program::new(&world, "codex", "dying");
    let payload = dying.before(&Tool::Write("a.txt", "never\n"), "c1");
    world.puts("payload.json", payload.to_string());
    // A program that is not a shell runs the hook and ends.
    let script = "system('tollgate hook codex < payload.json') == 0 or exit 1";
    world.program("perl", ["-e", script]).ends().is(0);
    let other = Program::new(&world, "gemini", "other");
    other.reads("a.txt").writes("a.txt", "other's\n").ran();
    world.holds("a.txt", "other's\n");
}
