//! A path leads to what the agent read, for the tools of every program.

use std::fs;
use std::os::unix::fs::symlink;

use super::{HOSTS, Program};
use crate::world::{World, hash};

fn everywhere(story: impl Fn(&World, &Program<'_>)) {
    for host in HOSTS {
        let world = World::with("[guard]\ndurability = \"fast\"\n");
        world.puts("v1/c", "old\n");
        world.puts("v2/c", "foreign\n");
        symlink("v1", world.path("cur")).unwrap();
        story(&world, &Program::new(&world, host, "session-1"));
    }
}

fn retarget(world: &World, link: &str, to: &str) {
    fs::remove_file(world.path(link)).unwrap();
    symlink(to, world.path(link)).unwrap();
}

#[test]
fn a_write_through_a_retargeted_link_is_blocked() {
    everywhere(|world, agent| {
        agent.reads("cur/c");
        retarget(world, "cur", "v2");
        let payload = agent.writes("cur/c", "mine\n").refused("STALE_FILE");
        assert_eq!(payload["expected_hash"], hash("old\n"));
        assert_eq!(payload["actual_hash"], hash("foreign\n"));
        agent.edits("cur/c", "foreign", "mine").refused("STALE_FILE");
        agent.runs("echo mine > cur/c").refused("STALE_FILE");
        world.holds("v2/c", "foreign\n");
        agent.reads("cur/c").writes("cur/c", "mine\n").ran();
        world.holds("v2/c", "mine\n");
    });
}

#[test]
fn a_file_that_became_a_link_or_a_folder_is_stale() {
    everywhere(|world, agent| {
        world.puts("a", "old\n");
        world.puts("dir/b", "old\n");
        agent.reads("a").reads("v1/c").reads("dir/b");
        retarget(world, "a", "v2/c");
        agent.writes("a", "mine\n").refused("STALE_FILE");
        fs::remove_file(world.path("v1/c")).unwrap();
        fs::create_dir(world.path("v1/c")).unwrap();
        agent.writes("v1/c", "mine\n").refused("STALE_FILE");
        fs::remove_dir_all(world.path("dir")).unwrap();
        world.puts("dir", "foreign\n");
        agent.writes("dir/b", "mine\n").refused("STALE_FILE");
        world.holds("v2/c", "foreign\n");
        world.holds("dir", "foreign\n");
    });
}

#[test]
fn unchanged_files_stay_silent_through_links() {
    everywhere(|world, agent| {
        agent.reads("cur/c").writes("v1/c", "one\n").ran();
        agent.writes("cur/c", "two\n").ran();
        agent.reads("cur/c").edits("v1/c", "two", "three").ran();
        world.puts("v2/c", "three\n");
        retarget(world, "cur", "v2");
        agent.writes("cur/c", "four\n").ran();
        world.holds("v2/c", "four\n");
    });
}

#[test]
fn a_new_link_is_not_a_change_of_the_file_to_which_it_leads() {
    everywhere(|world, agent| {
        agent.runs("ln -s v2/c unread").ran();
        agent.writes("unread", "mine\n").ran();
        agent.reads("v1/c").runs("ln -s v1/c l").ran();
        agent.writes("l", "one\n").ran();
        agent.writes("v1/c", "two\n").ran();
        agent.edits("l", "two", "three").ran();
        world.holds("v1/c", "three\n");
        world.puts("v1/c", "foreign\n");
        agent.writes("l", "mine\n").refused("STALE_FILE");
    });
}
