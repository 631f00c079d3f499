//! What an agent and its neighbours experience.

use crate::world::World;

#[test]
fn a_stale_write_is_refused_and_after_a_re_read_succeeds() {
    let world = World::new();
    world.outsider_writes("a.txt", "one");
    let blue = world.agent("blue");
    blue.reads("a.txt");
    world.outsider_writes("a.txt", "two");
    blue.writes("a.txt", "three").refused_stale();
    world.holds("a.txt", "two");
    blue.reads("a.txt").writes("a.txt", "three").done();
    world.holds("a.txt", "three");
}
