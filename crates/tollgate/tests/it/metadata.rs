//! Mode, owner, attributes, ACLs and links survive a guarded write.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tollgate::refusal::ErrorType;

use crate::world::World;

fn chmod(world: &World, path: &str, mode: u32) {
    fs::set_permissions(world.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(world: &World, path: &str) -> u32 {
    fs::metadata(world.root().join(path)).unwrap().mode() & 0o7777
}

#[test]
fn the_mode_survives() {
    let world = World::new();
    let agent = world.agent("blue");
    for bits in [0o600, 0o644, 0o755, 0o6755, 0o1666] {
        world.outsider_writes("a", "one");
        chmod(&world, "a", bits);
        agent.reads("a").writes("a", format!("two {bits:o}")).done();
        assert_eq!(mode(&world, "a"), bits, "{bits:o}");
    }
}

#[test]
fn a_new_file_has_the_usual_mode() {
    let world = World::new();
    world.outsider_writes("by_hand", "x");
    world.agent("blue").creates("by_gate", "x").done();
    assert_eq!(mode(&world, "by_gate"), mode(&world, "by_hand"));
}

#[test]
fn new_files_inherit_the_group_of_their_folder() {
    let world = World::new();
    fs::create_dir(world.root().join("shared")).unwrap();
    if std::os::unix::fs::chown(world.root().join("shared"), None, Some(12345)).is_err() {
        // Only root may set a group that it is not in.
        return;
    }
    chmod(&world, "shared", 0o2775);
    world.agent("blue").creates("shared/new", "x").done();
    assert_eq!(fs::metadata(world.root().join("shared/new")).unwrap().gid(), 12345);
    assert_eq!(
        fs::read_dir(world.root().join("shared")).unwrap().count(),
        1,
        "no temporary file is left there"
    );
}

#[test]
fn the_owner_survives() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let path = world.root().join("a");
    let owner = if std::os::unix::fs::chown(&path, Some(12345), Some(54321)).is_ok() {
        (12345, 54321)
    } else {
        let own = fs::metadata(&path).unwrap();
        (own.uid(), own.gid())
    };
    world.agent("blue").reads("a").writes("a", "two").done();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid()), owner);
}

#[test]
fn extended_attributes_and_acls_survive() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let path = world.root().join("a");
    rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    // Version 2; owner rw-, user 12345 r--, group r--, mask r--, other ---.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 12345), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(&path, "system.posix_acl_access", &acl, rustix::fs::XattrFlags::empty()).unwrap();
    world.agent("blue").reads("a").writes("a", "two").done();
    let get = |name: &str| {
        let mut value = vec![0; 1024];
        let length = rustix::fs::getxattr(&path, name, &mut value).unwrap();
        value.truncate(length);
        value
    };
    assert_eq!(get("user.note"), b"kept");
    assert_eq!(get("system.posix_acl_access"), acl);
}

#[test]
fn new_files_inherit_the_default_acl_of_their_folder() {
    let world = World::new();
    let folder = world.root().join("shared");
    fs::create_dir(&folder).unwrap();
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1u16, 6u16, u32::MAX), (2, 6, 12345), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(&folder, "system.posix_acl_default", &acl, rustix::fs::XattrFlags::empty()).unwrap();
    world.agent("blue").creates("shared/new", "x").done();
    let mut value = vec![0; 1024];
    assert!(rustix::fs::getxattr(folder.join("new"), "system.posix_acl_access", &mut value).is_ok());
}

#[test]
fn a_link_stays_a_link_and_its_target_is_written() {
    let world = World::new();
    world.outsider_writes("dir/a", "one");
    symlink("dir/a", world.root().join("link")).unwrap();
    world.agent("blue").reads("link").writes("link", "two").done();
    assert_eq!(fs::read_link(world.root().join("link")).unwrap(), std::path::Path::new("dir/a"));
    world.holds("dir/a", "two");
}

#[test]
fn hard_linked_and_read_only_files_are_refused_unless_the_settings_allow_them() {
    let prepare = |world: &World| {
        world.outsider_writes("a", "one");
        fs::hard_link(world.root().join("a"), world.root().join("b")).unwrap();
        world.outsider_writes("r", "one");
        chmod(world, "r", 0o444);
    };
    let world = World::new();
    prepare(&world);
    let agent = world.agent("blue");
    agent.reads("a").reads("r");
    agent.writes("a", "two").refused(ErrorType::HardLinked);
    agent.writes("r", "two").refused(ErrorType::ReadOnly);
    agent.deletes("r").refused(ErrorType::ReadOnly);
    world.holds("a", "one");
    world.holds("r", "one");
    let world = World::with("[guard]\nhard_links = \"detach\"\nread_only = \"replace\"");
    prepare(&world);
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    world.holds("a", "two");
    world.holds("b", "one");
    agent.reads("r").writes("r", "two").done();
    world.holds("r", "two");
    assert_eq!(mode(&world, "r"), 0o444);
}

#[test]
fn line_endings_and_byte_order_mark_survive_an_edit() {
    let world = World::new();
    world.outsider_writes("a", b"\xef\xbb\xbfone\r\ntwo\r\n");
    world.agent("blue").reads("a").edits("a", "one\ntwo", "one\n1.5\ntwo").done();
    world.holds("a", b"\xef\xbb\xbfone\r\n1.5\r\ntwo\r\n");
}
