//! A command that mounts folders elsewhere, in a namespace of its own. Every user may do that, where the system allows user
//! namespaces.

use std::fs;

use super::reach::{LEVELS, nobody_decided, pending, run_as_agent};
use crate::world::World;

/// Ways to write `x` into the file `$F` in the folder `$D`, as root of a namespace of one's own. `$M` is a folder outside of the
/// workspace.
const WAYS: [&str; 15] = [
    "mount --bind $D $M; echo x > $M/$F",
    "mount --bind $D $M; echo x > $M/new; mv $M/new $M/$F",
    "mount --bind $D $M; echo x > $M/new; ln -f $M/new $M/$F",
    "mount --bind $D $M; rm -f $M/$F; ln -s /no/where $M/$F",
    "mount --rbind / $M; echo x > $M/$D/$F",
    "touch $M/f; mount --bind $D/$F $M/f; echo x > $M/f",
    "mount --bind $D $M; cd $M; umount -l $M; echo x > $F",
    "mount --bind $D $M; ln -s $M/$F link; echo x > link",
    "mkdir -p shown; mount --bind $D shown; echo x > shown/$F",
    "mount --bind $D $M; mount --bind $M /mnt; umount $M; echo x > /mnt/$F",
    "mount -t tmpfs none $M; mkdir $M/in; mount --bind $D $M/in; mount --move $M /mnt; echo x > /mnt/in/$F",
    "mkdir -p $M/l $M/w; mount -t overlay -o lowerdir=$M/l,upperdir=$D,workdir=$M/w none /mnt; echo x > /mnt/$F",
    "mount --bind $D $M; python3 -c 'import os\nfd = os.open(os.environ[\"M\"], os.O_DIRECTORY)\nos.system(\"umount -l $M\")\n\
     os.write(os.open(os.environ[\"F\"], os.O_WRONLY | os.O_CREAT, dir_fd=fd), b\"x\")'",
    "python3 -c 'import os\nos.chroot(os.path.dirname(os.environ[\"D\"]))\nos.chdir(\"/\")\n\
     name = os.path.basename(os.environ[\"D\"])\nopen(f\"/{name}/\" + os.environ[\"F\"], \"w\").write(\"x\")'",
    "python3 -c 'import ctypes, os\nlibc = ctypes.CDLL(None)\ntree = libc.syscall(428, -100, os.environb[b\"D\"], 1)\n\
     os.write(os.open(os.environ[\"F\"], os.O_WRONLY | os.O_CREAT, dir_fd=tree), b\"x\")'",
];

/// Lets a script run in a namespace of its own.
fn in_namespace(world: &World, script: &str, (folder, file): (&str, &str), how: &str) -> String {
    let elsewhere = world.tmp().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(world.tmp().join("script"), script).unwrap();
    format!("export D={folder} F={file} M={}; {how} bash ../script", elsewhere.display())
}

#[test]
fn no_mount_is_a_way_around_what_is_closed() {
    // Where root makes the view, root can undo what is closed in it.
    for (level, ways_in) in [("transaction", &["unshare -rm"][..]), ("gate", &["unshare -rm", "exec"])] {
        let world = pending();
        let home = world.tmp().join("home");
        let closed = [
            (world.path(".claude"), "settings.json"),
            (world.path("vault/Pending_Approval"), "rent.md"),
            (home.join(".claude"), "settings.json"),
        ];
        for (folder, file) in [&closed[0], &closed[2]] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(file), "mine\n").unwrap();
        }
        for (folder, file) in &closed {
            let before = fs::read(folder.join(file)).unwrap();
            for (way, how) in WAYS.iter().flat_map(|way| ways_in.iter().map(move |how| (way, how))) {
                let script = in_namespace(&world, way, (folder.to_str().unwrap(), file), how);
                let ran = run_as_agent(&world, level, &script);
                let after = fs::read(folder.join(file)).ok();
                assert_eq!(after.as_ref(), Some(&before), "{level}, {how}, {folder:?}: {way}: {ran}");
                world.script("rm -rf link shown ../elsewhere").ends().is(0);
            }
        }
        nobody_decided(&world, level);
    }
}

/// A sandbox shows a program its files in a namespace of its own.
#[test]
fn a_program_works_in_a_namespace_of_its_own() {
    for level in LEVELS {
        let world = World::new();
        world.puts("sub/f", "one\n");
        for (how, script, file) in [
            ("unshare -rm", "mount --bind sub $M; echo two > $M/a", "sub/a"),
            ("unshare -rm", "mount --bind sub $M; echo two > $M/t; mv $M/t $M/b", "sub/b"),
            ("unshare -rm", "mount -t tmpfs none $M; echo two > $M/f; cp $M/f c", "c"),
            (
                "unshare -r",
                "python3 -c 'import os\nos.chroot(\"sub\")\nopen(\"/d\", \"w\").write(\"two\\n\")'",
                "sub/d",
            ),
        ] {
            let script = in_namespace(&world, &format!("set -e; {script}"), ("", ""), how);
            run_as_agent(&world, level, &script).is(0);
            world.holds(file, "two\n");
        }
    }
}
